"""String literals with the place of every character in the file: prefixes, escapes, f-strings, adjacent pieces."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class File:
    """A source file: its path as it was given, its text, and where its lines begin."""

    path: str
    text: str

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset of each line. Lines end at a newline alone, as Python's parser counts them."""
        return (0, *(found.end() for found in re.finditer("\n", self.text)))

    def offset(self, line: int, column: int) -> int:
        """The offset of a place that `ast` gives: line from 1, column in bytes of UTF-8."""
        start = self.starts[line - 1] if line <= len(self.starts) else len(self.text)
        head = self.text[start : start + column]
        if head.isascii():
            return start + column
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return start + len(self.text[start:end].encode("utf-8", "surrogatepass")[:column].decode("utf-8", "ignore"))

    def place(self, offset: int) -> tuple[int, int]:
        """Line and column, from 1, of an offset."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def span(self, node: ast.expr) -> tuple[int, int]:
        """The offsets at which an expression begins and ends."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_column)


_PIECE = re.compile(r"([A-Za-z]{0,3})('''|\"\"\"|'|\")")
_SPACE = re.compile(r"(?:[\s()\\]|#[^\n]*)+")
ESCAPE = re.compile(r"\\(?:\n|[0-7]{1,3}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|N\{[^}]*\}|.)", re.DOTALL)
_SIMPLE = {
    "\n": "", "\\": "\\", "'": "'", '"': '"', "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
    "v": "\v",
}  # fmt: skip

Char = tuple[str, int]
"""A character of the text and its offset in the file; an empty one stands for a formatted value of an f-string."""


def characters(file: File, node: ast.Constant | ast.JoinedStr) -> list[Char]:
    """The characters of a string literal; in an f-string, an empty character for each value in braces."""
    start, end = file.span(node)
    found: list[Char] = []
    at = start
    while at < end:
        if space := _SPACE.match(file.text, at, end):
            at = space.end()
            continue
        piece = _PIECE.match(file.text, at, end)
        if piece is None:
            break
        prefix, quote = piece[1].lower(), piece[2]
        at = _body(file.text, piece.end(), end, quote, "r" in prefix, "f" in prefix, found) + len(quote)
    return found


def _body(text: str, at: int, end: int, quote: str, raw: bool, formatted: bool, found: list[Char]) -> int:
    """Append the characters of one piece; return where its closing quote stands."""
    while at < end and not text.startswith(quote, at):
        here = text[at]
        if here == "\\" and not raw and (escape := ESCAPE.match(text, at)):
            found += [(char, at) for char in escaped(escape[0])]
            at = escape.end()
        elif here == "\\" and raw and at + 1 < end:
            found += [(here, at), (text[at + 1], at + 1)]
            at += 2
        elif formatted and here in "{}":
            if text[at + 1] == here:
                found.append((here, at))
                at += 2
            else:
                found.append(("", at))
                at = _after_value(text, at, end)
        else:
            found.append((here, at))
            at += 1
    return at


def escaped(escape: str) -> str:
    """The characters that an escape sequence stands for; itself if it is no escape sequence."""
    body = escape[1:]
    if body in _SIMPLE:
        return _SIMPLE[body]
    if body[0] in "01234567":
        return chr(int(body, 8))
    if body[0] in "xuU" and len(body) > 1:
        return chr(int(body[1:], 16))
    if body.startswith("N{"):
        import unicodedata

        try:
            return unicodedata.lookup(body[2:-1])
        except KeyError:
            return "?"
    return escape


def _after_value(text: str, at: int, end: int) -> int:
    """The offset after the `}` that closes the value whose `{` stands at `at`."""
    depth = 0
    while at < end:
        here = text[at]
        if here in "([{":
            depth += 1
        elif here in ")]}":
            depth -= 1
            if depth == 0:
                return at + 1
        elif here in "'\"":
            quote = next(q for q in ('"""', "'''", here) if text.startswith(q, at))
            at = _body(text, at + len(quote), end, quote, False, False, []) + len(quote)
            continue
        at += 1
    return end


def placed(file: File, node: ast.Constant) -> list[int]:
    """For each character of a string constant its offset in the file; the literal's offset if they cannot be
    matched."""
    chars = characters(file, node)
    if "".join(c for c, _ in chars) == node.value:
        return [at for _, at in chars]
    return [-1] * len(str(node.value))


def pieces(file: File, node: ast.JoinedStr) -> Iterator[list[Char] | ast.FormattedValue]:
    """The parts of an f-string in order: characters with their places, and the values between braces.

    If the literal's syntax is not supported, it gives the tree's parts without places.
    """
    values = [v for v in node.values if isinstance(v, ast.FormattedValue)]
    chars = characters(file, node)
    plain = "".join(c for c, _ in chars)
    wanted = "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
    if plain != wanted or sum(c == "" for c, _ in chars) != len(values):
        for value in node.values:
            if isinstance(value, ast.FormattedValue):
                yield value
            elif isinstance(value, ast.Constant):
                yield [(c, -1) for c in str(value.value)]
        return
    run: list[Char] = []
    remaining = iter(values)
    for char, at in chars:
        if char:
            run.append((char, at))
            continue
        if run:
            yield run
        run = []
        yield next(remaining)
    if run:
        yield run
