"""Colours PTX and SASS, and Python with Pygments, as runs of (class, text). Templates and scripts escape the text.

Pygments' own PTX lexer splits `cvt.rn.f16.f32` after `cvt`, marks a guard's `@` as an error and lacks hexadecimal
floats; for SASS it has no lexer. So both are defined here, as one expression a state: Pygments tries a state's
expressions one by one, which takes twice as long, and the texts of a page have a hundred thousand different lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from pygments.lexers.python import PythonLexer
from pygments.token import Comment, Keyword, Name, Number, String, Token

Language = Literal["ptx", "sass", "python"]
Span = tuple[str, str]

# Pygments' token types to class names of the style sheet. Other tokens are plain text.
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


@dataclass(frozen=True)
class _State:
    """What a lexer looks for: alternatives in order, the first that matches counts.

    classes: by the number of an alternative's last group, the classes of its groups. after: the state behind a match of
    that group, if it is another one.
    """

    pattern: re.Pattern[str]
    classes: Mapping[int, tuple[str, ...]]
    after: Mapping[int, str]


def _state(*alternatives: tuple[str, str, str] | tuple[str, str]) -> _State:
    """A state of alternatives: an expression whose groups have the classes of a word's letters, and the state after it.

    An expression of one class needs no group. The letter `-` is plain text. Letters and digits are those of ASCII, as
    in the page's script.
    """
    parts: list[str] = []
    classes: dict[int, tuple[str, ...]] = {}
    after: dict[int, str] = {}
    groups = 0
    for expression, letters, *following in alternatives:
        parts.append(expression if len(letters) > 1 else f"({expression})")
        groups += len(letters)
        classes[groups] = tuple(letter.replace("-", "") for letter in letters)
        if following:
            after[groups] = following[0]
    return _State(re.compile("|".join(parts), re.ASCII), classes, after)


_ANY = ((r"\s+", "-"), (r"//.*", "c"), (r"/\*.*?\*/", "c"), (r'"[^"]*"', "s"))

# One line of PTX, or of asm text with its `$0` operands, and one line of SASS as nvdisasm prints it.
_STATES: dict[str, dict[str, _State]] = {
    "ptx": {
        "": _state(
            *_ANY,
            (r"@!?[%$]?\w+", "g"),
            (r"[$\w]+\s*:(?!:)", "l"),
            (r"([a-z]\w*)((?:(?:\.|::)\w+)*)", "kt", "operands"),
            (r"\.\w+(?:::\w+)*", "d", "operands"),
            (r".", "-"),
        ),
        "operands": _state(
            (r";", "-", ""),
            *_ANY,
            (r"\.\w+(?:::\w+)*", "d"),
            (r"0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|0[xX][0-9a-fA-F]+U?|0[bB][01]+U?", "n"),
            (r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?U?", "n"),
            (r"\$\$?L?_\w+", "l"),
            (r"[%$]?\w+(?:\.[xyzw]\b)?", "v"),
            (r".", "-"),
        ),
    },
    "sass": {
        "": _state(
            (r"\s+", "-"),
            (r"/\*.*?\*/", "c"),
            (r"@!?U?P\w+", "g"),
            (r"\.L_\w+:?|`\([^)]*\)", "l"),
            (r"\b(?:U?R(?:\d+|Z)|U?P(?:\d+|T)|B\d+|SR_[\w.]+)\b", "v"),
            (r"[-+]?0x[0-9a-fA-F]+|[-+]?\d+(?:\.\d+)?(?:e[+-]?\d+)?", "n"),
            (r"([A-Z][A-Z0-9_]*)((?:\.\w+)*)", "kt"),
            (r"\w+", "-"),
            (r".", "-"),
        ),
    },
}


def states() -> dict[str, dict[str, list[Any]]]:
    """The states of PTX and SASS for a page's script (`assets/colours.js`), which colours lines when it shows them:
    the expression, and classes and the next state by the number of a group."""
    return {
        language: {name: [s.pattern.pattern, s.classes, s.after] for name, s in of_language.items()}
        for language, of_language in _STATES.items()
    }


_PYTHON: Any = PythonLexer(stripnl=False, ensurenl=False)


@lru_cache(maxsize=200_000)
def runs(line: str, language: Language) -> tuple[Span, ...]:
    """One line as runs of one class each. Neighbours of the same class are joined; all texts together are the line."""
    spans: list[list[str]] = []
    for name, text in _python(line) if language == "python" else _tokens(line, _STATES[language]):
        if spans and (spans[-1][0] == name or text.isspace()):
            spans[-1][1] += text
        else:
            spans.append([name, text])
    return tuple((name, text) for name, text in spans)


def _tokens(line: str, states: Mapping[str, _State]) -> Iterator[Span]:
    """The tokens of a line that is no Python. Every state takes any character, but no end of a line."""
    state, position = states[""], 0
    while match := state.pattern.match(line, position):
        position = match.end()
        group = match.lastindex or 0
        names = state.classes[group]
        if len(names) == 1:
            yield names[0], match[0]
        else:
            texts = match.groups()[group - len(names) : group]
            yield from ((name, text) for name, text in zip(names, texts, strict=True) if text)
        if group in state.after:
            state = states[state.after[group]]


def _python(line: str) -> Iterator[Span]:
    return ((_class(token), text) for token, text in _PYTHON.get_tokens(line))


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


_REMARK = re.compile(r"\s*// (?:@|-- |%bb).*")
_BLANKS = re.compile(r"[ \t]+")


def _tidy(raw: str) -> str:
    code = (_REMARK.sub("", raw) if "// " in raw else raw).rstrip()
    indent = "    " if code[:1].isspace() else ""
    return indent + _BLANKS.sub(" ", code.strip())


_SASS_LINE = re.compile(r'//## File "\.nv_debug_ptx_txt[^"]*", line (?P<line>\d+)')
_SASS_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+")
_SASS_LABEL = re.compile(r"(\.L_\w+):$")


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
    text = raw.strip()  # nvdisasm writes up to a hundred spaces first
    if m := _SASS_LINE.match(text):
        return int(m["line"]), "", ""
    if m := _SASS_CODE.match(text):
        code = text[m.end() :]
        if code.endswith("*/"):  # the word itself, in hexadecimal
            code = code.partition("/*")[0]
        return None, _tidy_sass(code), ""
    return None, "", f"{m[1]}:" if (m := _SASS_LABEL.match(text)) else ""


def _tidy_sass(code: str) -> str:
    text = code.rstrip(" ;").rstrip()
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
