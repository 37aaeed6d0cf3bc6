"""Run the rules over snippets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ptxdiff.emulator import PtxError, unexpected
from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.rules import Rule, rules
from ptxdiff.lint.snippet import Finding, Found, Snippet

_WORD = re.compile(r"[%$]?[\w.:%$]+|=?[+&]*\w+")
"""An opcode with its modifiers, an operand, or a constraint."""


def lint(snippet: Snippet, chosen: Iterable[str] | None = None) -> list[Finding]:
    """All findings in one snippet, of the chosen rules or of all rules that run by default."""
    return lint_together([snippet], chosen)


def lint_together(snippets: Sequence[Snippet], chosen: Iterable[str] | None = None) -> list[Finding]:
    """All findings in the snippets of one file, sorted by place."""
    known = rules()
    checks = [known[n] for n in chosen] if chosen is not None else [r for r in known.values() if r.default]
    blocks: list[LintedBlock] = []
    for snippet in snippets:
        blocks.append(LintedBlock(snippet, blocks))
    findings = [finding for block in blocks for each in checks for finding in _checked(each, block)]
    return sorted(dict.fromkeys(findings), key=lambda f: f.key)


def grouped(findings: Iterable[Finding]) -> list[Finding]:
    """Equal findings of a file as one, with the other places in `places`: generated code repeats a block.

    Equal are rule, severity, file and all words, and in a case file the variant. The finding with the first place
    stays, with its snippet and repair.
    """
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for each in findings:
        variant = f"{each.snippet.group}[{each.snippet.function}]" if each.snippet.group else ""
        content = (each.rule, each.severity, each.path, variant, each.message, each.why, each.instead)
        groups.setdefault(content, []).append(each)
    ordered = [sorted(group, key=lambda f: f.key) for group in groups.values()]
    kept = [
        replace(first, places=tuple((f.line, f.column) for f in rest), others=tuple(rest)) for first, *rest in ordered
    ]
    return sorted(kept, key=lambda f: f.key)


def ungrouped(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings of each place, as they were before `grouped`."""
    for each in findings:
        yield replace(each, places=(), others=()) if each.others else each
        yield from each.others


def _checked(each: Rule, block: LintedBlock) -> list[Finding]:
    """The findings of one rule. If the rule raises, that becomes a finding of the rule `internal`."""
    try:
        return [placed(block.snippet, each, finding) for finding in each.check(block)]
    except Exception as error:
        message = error.message if isinstance(error, PtxError) else unexpected(error, f"the rule {each.name}").message
        return [placed(block.snippet, rules()["internal"], Found(None, f"rule {each.name}: {message}"))]


def placed(snippet: Snippet, each: Rule, found: Found) -> Finding:
    """A finding with its place in the file and in the text."""
    asm_line = asm_column = 0
    origin = snippet.origin if found.part == "asm" else snippet.constraints_origin
    if found.at is not None and found.part == "asm":
        before = snippet.asm[: found.at]
        asm_line, asm_column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    if found.at is not None:
        line, column = origin.position(found.at)
        text = snippet.asm if found.part == "asm" else snippet.constraints
        word = _WORD.match(text, min(found.at, len(text)))
        end = origin.end(found.at, len(word[0]) if word else 1)
    else:
        line, column = snippet.origin.line, snippet.origin.column
        end = (snippet.origin.last, snippet.origin.last_column)
    if not snippet.origin.line:
        end = (0, 0)
    return Finding(
        each.name,
        found.severity or each.severity,
        found.message,
        found.why or each.why,
        found.instead,
        snippet.origin.path,
        line,
        column,
        asm_line,
        asm_column,
        snippet,
        found.fix,
        end_line=end[0],
        end_column=end[1],
    )
