"""Parse operands: names, constants and their expressions, vectors, pairs, addresses."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Sequence

from ptxdiff.emulator.errors import ParseError, TooLarge
from ptxdiff.emulator.limits import NESTING, OPERANDS
from ptxdiff.emulator.text.lexer import OPERAND, WARP_SIZE, Token
from ptxdiff.emulator.text.nodes import Address, Immediate, Name, Operand, Pair, Sink, Source, Vector

# Constant expressions (ISA 4.5), folded as ptxas 12.9 and 13.4 fold them ----------------------------------------------
#
# Integer constants have 64 bits and type .s64, or .u64 if marked U or too large for .s64. Floating-point constants are
# doubles. Integers and doubles do not mix. ptxas departs from the ISA in two ways: `c ? a : b` takes integers only and
# has the type of the chosen operand, and a literal slightly longer than 64 bits loses its upper bits.


class Unsigned(int):
    """An integer constant of type .u64; one of type .s64 is a plain int."""


Number = int | float
"""A constant: int, Unsigned or float."""
Operator = Callable[[Number, Number], Number]

_ONES = (1 << 64) - 1


def _sized(value: int, unsigned: bool) -> int:
    """An integer truncated to 64 bits, as .u64 or .s64."""
    low = value & _ONES
    if unsigned:
        return Unsigned(low)
    return low - (1 << 64) if low >> 63 else low


def _whole(value: Number) -> int:
    if isinstance(value, float):
        raise ArithmeticError("an integer is expected, not a floating-point number")
    return value


def _usual(operation: Callable[..., Number]) -> Operator:
    """An operator on two doubles or on two integers, which are both converted to .u64 if one of them is .u64."""

    def apply(a: Number, b: Number) -> Number:
        if isinstance(a, float) and isinstance(b, float):
            return operation(a, b)
        a, b = _whole(a), _whole(b)
        if isinstance(a, Unsigned) or isinstance(b, Unsigned):
            return _sized(_whole(operation(int(a) & _ONES, int(b) & _ONES)), True)
        return _sized(_whole(operation(a, b)), False)

    return apply


def _on_integers(operation: Callable[[int, int], int]) -> Operator:
    usual = _usual(operation)
    return lambda a, b: usual(_whole(a), _whole(b))


def _compared(operation: Callable[..., bool]) -> Operator:
    """A comparison with the result 0 or 1, a .s64."""
    usual = _usual(operation)
    return lambda a, b: int(usual(a, b))


def _divided(a: Number, b: Number) -> Number:
    if isinstance(a, float):
        return a / b
    a, b = _whole(a), _whole(b)
    quotient = abs(a) // abs(b) if (a < 0) == (b < 0) else -(abs(a) // abs(b))
    if quotient == 1 << 63 and a < 0:
        raise ArithmeticError("the quotient overflows (ptxas crashes on it)")
    return quotient


def _remainder(a: Number, b: Number) -> Number:
    return Unsigned((_whole(a) & _ONES) % (_whole(b) & _ONES))


def _left(a: Number, b: Number) -> Number:
    return _sized(_whole(a) << (_whole(b) & 63), isinstance(a, Unsigned))


def _right(a: Number, b: Number) -> Number:
    return _sized(_whole(a) >> (_whole(b) & 63), isinstance(a, Unsigned))


_BY_LEVEL: list[dict[str, Operator]] = [
    {"||": lambda a, b: int(_whole(a) != 0 or _whole(b) != 0)},
    {"&&": lambda a, b: int(_whole(a) != 0 and _whole(b) != 0)},
    {"|": _on_integers(operator.or_)},
    {"^": _on_integers(operator.xor)},
    {"&": _on_integers(operator.and_)},
    {"==": _compared(operator.eq), "!=": _compared(operator.ne)},
    {
        "<": _compared(operator.lt),
        ">": _compared(operator.gt),
        "<=": _compared(operator.le),
        ">=": _compared(operator.ge),
    },
    {"<<": _left, ">>": _right},
    {"+": _usual(operator.add), "-": _usual(operator.sub)},
    {"*": _usual(operator.mul), "/": _usual(_divided), "%": _remainder},
]
"""Binary operators from the lowest precedence to the highest."""
_BINARY = {sign: (level, apply) for level, signs in enumerate(_BY_LEVEL) for sign, apply in signs.items()}
"""Precedence level and function of each binary operator."""


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
        """The offset of the next token."""
        return self.tokens[self.at][2]

    def advance(self) -> None:
        """Step over one token, but never past the end."""
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
        actual = "the end of the text" if self.kind == "end" else repr(self.text.replace(OPERAND, "$"))
        return self.error(f"expected {wanted}, found {actual}")

    def deeper(self) -> None:
        """Enter one more level of nesting. Raises ParseError if there are too many."""
        self.depth += 1
        if self.depth > NESTING.most:
            raise self.error(f"nested too deeply: more than {NESTING.most} {NESTING.what}")

    def integer(self, what: str) -> int:
        """A plain integer literal."""
        offset = self.offset
        try:
            return int(_integer(self.take("int", what)))
        except (ArithmeticError, ValueError) as problem:
            raise self.source.error(ParseError, f"{what}: {problem}", offset) from None

    def constant(self) -> Immediate:
        """A constant expression. Raises ParseError when it has no value."""
        start = self.at
        offset = self.offset
        try:
            if self.kind == "int" and self.tokens[start + 1][0] in (",", ";", "}", "]"):
                self.advance()
                value: Number = _integer(self.tokens[start][1])
            else:
                value = self.expression()
        except (ArithmeticError, ValueError) as problem:
            raise self.source.error(ParseError, f"constant expression: {problem}", offset) from None
        node = Immediate(value if isinstance(value, float) else int(value), offset)
        if isinstance(value, float):
            _keep_bits(node, self.tokens[start : self.at])
        return node

    def expression(self) -> Number:
        """A constant expression, or a `0f` literal, which cannot be part of a larger expression."""
        if self.kind == "float" and self.text[:2] in ("0f", "0F"):
            self.advance()
            return _float(self.tokens[self.at - 1][1])
        return self.ternary()

    def ternary(self) -> Number:
        """`condition ? a : b`, all of them integers."""
        self.deeper()
        value = self.binary(0)
        if self.accept("?"):
            yes = self.ternary()
            self.expect(":", "':' of '?:'")
            condition, yes, no = map(_whole, (value, yes, self.ternary()))
            value = yes if condition else no
        self.depth -= 1
        return value

    def binary(self, level: int) -> Number:
        """Operators of this level and of higher precedence, left associative."""
        self.deeper()
        value = self.unary()
        while (found := _BINARY.get(self.kind)) is not None and found[0] >= level:
            if self.kind == "|" and self.tokens[self.at + 1][0] == "name":
                break
            self.advance()
            value = found[1](value, self.binary(found[0] + 1))
        self.depth -= 1
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
            value = self.expression()
            self.expect(")", "')'")
            return value
        if kind == "float" and text[:2] in ("0f", "0F"):
            raise self.error(f"{text} cannot be part of an expression; it may only be in parentheses")
        if kind not in ("int", "float"):
            raise self.unexpected("a constant")
        self.advance()
        return _integer(text) if kind == "int" else _float(text)

    def signed(self, sign: str) -> Number:
        """The operand of a prefix operator, with the operator applied."""
        self.advance()
        self.deeper()
        value = self.unary()
        self.depth -= 1
        if sign == "!":
            return int(not _whole(value))
        if sign == "~":
            return Unsigned(~_whole(value) & _ONES)
        if sign == "+":
            return value
        return -value if isinstance(value, float) else _sized(-int(value), isinstance(value, Unsigned))

    def cast(self, kind: str) -> Number:
        """`(.s64)` or `(.u64)` and the value after it."""
        value = self.unary()
        if kind not in (".s64", ".u64"):
            raise self.error(f"a constant can be cast to .s64 or .u64, not {kind}")
        return _sized(_whole(value), kind == ".u64")


def _keep_bits(node: Immediate, tokens: list[Token]) -> None:
    """Record the bits if the constant is one hexadecimal float, apart from parentheses."""
    numbers = [text for kind, text, _ in tokens if kind not in ("(", ")")]
    head = numbers[0][:2].lower() if len(numbers) == 1 else ""
    if head == "0f":
        node.single = int(numbers[0][2:], 16)
    elif head == "0d":
        node.double = int(numbers[0][2:], 16)


def _integer(text: str) -> int:
    """The value of an integer literal. Raises OverflowError if ptxas refuses it as too large."""
    if text == WARP_SIZE:
        return 32
    digits = text.rstrip("U")
    head = digits[:2].lower()
    if head in ("0x", "0b"):
        base, digits = 16 if head == "0x" else 2, digits[2:]
    else:
        base = 8 if digits[0] == "0" else 10
    value = int(digits, base)
    if value // base >> 63:
        raise OverflowError(f"{text} overflows 64 bits")
    value &= _ONES
    return Unsigned(value) if text[-1] == "U" or value >> 63 else value


def _float(text: str) -> float:
    head = text[:2].lower()
    if head == "0f":
        return float(struct.unpack("<f", int(text[2:], 16).to_bytes(4, "little"))[0])
    if head == "0d":
        return float(struct.unpack("<d", int(text[2:], 16).to_bytes(8, "little"))[0])
    value = float(text)
    if value == float("inf"):
        raise OverflowError(f"{text} overflows a double")
    if value < 2.2250738585072014e-308 and text.lower().partition("e")[0].strip("0."):
        raise OverflowError(f"{text} is no normal double")
    return value


# Operands -------------------------------------------------------------------------------------------------------------


class Operands(ConstantExpressions):
    """The part of the parser that reads operands.

    `signed_operands`: the instruction takes `-a`, as vmad does. `call`: it is a call, which has names in parentheses.
    """

    def __init__(self, source: Source, tokens: list[Token]) -> None:
        super().__init__(source, tokens)
        self.signed_operands = self.call = False

    def countable(self, listed: Sequence[Operand]) -> None:
        """Raise TooLarge for a list of too many operands."""
        if len(listed) > OPERANDS.most:
            raise self.source.error(TooLarge, OPERANDS.refusal(len(listed)), self.offset)

    def operand(self) -> Operand:
        """One operand, `a|b` included."""
        self.deeper()
        kind, offset = self.kind, self.offset
        if kind == "{":
            node: Operand = self.vector()
        elif kind == "[":
            node = self.address()
        elif kind == "sink":
            self.advance()
            node = Sink(offset)
        elif kind == "name":
            node = self.name()
            if self.accept("+"):
                node.displacement = self.displacement()
        elif kind == "!" and self.tokens[self.at + 1][0] == "name":
            self.advance()
            node = self.name()
            node.negated = True
        elif kind == "-" and self.tokens[self.at + 1][0] == "name":
            if not self.signed_operands:
                raise self.error("an operand cannot be negated here; PTX has neg for that")
            self.advance()
            node = self.name()
            node.minus = True
        elif kind == "(" and self.tokens[self.at + 1][0] in ("name", ")"):
            if not self.call:
                raise self.error("only a call takes names in parentheses; a vector has braces")
            node = self.arguments()
        elif kind in ("int", "float", "-", "+", "~", "!", "("):
            node = self.constant()
        else:
            raise self.unexpected("an operand")
        if self.kind == "|":
            self.advance()
            node = Pair(node, self.operand(), offset)
        self.depth -= 1
        return node

    def name(self) -> Name:
        """An identifier with its component."""
        node = Name(self.text, self.offset)
        self.advance()
        if self.kind == "dot":
            node.text += self.text
            self.advance()
        return node

    def vector(self) -> Vector:
        """`{a, b}`, the opening brace being next."""
        node = Vector([], self.offset)
        self.advance()
        while True:
            node.elements.append(self.operand())
            self.countable(node.elements)
            if not self.accept(","):
                break
        self.expect("}", "',' or '}' in a vector")
        return node

    def arguments(self) -> Vector:
        """The names between the parentheses of a call."""
        node = Vector([], self.offset)
        self.advance()
        while self.kind != ")":
            node.elements.append(self.operand())
            self.countable(node.elements)
            if not self.accept(","):
                break
        self.expect(")", "',' or ')' after an argument")
        return node

    def address(self) -> Address:
        """`[base+displacement]`, the opening bracket being next."""
        offset = self.offset
        self.advance()
        base: Name | None = None
        displacement = 0
        if self.kind == "name":
            base = self.name()
            if self.kind in ("+", "-"):
                minus = self.kind == "-"
                self.advance()
                if self.kind == "name":
                    raise self.error("an address adds a constant to a register, not a register to a register")
                value = self.displacement()
                displacement = -value if minus else value
        else:
            displacement = self.displacement()
        node = Address(base, displacement, offset)
        while self.accept(","):
            node.extra.append(self.operand())
        self.expect("]", "']' after the address")
        return node

    def displacement(self) -> int:
        """The constant in an address."""
        constant = self.constant()
        if isinstance(constant.value, float):
            raise self.source.error(ParseError, "an address takes an integer constant", constant.offset)
        return constant.value
