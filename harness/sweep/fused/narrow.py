"""Integers with bounds, in the narrowest type that holds them, so that a GPU computes with 32 bits where possible.

References use int64 throughout. A GPU has 32-bit registers, so a 64-bit comparison takes two instructions and a shift
four. Here every integer has its least and greatest possible value, and the narrowest of three types that holds both:
int32, uint32, int64. Sums, products and bitwise operations need only as many low bits of their operands as the result
has; comparisons and right shifts need all bits.
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

    text: an expression without side effects. kind: "int", "bool", or a floating-point type's name. bounds: for integers
    and bools. shift: set for the number of an input that is to be shifted right by this many places and has no text
    yet.
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
        """Whether it has only one possible value."""
        return self.kind == "int" and self.bounds[0] == self.bounds[1]

    def as_(self, kind: str) -> str:
        """The text of the value in another type; integers keep their low bits."""
        if self.is_constant and kind in ("int32", "uint32", "int64"):
            return literal(self.bounds[0], kind)
        return self.text if self.type == kind else f"{self.text}.to(tl.{kind})"


def constant(number: int) -> Value:
    """A constant integer."""
    return Value(literal(number, register((number, number))), "int", (number, number))


def register(bounds: Bounds) -> str:
    """The narrowest type that holds a range."""
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
    """The least range that contains all given ranges."""
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
