"""Convert a snippet of any convention to Triton's form, and offsets back to the author's text."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ptxdiff.lint.snippet import Snippet
from ptxdiff.ptx.errors import PtxError
from ptxdiff.ptx.text.conventions import spelled


@dataclass(frozen=True)
class NumberedForm:
    """Text with `$0` and constraints without `+`. `moves`: (offset in this text, offset in the author's), ascending."""

    text: str
    constraints: str
    moves: tuple[tuple[int, int], ...] = field(default=())

    def original(self, offset: int) -> int:
        """The offset in the author's text."""
        at = bisect_right(self.moves, (offset, 1 << 62)) - 1
        if at < 0:
            return offset
        here, there = self.moves[at]
        return there + offset - here


def triton_form(snippet: Snippet) -> NumberedForm:
    """The snippet in Triton's spelling. Only the convention "cuda" is spelled differently."""
    try:
        found = spelled(snippet.asm, snippet.constraints, snippet.convention, lenient=True)
    except PtxError:
        return NumberedForm(snippet.asm, snippet.constraints)  # the rule `constraints` says why
    return NumberedForm(found.text, found.constraints, found.moves)
