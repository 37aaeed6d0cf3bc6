"""Comparison: what all kinds share, and float32 (ISA 9.7.6)."""

from __future__ import annotations

from harness.ptx.bits import f32_value, scalar
from harness.ptx.softfloat import f32_flush

from .modifiers import BF16, EQ, F16, F32, GT, HI, LE, LO, LS, LT, NAN, NE, NUM
from .registry import instruction

_BOOL = ".and .or .xor"


@scalar
def ordered(cmp: int, less: bool, equal: bool) -> bool:
    """A comparison from the two facts it rests on."""
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
    """A floating-point comparison: the ordered ones are false, the unordered (equ ...) true, when one is NaN."""
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
    """What `set` writes: 0, or all ones for an integer and 1.0 for a floating-point destination."""
    if not found:
        return 0
    if dtype == F32:
        return 0x3F800000
    if dtype == F16:
        return 0x3C00
    return 0x3F80 if dtype == BF16 else -1


_FLOAT_CMP = ".eq .ne .lt .le .gt .ge .equ .neu .ltu .leu .gtu .geu .num .nan"


@instruction("setp.cmp{.ftz}.f32", "p:pred|q?:pred, a, b", section="9.7.6.2", cmp=_FLOAT_CMP)
def setp_f32(a: int, b: int, cmp: int, ftz: int, result: int) -> int:
    """Compare float32 values; the second destination gets the opposite."""
    return setp_f32_bool(a, b, 1, cmp, 0, ftz, result)


@instruction("setp.cmp.bool{.ftz}.f32", "p:pred|q?:pred, a, b, c:pred", section="9.7.6.2", cmp=_FLOAT_CMP, bool=_BOOL)
def setp_f32_bool(a: int, b: int, c: int, cmp: int, bool: int, ftz: int, result: int) -> int:
    """Compare float32 values and join with `c`."""
    found = float_compare(cmp, f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz)))
    return combine(found == (result == 0), c, bool)
