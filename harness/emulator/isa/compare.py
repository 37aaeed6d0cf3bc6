"""Comparison: functions shared by all kinds (ISA 9.7.6)."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import EQ, GT, HI, LE, LO, LS, LT, NAN, NE, NUM
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.floatbits import BF16, F16, F32


@scalar
def ordered(cmp: int, less: bool, equal: bool) -> bool:
    """The result of comparison `cmp`, given whether a < b and whether a == b."""
    if cmp == EQ:
        return equal
    if cmp == NE:
        return not equal
    if cmp in (LT, LO):
        return less
    if cmp in (LE, LS):
        return less or equal
    if cmp in (GT, HI):
        return not (less or equal)
    return not less


@scalar
def combine(found: bool, c: int, boolop: int) -> int:
    """`found` and the third source, joined by .and, .or or .xor."""
    value = 1 if found else 0
    if boolop == 0:
        return value & c
    return value | c if boolop == 1 else value ^ c


@scalar
def float_compare(cmp: int, x: float, y: float) -> bool:
    """A floating-point comparison.

    If an operand is NaN, ordered comparisons are false and unordered ones (equ ...) true.
    """
    unordered = x != x or y != y
    if cmp == NUM:
        return not unordered
    if cmp == NAN:
        return unordered
    if unordered:
        return cmp >= 10
    return ordered(cmp - 10 if cmp >= 10 else cmp, x < y, x == y)


@scalar
def truth(found: int, dtype: int) -> int:
    """The result of `set`: 0, or if true all ones for an integer and 1.0 for a floating-point destination."""
    if not found:
        return 0
    if dtype == F32:
        return 0x3F800000
    if dtype == F16:
        return 0x3C00
    return 0x3F80 if dtype == BF16 else -1
