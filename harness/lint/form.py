"""A snippet in Triton's form, whatever its convention is, and the way back to the text that its author wrote."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

from harness.lint.snippet import Snippet

_CUDA = re.compile(r"%(?:(%)|(\d+)|\[)|\$")


@dataclass(frozen=True)
class Form:
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


def triton_form(snippet: Snippet) -> Form:
    """The snippet as Triton would take it. Only the convention "cuda" is spelled otherwise."""
    if snippet.convention != "cuda":
        return Form(snippet.asm, snippet.constraints)
    parts: list[str] = []
    moves: list[tuple[int, int]] = []
    at = length = 0
    for found in _CUDA.finditer(snippet.asm):
        percent, number = found.groups()
        new = "%" if percent else f"${number}" if number else "$$" if found[0] == "$" else found[0]
        parts += snippet.asm[at : found.start()], new
        length += found.start() - at + len(new)
        at = found.end()
        moves.append((length, at))
    return Form("".join([*parts, snippet.asm[at:]]), _untied(snippet.constraints), tuple(moves))


def _untied(constraints: str) -> str:
    """`+r` as an output and a further input tied to it, after all others, as clang numbers them."""
    words = [word.strip() for word in constraints.split(",")] if constraints.strip() else []
    outputs = [word for word in words if word[:1] in ("=", "+")]
    inputs = [word for word in words if word[:1] not in ("=", "+", "~")]
    clobbers = [word for word in words if word.startswith("~")]
    tied = [str(n) for n, word in enumerate(outputs) if word.startswith("+")]
    return ",".join([*(word.replace("+", "=", 1) for word in outputs), *inputs, *tied, *clobbers])
