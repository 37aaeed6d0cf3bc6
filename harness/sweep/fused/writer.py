"""The lines of a Triton kernel's body: named values, and the computation of input numbers."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ptxdiff.sweep.fused.narrow import RANGES, Bounds, Value, constant, literal, register, within
from ptxdiff.sweep.result import ROW

ROW_BITS = ROW.bit_length() - 1


class NotFused(RuntimeError):
    """No kernel can be made of some operation; the message names it."""


class Slots(tuple[Any, ...]):
    """The values of one tensor that has several elements for each input: the codes of a storage unit, in order."""

    __slots__ = ()


class Stack(tuple[Any, ...]):
    """The values of tensors that were stacked along a new first dimension."""

    __slots__ = ()


TRACED = 13
"""How many inputs a graph is recorded with: no number of codes of a unit, so that torch refuses to broadcast inputs
along codes."""


class KernelText:
    """The lines so far, for the inputs of numbers `base + off`.

    base: the name of an int64 multiple of `ROW`, equal for all; off: below `ROW`. number_bits: the most bits of a
    number. tables: constants for look-ups, named `t0`, `t1` and so on.
    """

    def __init__(self, number_bits: int, base: str) -> None:
        self.lines: list[str] = []
        self.tables: list[Tensor] = []
        self.base = base
        self._number = number_bits

    # ---- Numbers of inputs ----------------------------------------------------------------------------------

    def number_bounds(self, shift: int) -> Bounds:
        """The bounds of a number shifted right."""
        return 0, ((1 << self._number) - 1) >> shift

    def spelt(self, value: Any) -> Value:
        """A value with a text, also for a shifted number."""
        if not isinstance(value, Value):
            raise NotFused(f"a {type(value).__name__} where a value is needed")
        if value.shift is None:
            return value
        return self.masked(value.shift, self.number_bounds(value.shift)[1])

    def masked(self, shift: int, mask: int) -> Value:
        """`(number >> shift) & mask`; the part from `base` is constant for a whole row."""
        bounds = 0, min(mask, self.number_bounds(shift)[1])
        kind = register(bounds)
        parts = []
        if mask >> max(0, ROW_BITS - shift):
            parts.append(f"(({self.base} >> {shift}) & {literal(mask, 'int64')}).to(tl.{kind})")
        if shift < ROW_BITS:
            parts.append(f"((off >> {shift}) & {literal(mask, 'int32')}).to(tl.{kind})")
        return self.let(" + ".join(parts) if parts else literal(0, kind), "int", bounds)

    # ---- Emitting -------------------------------------------------------------------------------------------

    def let(self, text: str, kind: str, bounds: Bounds = (0, 0)) -> Value:
        """Assign a text to a new name."""
        if kind == "int" and bounds[0] == bounds[1]:
            return constant(bounds[0])
        name = f"{self.base}{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return Value(name, kind, (0, 1) if kind == "bool" else bounds)

    def operand(self, value: Any) -> Value:
        """The value of a Python number or a node."""
        if isinstance(value, bool):
            return Value(literal(int(value), "int32") + ".to(tl.int1)", "bool", (0, 1))
        if isinstance(value, int):
            return constant(value)
        if isinstance(value, float):
            return Value(repr(value), "literal")
        return self.spelt(value)

    def fitted(self, bounds: Bounds, dtype: str) -> Bounds:
        """Bounds of a result that wraps in its type."""
        if RANGES[dtype] not in (RANGES["int64"], RANGES["int32"]) and not within(bounds, RANGES[dtype]):
            raise NotFused(f"arithmetic that wraps in {dtype}")
        return bounds if within(bounds, RANGES[dtype]) else RANGES[dtype]

    def modular(self, operation: str, a: Value, b: Value, bounds: Bounds, dtype: str) -> Value:
        """An operation whose low bits depend only on low bits."""
        bounds = self.fitted(bounds, dtype)
        kind = register(bounds)
        narrow = f"{a.as_(kind)} {operation} {b.as_(kind)}"
        if operation == "<<" and b.bounds[1] >= 32 and kind != "int64":
            narrow = f"({a.as_('int64')} << {b.as_('int64')}).to(tl.{kind})"
        return self.let(narrow, "int", bounds)
