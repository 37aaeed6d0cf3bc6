"""Facts from the text of PTX: its code without debug information, the inline asm in it, the author's lines.

Nothing here parses PTX; `ptxdiff.emulator` does.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

BEGIN = "// ptxdiff:begin"
END = "// ptxdiff:end"

_LOC = re.compile(r"\s*\.loc\b")
_DEBUG_LABEL = re.compile(r"\$L__(?:tmp|func_begin|func_end)\w*:")
_COMMENT = re.compile(r"//.*")
# Whichever begins first counts: `/*` means nothing in a line comment, and neither begins a comment in a string.
_ANY_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:[^"\\\n]|\\.)*")', re.S)


def marked(asm: str) -> str:
    """The asm text between two comments that mark it in the PTX."""
    return f"{BEGIN}\n{asm}\n{END}"


def without_comments(ptx: str) -> str:
    """The PTX with a space in place of each comment."""
    return _ANY_COMMENT.sub(lambda found: found[1] or " ", ptx)


def body(ptx: str) -> str:
    """The code of the PTX without header, comments, line numbers, debug labels and sections, with single spaces."""
    code = without_comments(ptx)
    end = code.find("\n\t.file")
    lines = []
    for line in code[: end if end >= 0 else None].splitlines():
        text = " ".join(line.split())
        if text and not _LOC.match(text) and not _DEBUG_LABEL.fullmatch(text):
            lines.append(text)
    return "\n".join(line for line in lines if not line.startswith((".version", ".target")))


def body_hash(ptx: str) -> str:
    """SHA-256 of `body`, in hexadecimal."""
    return hashlib.sha256(body(ptx).encode()).hexdigest()


@dataclass(frozen=True)
class AsmLine:
    """A line of PTX traced to inline asm.

    number: the line within the author's asm text, from 1. text: that line, with its operands. ours: whether the harness
    marked the asm; other asm comes from Triton or a user's function. call: `file:line` of the Python call that the
    block comes from; "" if the PTX does not have it.
    """

    number: int
    text: str
    ours: bool
    call: str = ""


_PLACE = re.compile(r"\s*\.loc\s+(?P<file>\d+)\s+(?P<line>\d+)")
_FILE = re.compile(r'^\s*\.file\s+(?P<file>\d+)\s+"(?P<name>[^"]+)"', re.M)


def asm_line(ptx: str, line: int) -> AsmLine | None:
    """Trace line `line` (from 1) of the PTX to the asm block around it; None if it is in no block."""
    number, ours, block = 0, False, False
    location = call = None  # of the latest .loc, and of the block
    for index, text in enumerate(ptx.splitlines(), 1):
        mark = text.strip()
        if mark in ("// begin inline asm", BEGIN):
            call = call if block else location
            number, block, ours = 0, True, mark == BEGIN
        elif mark in ("// end inline asm", END):
            block = ours = False
        elif location_match := _PLACE.match(text):  # Triton 3.9 puts .loc directives between the lines of asm
            location = location_match
        elif block:
            number += 1
        if index == line:
            return AsmLine(max(number, 1), mark, ours, _called(ptx, call)) if block else None
    return None


def _called(ptx: str, place: re.Match[str] | None) -> str:
    """`file:line` of a .loc; "" without one, or if the PTX does not name the file."""
    names = {m["file"]: m["name"] for m in _FILE.finditer(ptx)}
    return f"{names[place['file']]}:{place['line']}" if place and place["file"] in names else ""


def blamed_line(ptx: str, line: int) -> int:
    """The line at fault for a syntax error reported in `line`: the line before, if that does not end a statement."""
    lines = ptx.splitlines()
    for index in range(min(line, len(lines) + 1) - 1, 0, -1):
        code = _COMMENT.sub("", lines[index - 1]).strip()
        if code and not _LOC.match(code):
            return line if code[-1] in ";{}:" else index
    return line


_NAMED = re.compile(r'^\s*\.file\s+\d+\s+"((?:[^"\\]|\\.)*)"', re.M)


def files_named(ptx: str) -> dict[str, str]:
    """The source files that PTX names, with digests of their present contents."""
    return {name: _digest(name) for name in _NAMED.findall(ptx)}


def _digest(path: str) -> str:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""
