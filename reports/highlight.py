"""Colours PTX and SASS with Pygments, as runs of (class, text). Templates and scripts escape the text as usual.

Pygments' own PTX lexer splits `cvt.rn.f16.f32` after `cvt`, marks a guard's `@` as an error and lacks hexadecimal
floats; for SASS it has no lexer. So both are defined here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pygments.lexer import RegexLexer, bygroups, include
from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, Punctuation, String, Text, Token

Language = Literal["ptx", "sass", "python"]
Span = tuple[str, str]

# Token types to class names of the style sheet. Other tokens are plain text.
CLASSES = {
    Comment: "c",
    Keyword: "k",
    Keyword.Type: "t",
    Keyword.Declaration: "d",
    Name.Variable: "v",
    Name.Label: "l",
    Name.Decorator: "g",
    Number: "n",
    String: "s",
}


class PtxLexer(RegexLexer):  # type: ignore[misc]
    """One line of PTX, or of the asm text of `tl.inline_asm_elementwise` with its `$0` operands."""

    name = "PTX"
    tokens = {  # noqa: RUF012  (Pygments' protocol)
        "any": [
            (r"\s+", Text),
            (r"//.*", Comment),
            (r"/\*.*?\*/", Comment),
            (r'"[^"]*"', String),
        ],
        "root": [
            include("any"),
            (r"@!?[%$]?\w+", Name.Decorator),
            (r"[$\w]+\s*:(?!:)", Name.Label),
            (r"([a-z]\w*)((?:(?:\.|::)\w+)*)", bygroups(Keyword, Keyword.Type), "operands"),
            (r"\.\w+(?:::\w+)*", Keyword.Declaration, "operands"),
            (r".", Punctuation),
        ],
        "operands": [
            (r";", Punctuation, "#pop"),
            include("any"),
            (r"\.\w+(?:::\w+)*", Keyword.Declaration),
            (r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?", Number),
            (r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?U?", Number),
            (r"\$\$?L?_\w+", Name.Label),
            (r"[%$]?\w+(?:\.[xyzw]\b)?", Name.Variable),
            (r".", Punctuation),
        ],
    }


class SassLexer(RegexLexer):  # type: ignore[misc]
    """One line of machine code as nvdisasm prints it."""

    name = "SASS"
    tokens = {  # noqa: RUF012  (Pygments' protocol)
        "root": [
            (r"\s+", Text),
            (r"/\*.*?\*/", Comment),
            (r"@!?U?P\w+", Name.Decorator),
            (r"\.L_\w+:?|`\([^)]*\)", Name.Label),
            (r"\b(?:U?R(?:\d+|Z)|U?P(?:\d+|T)|B\d+|SR_[\w.]+)\b", Name.Variable),
            (r"[-+]?0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", Number),
            (r"([A-Z][A-Z0-9_]*)((?:\.\w+)*)", bygroups(Keyword, Keyword.Type)),
            (r"\w+", Text),
            (r".", Punctuation),
        ]
    }


_LEXERS: dict[Language, Any] = {
    "ptx": PtxLexer(stripnl=False, ensurenl=False),
    "sass": SassLexer(stripnl=False, ensurenl=False),
    "python": PythonLexer(stripnl=False, ensurenl=False),
}


@lru_cache(maxsize=200_000)
def runs(line: str, language: Language) -> tuple[Span, ...]:
    """One line as runs of one class each. Neighbours of the same class are joined; all texts together are the line."""
    spans: list[list[str]] = []
    for token, text in _LEXERS[language].get_tokens(line):
        name = _class(token)
        if spans and (spans[-1][0] == name or text.isspace()):
            spans[-1][1] += text
        else:
            spans.append([name, text])
    return tuple((name, text) for name, text in spans)


def _class(token: Any) -> str:
    while token is not Token:
        if token in CLASSES:
            return CLASSES[token]
        token = token.parent
    return ""


# Compiled code as the page shows it --------------------------------------------------------------------------------
#
# The lines of PTX and SASS worth reading, the variant's asm in them, matched lines.
#
# The harness puts comments around a variant's asm. Triton puts similar comments around its own loads and stores. PTX
# and SASS are matched only if the disassembly names the PTX line of each instruction (`nvdisasm -gp`).

BEGIN, END = "// ptxdiff:begin", "// ptxdiff:end"
TRITON_BEGIN, TRITON_END = "// begin inline asm", "// end inline asm"

Mark = Literal["", "ours", "triton"]


class Line(NamedTuple):
    """One line shown.

    number: for PTX its line in the file as assembled, for SASS the PTX line it came from; 0 if unknown. mark: "ours"
    for asm that the harness marked, "triton" for asm that Triton wrote itself. invocation: the number of the invocation
    of the variant's asm that the line belongs to, from 1; 0 for all other lines.
    """

    number: int
    text: str
    mark: Mark = ""
    invocation: int = 0


@dataclass(frozen=True)
class Listing:
    """A PTX text and its SASS, as shown; either may be empty."""

    ptx: tuple[Line, ...]
    sass: tuple[Line, ...]

    @property
    def lined_up(self) -> bool:
        """Whether the SASS names the PTX lines that it came from."""
        return any(line.number for line in self.sass)


@lru_cache(maxsize=256)
def listing(ptx: str, sass: str) -> Listing:
    """Both texts as shown. The SASS is marked with the help of the PTX."""
    shown = tuple(ptx_lines(ptx))
    origin = {line.number: line for line in shown}
    unknown = Line(0, "")
    numbered = ((n, text, origin.get(n, unknown)) for n, text in sass_lines(sass))
    return Listing(shown, tuple(Line(n, text, of.mark, of.invocation) for n, text, of in numbered))


_HIDDEN = (".loc\t", ".loc ", "$L__tmp", "$L__func_begin", "$L__func_end")
_TAIL = (".file\t", ".file ", ".section\t", ".section ")


def ptx_lines(ptx: str) -> Iterator[Line]:
    """The lines of PTX worth reading, without line numbers and debug sections. Comments around asm become marks."""
    mark: Mark = ""
    count = 0
    for number, raw in enumerate(ptx.splitlines(), 1):
        kind, text = _ptx_line(raw)
        if kind == "code" or (kind == "comment" and mark == "ours"):
            yield Line(number, text, mark, count if mark == "ours" else 0)
        elif kind == BEGIN:
            mark, count = "ours", count + 1
        elif kind == END:
            mark = ""
        elif kind == TRITON_BEGIN:
            mark = "triton"
        elif kind == "tail":
            return


@lru_cache(maxsize=1 << 16)  # the same lines occur in hundreds of texts of a run
def _ptx_line(raw: str) -> tuple[str, str]:
    """What a line is, and its text as shown: code, comment, tail, hidden, or a mark, which is the comment itself."""
    text = raw.strip()
    if text in (BEGIN, TRITON_BEGIN):
        return text, ""
    if text in (END, TRITON_END):
        return END, ""
    if text.startswith(_TAIL):
        return "tail", ""
    if not text or text.startswith(_HIDDEN):
        return "hidden", ""
    return "comment" if text.startswith("//") else "code", _tidy(raw)


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
    labels: list[str] = []  # a label belongs to the instruction after it
    lines: list[tuple[int, str]] = []
    for raw in sass.splitlines():
        line, code, label = _sass_line(raw)
        if line is not None:
            number = line
        elif code:
            if labels:
                lines += [(number, name) for name in labels]
                labels = []
            lines.append((number, code))
        elif label:
            labels.append(label)
    while lines and lines[-1][1].lstrip().startswith(("NOP", "BRA `(.L_x_", ".L_x_")):
        lines.pop()
    yield from lines


@lru_cache(maxsize=1 << 16)
def _sass_line(raw: str) -> tuple[int | None, str, str]:
    """A line of nvdisasm as one of three: the PTX line of what follows, an instruction as shown, or a label."""
    if m := _SASS_LINE.match(raw):
        return int(m["line"]), "", ""
    if m := _SASS_CODE.match(raw):
        return None, _tidy_sass(m["code"]), ""
    return None, "", f"{m[1]}:" if (m := _SASS_LABEL.match(raw)) else ""


def _tidy_sass(code: str) -> str:
    text = re.sub(r"\s+;?$", "", code.rstrip(" ;"))
    return text if text.startswith("@") else f"    {text}"


@dataclass(frozen=True)
class Excerpt:
    """One invocation of the variant's asm and its SASS. more: the number of other invocations in the same kernel."""

    ptx: tuple[Line, ...]
    sass: tuple[Line, ...]
    more: int


def excerpt(found: Listing) -> Excerpt | None:
    """The first invocation of the variant's asm in a listing; None if there is none."""
    last = max((line.invocation for line in found.ptx), default=0)
    if not last:
        return None
    first = min(line.invocation for line in found.ptx if line.invocation)
    ptx, sass = (tuple(line for line in lines if line.invocation == first) for lines in (found.ptx, found.sass))
    return Excerpt(ptx, sass, last - first)
