"""Integers with bounds, kept in the narrowest type that holds them, so that a GPU computes in 32 bits where it can.

References speak of int64 throughout. A GPU has 32-bit registers, in which a 64-bit comparison takes two instructions
and a shift four. Here every integer carries the least and the greatest value it can have, and is kept in the narrowest
of three types that holds both: int32, uint32, int64. Sums, products and bitwise operations need of their operands
only as many low bits as the result has; comparisons and right shifts need all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

INT64 = (-(1 << 63), (1 << 63) - 1)
INT32 = (-(1 << 31), (1 << 31) - 1)
UINT32 = (0, (1 << 32) - 1)
RANGES = {
    "int64": INT64, "int32": INT32, "int16": (-(1 << 15), (1 << 15) - 1), "int8": (-128, 127), "uint8": (0, 255),
}  # fmt: skip

Bounds = tuple[int, int]


@dataclass(frozen=True)
class Value:
    """A value in a kernel's text.

    text: an expression without side effects. kind: "int", "bool", or a floating-point type's name. bounds: of integers
    and bools. shift: set for the number of an input, shifted right by so many places and not yet spelt out.
    """

    text: str
    kind: str
    bounds: Bounds = (0, 0)
    shift: int | None = None

    @property
    def type(self) -> str:
        """The type that holds it in the kernel."""
        return register(self.bounds) if self.kind == "int" else "int1" if self.kind == "bool" else self.kind

    @property
    def is_constant(self) -> bool:
        """Whether it can have one value only."""
        return self.kind == "int" and self.bounds[0] == self.bounds[1]

    def as_(self, kind: str) -> str:
        """The text of the value in another type; integers keep their low bits."""
        if self.is_constant and kind in ("int32", "uint32", "int64"):
            return literal(self.bounds[0], kind)
        return self.text if self.type == kind else f"{self.text}.to(tl.{kind})"


def constant(number: int) -> Value:
    """An integer that is known."""
    return Value(literal(number, register((number, number))), "int", (number, number))


def register(bounds: Bounds) -> str:
    """The narrowest register type that holds a range."""
    if within(bounds, INT32):
        return "int32"
    return "uint32" if within(bounds, UINT32) else "int64"


def literal(number: int | float, kind: str) -> str:
    """A constant of a type; integers wrap."""
    if kind in ("int32", "uint32", "int64"):
        bits = 64 if kind == "int64" else 32
        number = int(number) & ((1 << bits) - 1)
        if kind != "uint32" and number >> (bits - 1):
            number -= 1 << bits
        return f"tl.full((), {number}, tl.{kind})"
    text = repr(float(number))
    return f"tl.full((), {text if text[-1].isdigit() else f'float({text!r})'}, tl.{kind})"


def within(inner: Bounds, outer: Bounds) -> bool:
    """Whether a range lies in another."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(*ranges: Bounds) -> Bounds:
    """The least range with all of some."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)


def corners(a: Bounds, b: Bounds, operation: str) -> Bounds:
    """The range of a sum, difference, product or shift."""
    if operation == "+":
        return a[0] + b[0], a[1] + b[1]
    if operation == "-":
        return a[0] - b[1], a[1] - b[0]
    if operation in ("<<", ">>"):
        b = max(0, min(63, b[0])), max(0, min(63, b[1]))
    found = [_OPERATIONS[operation](x, y) for x in a for y in b]
    return min(found), max(found)


_OPERATIONS = {"*": int.__mul__, "<<": int.__lshift__, ">>": int.__rshift__, "//": int.__floordiv__}


def bitwise(a: Bounds, b: Bounds, operation: str) -> Bounds:
    """The range of a bitwise and, or, or exclusive or."""
    positive = [r[1] for r in (a, b) if r[0] >= 0]
    if operation == "&" and positive:
        return 0, min(positive)
    bits = max(max(high, ~low).bit_length() for low, high in (a, b))
    return (0 if len(positive) == 2 else -(1 << bits)), (1 << bits) - 1
