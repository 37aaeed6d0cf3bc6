"""Comments that silence rules: `# ptxdiff: ignore[rule]` in Python, `// ptxdiff: ignore[rule]` in C++ and within asm.

A comment silences findings on its own line; if it is alone on a line, also those on the next line; on the first or last
line of a call, all findings in its asm.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from harness.lint.extract.literals import File
from harness.lint.snippet import Finding, Snippet

_COMMENT = re.compile(r"(?:#|//|/\*)\s*ptxdiff:\s*ignore\b(?:\[([^\]\n]*)\])?")


@dataclass
class Silence:
    """One rule named by one comment."""

    rule: str
    line: int
    column: int
    alone: bool
    used: bool = field(default=False, compare=False)


def silences(file: File, snippets: Sequence[Snippet]) -> list[Silence]:
    """All silences in comments of a file and of its asm; a comment without a rule gives the rule ''."""
    places = dict.fromkeys(_comments(file))
    for snippet in snippets:
        for comment in _COMMENT.finditer(snippet.asm):
            at = snippet.origin.offset(comment.start())
            if at >= 0:
                places.setdefault((at, comment[0]))
    found: dict[tuple[str, int, int], Silence] = {}
    for at, words in places:
        line, column = file.place(at)
        start = file.starts[line - 1]
        alone = not file.text[start:at].strip(" \t\"'")
        named = _COMMENT.match(words)
        for rule in (named[1] or "").split(",") if named else ():
            found.setdefault((rule.strip(), line, column), Silence(rule.strip(), line, column, alone))
    return list(found.values())


def _comments(file: File) -> Iterator[tuple[int, str]]:
    """Offset and text of each comment of the language that silences rules."""
    if "ptxdiff:" not in file.text:
        return
    if file.path.endswith((".py", ".pyi")):
        try:
            for token in tokenize.generate_tokens(io.StringIO(file.text).readline):
                if token.type == tokenize.COMMENT and (found := _COMMENT.search(token.string)):
                    yield (
                        file.starts[token.start[0] - 1] + token.start[1] + found.start(),
                        token.string[found.start() :],
                    )
        except (tokenize.TokenError, SyntaxError):
            return
    else:
        from harness.lint.extract.cplusplus import comments

        for at, text in comments(file.text):
            if found := _COMMENT.search(text):
                yield at + found.start(), text[found.start() :]


def silenced(finding: Finding, found: Sequence[Silence]) -> bool:
    """Whether a comment silences a finding; the comment then counts as used."""
    lines = {finding.line, finding.snippet.origin.line, finding.snippet.origin.last}
    hits = [s for s in found if s.rule == finding.rule and (s.line in lines or (s.alone and s.line + 1 in lines))]
    for silence in hits:
        silence.used = True
    return bool(hits)
