"""Apply mechanical repairs to a file. Each must give the intended text and cause no finding of another rule.

After each repair the file is parsed and linted again. A repair that the string literal cannot express, or that causes a
finding of another rule, is not made, and the output says so.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ptxdiff.lint.block import LintedBlock
from ptxdiff.lint.extract import extract_text
from ptxdiff.lint.extract.strings import File
from ptxdiff.lint.files import Report, lint_text
from ptxdiff.lint.settings import Selection
from ptxdiff.lint.snippet import Edit, Finding, Fix, Snippet, TextOrigin

MOST = 1000
"""The most repairs of one file."""


@dataclass(frozen=True)
class Replacement:
    """Replace a range of a file by `new`. Lines and columns count from 1; the end is the place after the range."""

    line: int
    column: int
    end_line: int
    end_column: int
    new: str


def replacements(finding: Finding, file: File) -> list[Replacement]:
    """The changes of a file that make the repair of a finding; none if the file's text cannot express it.

    The file is parsed again with them, and must hold the repaired block.
    """
    if finding.fix is None:
        return []
    wanted = fixed_snippet(finding.snippet, finding.fix)
    for doubled in (False, True):
        ranges = _ranges(finding.snippet, finding.fix.edits, doubled)
        if ranges is None:
            return []
        after = extract_text(file.path, _replaced(file.text, ranges))
        if any((s.asm, s.constraints) == (wanted.asm, wanted.constraints) for s in after.snippets):
            return [Replacement(*file.place(start), *file.place(end), new) for start, end, new in ranges]
    return []


@dataclass
class Repaired:
    """The text of a file with all repairs that could be made; `refused` are findings whose repair could not."""

    path: str
    before: str
    after: str
    applied: list[Finding] = field(default_factory=list)
    refused: list[Finding] = field(default_factory=list)

    def diff(self) -> str:
        """A unified diff; empty if nothing changed."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True), self.after.splitlines(keepends=True), self.path, self.path
        )
        return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def fixed_snippet(snippet: Snippet, fix: Fix) -> Snippet:
    """The snippet with the edits made, without places."""
    texts = {"asm": snippet.asm, "constraints": snippet.constraints}
    for edit in sorted(fix.edits, key=lambda e: e.start, reverse=True):
        text = texts[edit.part]
        texts[edit.part] = text[: edit.start] + edit.new + text[edit.end :]
    return replace(snippet, asm=texts["asm"], constraints=texts["constraints"])


def repaired(
    path: str, text: str, chosen: Selection | Sequence[str] | None = None, targets: Sequence[str] = ()
) -> Repaired:
    """Make every repair that the findings of a file suggest."""
    result = Repaired(path, text, text)
    refused: set[tuple[object, ...]] = set()
    report = _linted(path, text, chosen, targets)
    for _ in range(MOST):
        finding = next((f for f in report.findings if f.fix and _key(f) not in refused), None)
        if finding is None:
            break
        attempt = _attempted(result, finding, report, chosen, targets)
        if attempt is None:
            refused.add(_key(finding))
            result.refused.append(finding)
        else:
            result.after, report = attempt
            result.applied.append(finding)
    return result


def _linted(path: str, text: str, chosen: Selection | Sequence[str] | None, targets: Sequence[str]) -> Report:
    return lint_text(path, text, chosen=chosen, targets=targets)


def _key(finding: Finding) -> tuple[object, ...]:
    return finding.rule, finding.message, finding.snippet.asm, finding.snippet.constraints


def _attempted(
    result: Repaired, finding: Finding, before: Report, chosen: Selection | Sequence[str] | None, targets: Sequence[str]
) -> tuple[str, Report] | None:
    """The file with one more repair, and its findings; None if the repair cannot be made."""
    assert finding.fix is not None
    wanted = fixed_snippet(finding.snippet, finding.fix)
    for doubled in (False, True):  # in an f-string a brace is doubled
        text = _edited(result.after, finding.snippet, finding.fix.edits, doubled)
        if text is None:
            return None
        after = _linted(result.path, text, chosen, targets)
        here = {(s.asm, s.constraints) for s in after.texts}
        old, new = map(_places_by_rule, (before, after))
        # A text that could not be parsed may have further mistakes that were not reported.
        worse = Counter() if LintedBlock(finding.snippet).tree is None else new - old
        if (wanted.asm, wanted.constraints) in here and not worse and new[finding.rule] < old[finding.rule]:
            return text, after
    return None


def _places_by_rule(report: Report) -> Counter[str]:
    """How many places have a finding, by rule."""
    counts: Counter[str] = Counter()
    for finding in report.findings:
        counts[finding.rule] += 1 + len(finding.places)
    return counts


def _edited(text: str, snippet: Snippet, edits: Sequence[Edit], doubled: bool) -> str | None:
    """The file's text with the edits; None if their places do not exist in it."""
    ranges = _ranges(snippet, edits, doubled)
    return None if ranges is None else _replaced(text, ranges)


def _replaced(text: str, ranges: Sequence[tuple[int, int, str]]) -> str:
    for start, end, new in reversed(ranges):
        text = text[:start] + new + text[end:]
    return text


def _ranges(snippet: Snippet, edits: Sequence[Edit], doubled: bool) -> list[tuple[int, int, str]] | None:
    """Start, end and new text of each edit in the file, ascending; None if their places do not exist in it."""
    places: list[tuple[int, int, str]] = []
    for edit in edits:
        origin = snippet.origin if edit.part == "asm" else snippet.constraints_origin
        span = _span(origin, edit)
        if span is None:
            return None
        new = edit.new.replace("{", "{{").replace("}", "}}") if doubled else edit.new
        places.append((*span, new))
    return sorted(set(places))


def _span(origin: TextOrigin, edit: Edit) -> tuple[int, int] | None:
    """The range in the file of an edit's characters, if they are consecutive there."""
    offsets = origin.offsets
    if edit.start == edit.end:
        if edit.start < len(offsets) and offsets[edit.start] >= 0:
            return offsets[edit.start], offsets[edit.start]
        if 0 < edit.start <= len(offsets) and offsets[edit.start - 1] >= 0:
            return offsets[edit.start - 1] + 1, offsets[edit.start - 1] + 1
        return None
    inside = offsets[edit.start : edit.end]
    if (
        len(inside) < edit.end - edit.start
        or inside[0] < 0
        or list(inside) != [*range(inside[0], inside[0] + len(inside))]
    ):
        return None
    return inside[0], inside[-1] + 1
