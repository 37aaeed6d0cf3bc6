"""Token cursor and constant expressions of the PTX parser (ISA 4.5).

Integer constants are 64 bits wide, signed unless marked U or too large for it; floating-point constants are
doubles. ptxas folds arithmetic on both.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from .errors import ParseError
from .lexer import OPERAND, Token
from .nodes import Immediate, Source

Number = int | float

_LEVELS: list[dict[str, Callable[[Number, Number], Number]]] = [
    {"||": lambda a, b: int(bool(a) or bool(b))},
    {"&&": lambda a, b: int(bool(a) and bool(b))},
    {"|": lambda a, b: _whole(a) | _whole(b)},
    {"^": lambda a, b: _whole(a) ^ _whole(b)},
    {"&": lambda a, b: _whole(a) & _whole(b)},
    {"==": lambda a, b: int(a == b), "!=": lambda a, b: int(a != b)},
    {
        "<": lambda a, b: int(a < b),
        ">": lambda a, b: int(a > b),
        "<=": lambda a, b: int(a <= b),
        ">=": lambda a, b: int(a >= b),
    },
    {"<<": lambda a, b: _whole(a) << (_whole(b) & 63), ">>": lambda a, b: _whole(a) >> (_whole(b) & 63)},
    {"+": lambda a, b: a + b, "-": lambda a, b: a - b},
    {"*": lambda a, b: a * b, "/": lambda a, b: _divide(a, b), "%": lambda a, b: _remainder(a, b)},
]
"""Binary operators from the loosest level to the tightest."""


def _whole(value: Number) -> int:
    if isinstance(value, float):
        raise ArithmeticError("bit operators need integers")
    return value


def _divide(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: Number, b: Number) -> Number:
    a, b = _whole(a), _whole(b)
    return a - int(_divide(a, b)) * b


def _wrap(value: Number) -> Number:
    """An integer result in 64 bits: kept if it fits either way, else two's complement."""
    if isinstance(value, float) or -(1 << 63) <= value < 1 << 64:
        return value
    return value & 0xFFFFFFFFFFFFFFFF


class ConstantExpressions:
    """A cursor over tokens that can read a constant expression."""

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    @property
    def kind(self) -> str:
        """The kind of the next token."""
        return self.tokens[self.at][0]

    @property
    def text(self) -> str:
        """The text of the next token."""
        return self.tokens[self.at][1]

    @property
    def offset(self) -> int:
        """Where the next token stands."""
        return self.tokens[self.at][2]

    def advance(self) -> None:
        """Step over one token; the end is never passed."""
        if self.at < len(self.tokens) - 1:
            self.at += 1

    def accept(self, kind: str) -> bool:
        """Step over the next token if it is of this kind."""
        if self.tokens[self.at][0] == kind:
            self.at += 1
            return True
        return False

    def expect(self, kind: str, what: str) -> None:
        """Step over a token of this kind, or raise ParseError saying that `what` was expected."""
        if not self.accept(kind):
            raise self.unexpected(what)

    def take(self, kind: str, what: str) -> str:
        """The text of the next token, which must be of this kind."""
        text = self.text
        self.expect(kind, what)
        return text

    def error(self, message: str) -> ParseError:
        """A ParseError at the next token."""
        return self.source.error(ParseError, message, self.offset)

    def unexpected(self, wanted: str) -> ParseError:
        """A ParseError: `wanted` was expected, something else was found."""
        found = "the end of the text" if self.kind == "end" else repr(self.text.replace(OPERAND, "$"))
        return self.error(f"expected {wanted}, found {found}")

    def integer(self, what: str) -> int:
        """A plain integer literal."""
        offset = self.offset
        try:
            return _integer(self.take("int", what))
        except ValueError as problem:
            raise self.source.error(ParseError, f"{what}: {problem}", offset) from None

    def constant(self) -> Immediate:
        """A constant expression. Raises ParseError when it has no value."""
        start = self.at
        offset = self.offset
        try:
            value = _wrap(self.ternary())
        except (ArithmeticError, ValueError) as problem:
            raise self.source.error(ParseError, f"constant expression: {problem}", offset) from None
        node = Immediate(value, offset)
        if self.at == start + 1 and self.tokens[start][0] == "float":
            word = self.tokens[start][1]
            if word[1:2] in "fF":
                node.single = int(word[2:], 16)
            elif word[1:2] in "dD":
                node.double = int(word[2:], 16)
        return node

    def ternary(self) -> Number:
        """`condition ? a : b`"""
        self.depth += 1
        if self.depth > 100:
            raise self.error("the constant expression is nested too deeply")
        value = self.binary(0)
        if self.accept("?"):
            yes = self.ternary()
            self.expect(":", "':' of '?:'")
            no = self.ternary()
            value = yes if value else no
        self.depth -= 1
        return value

    def binary(self, level: int) -> Number:
        """Operators of `_LEVELS[level]` and tighter, left associative."""
        if level == len(_LEVELS):
            return self.unary()
        value = self.binary(level + 1)
        operators = _LEVELS[level]
        while (operator := operators.get(self.kind)) is not None:
            if self.kind == "|" and self.tokens[self.at + 1][0] == "name":
                break
            self.advance()
            value = _wrap(operator(value, self.binary(level + 1)))
        return value

    def unary(self) -> Number:
        """Signs, complements, casts, parentheses and literals."""
        kind, text = self.kind, self.text
        if kind in ("-", "+", "~", "!"):
            return self.signed(kind)
        if kind == "(":
            self.advance()
            cast = self.take("dot", "a type") if self.kind == "dot" else ""
            if cast:
                self.expect(")", "')' after the type of a cast")
                return self.cast(cast)
            value = self.ternary()
            self.expect(")", "')'")
            return value
        self.advance()
        if kind == "int":
            return _integer(text)
        if kind == "float":
            return _float(text)
        self.at -= 1
        raise self.unexpected("a constant")

    def signed(self, sign: str) -> Number:
        """What follows a prefix operator."""
        self.advance()
        if self.kind == "float" and self.text[:2].lower() in ("0f", "0d"):
            raise self.error(f"a hexadecimal float takes no {sign!r} before it")
        self.depth += 1
        if self.depth > 100:
            raise self.error("the constant expression is nested too deeply")
        value = self.unary()
        self.depth -= 1
        if sign == "!":
            return int(not value)
        if sign == "~":
            return ~_whole(value)
        return -value if sign == "-" else value

    def cast(self, kind: str) -> Number:
        """`(.s64)` or `(.u64)` and the value after it."""
        value = self.unary()
        if kind not in (".s64", ".u64"):
            raise self.error(f"a constant can be cast to .s64 or .u64, not {kind}")
        bits = int(value) & 0xFFFFFFFFFFFFFFFF
        return bits - (1 << 64) if kind == ".s64" and bits >> 63 else bits


def _integer(text: str) -> int:
    text = text.rstrip("U")
    head = text[:2].lower()
    if head == "0x":
        value = int(text[2:], 16)
    elif head == "0b":
        value = int(text[2:], 2)
    elif text[0] == "0" and len(text) > 1:
        value = int(text, 8)
    else:
        value = int(text)
    return value & 0xFFFFFFFFFFFFFFFF


def _float(text: str) -> float:
    head = text[:2].lower()
    if head == "0f":
        return float(struct.unpack("<f", int(text[2:], 16).to_bytes(4, "little"))[0])
    if head == "0d":
        return float(struct.unpack("<d", int(text[2:], 16).to_bytes(8, "little"))[0])
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise OverflowError(f"{text} overflows a double")
    return value
