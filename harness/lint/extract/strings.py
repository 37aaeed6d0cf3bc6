"""Operations on strings that keep the place of every character."""

from __future__ import annotations

import ast
import re
import string
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ptxdiff.lint.extract.values import TextValue, Unknown, Value, native, unresolved

MOST = 200_000
"""The most characters of a text; longer texts are not hand-written asm."""


def joined(separator: TextValue, parts: Value) -> Value:
    """`separator.join(parts)`."""
    if not isinstance(parts, (list, tuple)):
        return Unknown("join of a sequence that is not known")
    if unknown := unresolved(*parts):
        return unknown
    if not all(isinstance(p, TextValue) for p in parts):
        return Unknown("join of what is no string")
    value = separator.value.join(p.value for p in parts)
    offsets: list[int] = []
    for n, part in enumerate(parts):
        offsets += [*(separator.offsets if n else ()), *part.offsets]
    return TextValue(value, tuple(offsets))


def replaced(text: TextValue, old: str, new: TextValue, count: int = -1) -> TextValue:
    """`text.replace(old, new)`."""
    if not old:
        return TextValue.plain(text.value.replace(old, new.value, count))
    parts: list[TextValue] = []
    at = 0
    while count != 0 and (start := text.value.find(old, at)) >= 0:
        parts += text.part(at, start), new
        at = start + len(old)
        count -= 1
    parts.append(text.part(at, len(text.value)))
    return _concatenated(parts)


def _concatenated(parts: Sequence[TextValue]) -> TextValue:
    return TextValue("".join(p.value for p in parts), tuple(at for p in parts for at in p.offsets))


def dedented(text: TextValue) -> TextValue:
    """`textwrap.dedent(text)`."""
    import textwrap

    wanted = textwrap.dedent(text.value).split("\n")
    parts: list[TextValue] = []
    at = 0
    for n, (line, new) in enumerate(zip(text.value.split("\n"), wanted, strict=True)):
        end = at + len(line)
        parts += [text.part(at - 1, at)] if n else []
        parts.append(text.part(end - len(new), end) if line.endswith(new) else TextValue.plain(new))
        at = end + 1
    return _concatenated(parts)


def formatted(value: Value, conversion: int = -1, spec: str = "") -> Value:
    """One value between the braces of an f-string or of `str.format`."""
    if isinstance(value, Unknown):
        return value
    if isinstance(value, TextValue) and conversion == -1 and not spec:
        return value
    plain = native(value)
    if not isinstance(plain, (str, int, float, bool, type(None))):
        return Unknown("a formatted value that is neither a string nor a number")
    try:
        shown = repr(plain) if conversion == ord("r") else str(plain) if conversion == ord("s") else plain
        return TextValue.plain(format(shown, spec))
    except (ValueError, TypeError):
        return Unknown(f"a value that does not take the format {spec!r}")


def brace_format(text: TextValue, args: Sequence[Value], keywords: dict[str, Value]) -> Value:
    """`text.format(*args, **keywords)`."""
    parts: list[TextValue] = []
    at = automatic = 0
    try:
        fields = list(string.Formatter().parse(text.value))
    except ValueError as error:
        return Unknown(f"a format string that is wrong: {error}")
    for literal, name, spec, conversion in fields:
        for char in literal:
            brace = text.value.index(char, at)
            parts.append(text.part(brace, brace + 1))
            at = brace + 1
        if literal[-1:] in "{}" and literal:
            at += 1
        if name is None:
            continue
        at = text.value.index("}", text.value.index("{", at)) + 1
        if name == "":
            name, automatic = str(automatic), automatic + 1
        value = _field(name, args, keywords)
        shown = formatted(value, ord(conversion) if conversion else -1, spec or "")
        if not isinstance(shown, TextValue):
            return shown
        parts.append(shown)
    return _concatenated(parts)


def _field(name: str, args: Sequence[Value], keywords: dict[str, Value]) -> Value:
    if name.isdigit():
        return args[int(name)] if int(name) < len(args) else Unknown(f"format has no argument {name}")
    return keywords.get(name, Unknown(f"format has no argument {name}"))


_PERCENT = re.compile(r"%(?:\((\w+)\))?([-#0 +]*\d*(?:\.\d+)?)([sdixXrc%])")


def percent_format(text: TextValue, values: Value) -> Value:
    """`text % values`. A `%` that begins no conversion makes the result unknown, because Python would raise."""
    if isinstance(values, Unknown):
        return values
    rest = list(values) if isinstance(values, tuple) else [values]
    parts: list[TextValue] = []
    at = 0
    for match in re.finditer("%", text.value):
        if match.start() < at:
            continue
        hole = _PERCENT.match(text.value, match.start())
        if hole is None:
            return Unknown("a % in the text that is no conversion")
        parts.append(text.part(at, hole.start()))
        at = hole.end()
        if hole[3] == "%":
            parts.append(text.part(at - 1, at))
            continue
        value = values.get(hole[1]) if hole[1] and isinstance(values, dict) else rest.pop(0) if rest else None
        if value is None or isinstance(value, Unknown):
            return value or Unknown("too few values for the conversions of a format")
        try:
            parts.append(
                value
                if hole[0] == "%s" and isinstance(value, TextValue)
                else TextValue.plain(f"%{hole[2]}{hole[3]}" % native(value))
            )
        except (TypeError, ValueError):
            return Unknown("a value that does not fit its conversion")
    return _concatenated([*parts, text.part(at, len(text.value))])


def _strip(which: str) -> Callable[..., Value]:
    def method(text: TextValue, chars: TextValue | None = None) -> Value:
        kept = getattr(text.value, which)(chars.value if chars else None)
        start = text.value.find(kept) if which != "rstrip" else 0
        if which == "lstrip":
            start = len(text.value) - len(kept)
        return text.part(start, start + len(kept))

    return method


def _split(text: TextValue, separator: TextValue | None = None, most: int = -1) -> list[TextValue]:
    at = 0
    parts = []
    for piece in text.value.split(separator.value if separator else None, most):
        start = text.value.index(piece, at)
        parts.append(text.part(start, start + len(piece)))
        at = start + len(piece)
    return parts


def _same_length(which: str) -> Callable[..., Value]:
    def method(text: TextValue) -> Value:
        changed = getattr(text.value, which)()
        return TextValue(changed, text.offsets) if len(changed) == len(text.value) else TextValue.plain(changed)

    return method


METHODS: dict[str, Callable[..., Value]] = {
    **{name: _strip(name) for name in ("strip", "lstrip", "rstrip")},
    **{name: _same_length(name) for name in ("lower", "upper")},
    "join": joined,
    "split": _split,
    "replace": lambda text, old, new, count=-1: replaced(text, old.value, new, count),
    "splitlines": lambda text: _split(text, TextValue.plain("\n")),
    "startswith": lambda text, start: text.value.startswith(native(start)),
    "endswith": lambda text, end: text.value.endswith(native(end)),
    "removeprefix": lambda text, p: text.part(len(p.value) if text.value.startswith(p.value) else 0, len(text.value)),
    "removesuffix": lambda text, p: text.part(
        0, len(text.value) - len(p.value) if p.value and text.value.endswith(p.value) else len(text.value)
    ),
    "count": lambda text, what: text.value.count(what.value),
    "find": lambda text, what: text.value.find(what.value),
}
"""The string methods that are evaluated."""


# String literals with the place of every character in the file -----------------------------------------------------
#
# Prefixes, escapes, f-strings, adjacent pieces.


@dataclass(frozen=True)
class File:
    """A source file: its path as it was given, its text, and where its lines begin."""

    path: str
    text: str

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The offset of each line. Lines end at a newline alone, as Python's parser counts them."""
        return (0, *(match.end() for match in re.finditer("\n", self.text)))

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
    chars: list[Char] = []
    at = start
    while at < end:
        if space := _SPACE.match(file.text, at, end):
            at = space.end()
            continue
        piece = _PIECE.match(file.text, at, end)
        if piece is None:
            break
        prefix, quote = piece[1].lower(), piece[2]
        at = _body(file.text, piece.end(), end, quote, "r" in prefix, "f" in prefix, chars) + len(quote)
    return chars


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
