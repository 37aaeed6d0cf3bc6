"""Comments that silence rules: `# ptxdiff: ignore[rule]` in Python, `// ptxdiff: ignore[rule]` in C++ and within asm.

A comment with rules silences their findings on its own line; if it is alone on a line, also those on the next line; on
the first or last line of a call, all of their findings in its asm. `ptxdiff: ignore` without rules silences every rule,
but only findings whose own place is that line, so that it hides no other mistake of the same block. A reason may follow
after `--`.

In C++, `NOLINT` and `NOLINTNEXTLINE` silence every rule on their own or on the next line, as they do for clang-tidy;
`NOLINT(ptxdiff-rule)` silences one rule. Names of other tools' checks are left to those tools.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ptxdiff.lint.extract.literals import File
from ptxdiff.lint.snippet import Finding, Snippet

ALL = "*"
"""The name that stands for all rules."""
_IGNORE = re.compile(r"(?:#|//|/\*)\s*ptxdiff:\s*ignore\b(?P<rest>[^\n]*)")
_RULES = re.compile(r"\[([^\]\n]*)\]")
_NOTHING_MORE = re.compile(r"\s*(?:\Z|\*/|#|//|--|—)")
_NOLINT = re.compile(r"\b(?P<word>NOLINT(?:NEXTLINE)?)\b(?:\((?P<names>[^)\n]*)\))?")
_PREFIX = "ptxdiff-"
_NEVER_BY_ALL = frozenset(("internal",))
"""Rules whose findings say that something was not examined. Only a comment that names them silences them."""


@dataclass
class Suppression:
    """One rule named by one comment.

    rule: its name, or `ALL`. line, column: the place of the comment. first, last: the lines that it covers. words: the
    comment as it is written, for messages. problem: why it silences nothing; empty if it may. foreign: whether it may
    serve another tool, so that it is never unused.
    """

    rule: str
    line: int
    column: int
    first: int
    last: int
    words: str
    problem: str = ""
    foreign: bool = False
    used: bool = field(default=False, compare=False)

    def covers(self, finding: Finding) -> bool:
        """Whether the comment silences a finding."""
        if self.problem:
            return False
        if self.rule == ALL:
            return finding.rule not in _NEVER_BY_ALL and self.first <= finding.line <= self.last
        lines = (finding.line, finding.snippet.origin.line, finding.snippet.origin.last)
        return self.rule == finding.rule and any(self.first <= line <= self.last for line in lines)


def suppressions(file: File, snippets: Sequence[Snippet]) -> list[Suppression]:
    """All suppressions in comments of a file and of its asm."""
    comments = dict(_comments(file))
    for snippet in snippets:
        for comment in re.finditer(r"(?://|/\*)[^\n]*", snippet.asm):
            at = snippet.origin.offset(comment.start())
            if at >= 0:
                comments.setdefault(at, comment[0])
    python = file.path.lower().endswith((".py", ".pyi"))
    result: dict[tuple[str, int, int], Suppression] = {}
    for at, text in comments.items():
        for each in (*_ignores(file, at, text), *(() if python else _nolints(file, at, text))):
            result.setdefault((each.rule, each.line, each.column), each)
    return list(result.values())


def _comments(file: File) -> Iterator[tuple[int, str]]:
    """Offset and text of each comment of the language, in a file that may have suppressions."""
    if "ptxdiff:" not in file.text and "NOLINT" not in file.text:
        return
    if file.path.lower().endswith((".py", ".pyi")):
        try:
            for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
                if token.type == tokenize.COMMENT:
                    yield file.starts[token.start[0] - 1] + token.start[1], token.string
        except (tokenize.TokenError, SyntaxError):
            return
    else:
        from ptxdiff.lint.extract.cplusplus import comments

        yield from comments(file.text)


def _ignores(file: File, at: int, text: str) -> Iterator[Suppression]:
    """The suppressions of each `ptxdiff: ignore` in a comment at an offset."""
    for comment in _IGNORE.finditer(text):
        line, column = file.place(at + comment.start())
        alone = not file.text[file.starts[line - 1] : at + comment.start()].strip(" \t\"'")
        last = line + 1 if alone else line
        if named := _RULES.match(comment["rest"]):
            for rule in (name.strip() for name in named[1].split(",")):
                # `ignore[*]` is no way to silence a whole block.
                problem = "" if rule and rule != ALL else "a comment with brackets must name its rules: ignore[rule]"
                yield Suppression(rule, line, column, line, last, f"ignore[{rule}]", problem)
        elif _NOTHING_MORE.match(comment["rest"]):
            yield Suppression(ALL, line, column, line, last, "ignore")
        else:
            rest = comment["rest"].split("*/")[0].strip()
            problem = (
                f"after `ignore` stands {rest!r}: write ignore[rule] for one rule, `ignore` alone for all rules on "
                "this line, and a reason after `--`"
            )
            yield Suppression("", line, column, line, last, "ignore", problem)


def _nolints(file: File, at: int, text: str) -> Iterator[Suppression]:
    """The suppressions of each NOLINT in a comment of C++ at an offset."""
    for comment in _NOLINT.finditer(text):
        line, column = file.place(at + comment.start())
        covered = line + 1 if comment["word"] == "NOLINTNEXTLINE" else line
        if comment["names"] is None:
            yield Suppression(ALL, line, column, covered, covered, comment["word"], foreign=True)
            continue
        for name in (name.strip() for name in comment["names"].split(",")):
            words = f"{comment['word']}({name})"
            if name == ALL:
                yield Suppression(ALL, line, column, covered, covered, words, foreign=True)
            elif name.startswith(_PREFIX):
                yield Suppression(name.removeprefix(_PREFIX), line, column, covered, covered, words)


def suppressed(finding: Finding, of_the_file: Sequence[Suppression]) -> bool:
    """Whether a comment silences a finding; the comment then counts as used."""
    covering = [each for each in of_the_file if each.covers(finding)]
    for each in covering:
        each.used = True
    return bool(covering)
