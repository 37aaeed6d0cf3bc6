"""Colours PTX and SASS with Pygments, as runs of (class, text). Templates and scripts escape the text as usual.

Pygments' own PTX lexer splits `cvt.rn.f16.f32` after `cvt`, marks a guard's `@` as an error and lacks hexadecimal
floats; for SASS it has no lexer. So both are defined here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

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
    found: list[list[str]] = []
    for token, text in _LEXERS[language].get_tokens(line):
        name = _class(token)
        if found and (found[-1][0] == name or text.isspace()):
            found[-1][1] += text
        else:
            found.append([name, text])
    return tuple((name, text) for name, text in found)


def _class(token: Any) -> str:
    while token is not Token:
        if token in CLASSES:
            return CLASSES[token]
        token = token.parent
    return ""
