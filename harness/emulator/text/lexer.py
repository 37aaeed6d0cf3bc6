"""Split PTX text into tokens. A token is a tuple (kind, text, offset); offsets are those in the expanded text.

A kind is the word for a class (`name`, `dot`, `int`, `float`, `string`) or, for punctuation, the text itself. `dot` is
a directive or modifier with its leading dot. Debug sections are skipped.
"""

from __future__ import annotations

import re

from ptxdiff.emulator.errors import ParseError, TooLarge
from ptxdiff.emulator.limits import NAME, TOKENS
from ptxdiff.emulator.text.nodes import Source

Token = tuple[str, str, int]

OPERAND = "\x01"
"""Marks an operand of inline asm in expanded text: `\\x01` and its number, which no PTX text can contain."""

WARP_SIZE = "WARP_SZ"
"""The only integer constant with a name."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*|/\*.*?\*/)
  | (?P<warp>WARP_SZ(?![A-Za-z0-9_$]))
  | (?P<name>[A-Za-z][A-Za-z0-9_$]*|[_$%\x01][A-Za-z0-9_$]+)
  | (?P<op>::|&&|\|\||==|!=|<=|>=|<<|>>|[{}()\[\],;:|@!+\-*%<>=?~^&]|/(?!\*))
  | (?P<dot>\.(?:[1-5]d\b|\d+x\d+b(?:x\d)?\b|sp::\d+:\d+|[A-Za-z_][A-Za-z0-9_$]*(?:::[A-Za-z0-9_]+)*))
  | (?P<float>0[fF][0-9A-Fa-f]{8}(?![0-9A-Za-z_$])|0[dD][0-9A-Fa-f]{16}(?![0-9A-Za-z_$])
             |(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
  | (?P<int>0[xX][0-9A-Fa-f]+U?|0[bB][01]+U?|0[0-7]*U?|[1-9]\d*U?)
  | (?P<string>"(?:[^"\\]|\\.)*")
  | (?P<sink>_)
  | (?P<unreadable>.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)

_SECTION = re.compile(r"\.section\s+[^\s{]+\s*\{[^{}]*\}")


def tokenize(source: Source, text: str) -> list[Token]:
    """All tokens of `text` (the expanded form of `source`), ending with one of kind `end`.

    Raises ParseError for a character or number that is not PTX, and TooLarge for a text beyond the limits.
    """
    tokens: list[Token] = []
    append = tokens.append
    longest, most = NAME.most, TOKENS.most
    at, end = 0, len(text)
    glued = -1
    while at < end:
        for match in _TOKEN.finditer(text, at):
            at, after = match.span()
            kind = match.lastgroup or ""
            if kind == "space":
                glued = -1
                continue
            word = match[0]
            if kind == "op":
                append((word, word, at))
            elif kind == "unreadable":
                raise _unreadable(source, text, at)
            elif word == ".section" and (section := _SECTION.match(text, at)):
                at = section.end()
                break
            else:
                kind = "int" if kind == "warp" else kind
                if kind in ("name", "int", "float"):
                    if glued == at:
                        raise source.error(ParseError, f"unexpected {_shown(word)!r} directly after a number", at)
                    if OPERAND in word[1:]:
                        raise source.error(ParseError, "an asm operand is glued to a name", at)
                    glued = after if kind != "name" else -1
                append((kind, word, at))
                if after - at > longest and kind != "string":
                    raise source.error(TooLarge, NAME.refusal(after - at), at)
            if len(tokens) > most:
                raise source.error(TooLarge, TOKENS.refusal(len(tokens)), at)
        else:
            at = end
    append(("end", "", end))
    return tokens


def _shown(word: str) -> str:
    return word.replace(OPERAND, "$")


def _unreadable(source: Source, text: str, at: int) -> ParseError:
    if text.startswith("/*", at):
        return source.error(ParseError, "this /* comment is never closed", at)
    if text[at] == '"':
        return source.error(ParseError, "this string is never closed", at)
    if text[at] == ".":
        return source.error(ParseError, "a '.' must be followed by a modifier or a directive", at)
    return source.error(ParseError, f"unexpected character {text[at]!r}", at)
