"""Compiled code made readable: what of PTX and SASS is shown, which of it is our asm, and how the two line up.

The harness brackets its asm with comments; Triton brackets its own loads and stores as inline asm in the same way.
Where the disassembly names the PTX line behind each instruction (`nvdisasm -gp`), the two are lined up by that; where
it does not, no claim is made.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

BEGIN, END = "// ptxdiff:begin", "// ptxdiff:end"
TRITON_BEGIN, TRITON_END = "// begin inline asm", "// end inline asm"

Mark = Literal["", "ours", "triton"]


class Line(NamedTuple):
    """One line shown.

    number: for PTX its line in the file as assembled, for SASS the PTX line it came from; 0 where unknown.
    mark: "ours" for asm that the harness marked, "triton" for asm that Triton wrote itself.
    invocation: which of the kernel's invocations of our asm the line belongs to, from 1; 0 for all other lines.
    """

    number: int
    text: str
    mark: Mark = ""
    invocation: int = 0


@dataclass(frozen=True)
class Listing:
    """A PTX and the SASS it became, as shown; either may be empty."""

    ptx: tuple[Line, ...]
    sass: tuple[Line, ...]

    @property
    def lined_up(self) -> bool:
        """Whether the SASS says which PTX it came from."""
        return any(line.number for line in self.sass)


@lru_cache(maxsize=256)
def listing(ptx: str, sass: str) -> Listing:
    """Both texts as shown, the SASS marked by way of the PTX."""
    shown = tuple(ptx_lines(ptx))
    origin = {line.number: line for line in shown}
    unknown = Line(0, "")
    found = ((n, text, origin.get(n, unknown)) for n, text in sass_lines(sass))
    return Listing(shown, tuple(Line(n, text, of.mark, of.invocation) for n, text, of in found))


_HIDDEN = (".loc\t", ".loc ", "$L__tmp", "$L__func_begin", "$L__func_end")
_TAIL = (".file\t", ".file ", ".section\t", ".section ")


def ptx_lines(ptx: str) -> Iterator[Line]:
    """The lines of PTX worth reading: the asm's brackets become marks; line numbers and debug sections are left out."""
    mark: Mark = ""
    count = 0
    for number, raw in enumerate(ptx.splitlines(), 1):
        text = raw.strip()
        if text == BEGIN:
            mark, count = "ours", count + 1
        elif text in (END, TRITON_END):
            mark = ""
        elif text == TRITON_BEGIN:
            mark = "triton"
        elif text.startswith(_TAIL):
            return
        elif text and not text.startswith(_HIDDEN) and (mark == "ours" or not text.startswith("//")):
            yield Line(number, _tidy(raw), mark, count if mark == "ours" else 0)


@lru_cache(maxsize=1 << 16)
def _tidy(raw: str) -> str:
    code = re.sub(r"\s*// (?:@|-- |%bb).*", "", raw).rstrip()
    indent = "    " if code[:1].isspace() else ""
    return indent + re.sub(r"[ \t]+", " ", code.strip())


_SASS_LINE = re.compile(r'\s*//## File "\.nv_debug_ptx_txt[^"]*", line (?P<line>\d+)')
_SASS_CODE = re.compile(r"\s*/\*[0-9a-f]{4,}\*/\s+(?P<code>.*?)\s*(?:/\*.*\*/)?\s*$")
_SASS_LABEL = re.compile(r"\s*(\.L_\w+):\s*$")


def sass_lines(sass: str) -> Iterator[tuple[int, str]]:
    """The instructions and labels of SASS, each with the PTX line it came from (0: unknown), without the padding."""
    number = 0
    labels: list[str] = []  # a label belongs to the instruction behind it
    found: list[tuple[int, str]] = []
    for raw in sass.splitlines():
        if m := _SASS_LINE.match(raw):
            number = int(m["line"])
        elif m := _SASS_CODE.match(raw):
            found += [(number, label) for label in labels]
            found.append((number, _tidy_sass(m["code"])))
            labels = []
        elif m := _SASS_LABEL.match(raw):
            labels.append(f"{m[1]}:")
    while found and found[-1][1].lstrip().startswith(("NOP", "BRA `(.L_x_", ".L_x_")):
        found.pop()
    yield from found


@lru_cache(maxsize=1 << 16)
def _tidy_sass(code: str) -> str:
    text = re.sub(r"\s+;?$", "", code.rstrip(" ;"))
    return text if text.startswith("@") else f"    {text}"


@dataclass(frozen=True)
class Excerpt:
    """One invocation of our asm and the SASS it became; `more` other invocations stand in the same kernel."""

    ptx: tuple[Line, ...]
    sass: tuple[Line, ...]
    more: int


def excerpt(found: Listing) -> Excerpt | None:
    """The first invocation of our asm in a listing; None where there is none."""
    last = max((line.invocation for line in found.ptx), default=0)
    if not last:
        return None
    first = min(line.invocation for line in found.ptx if line.invocation)
    ptx, sass = (tuple(line for line in lines if line.invocation == first) for lines in (found.ptx, found.sass))
    return Excerpt(ptx, sass, last - first)
