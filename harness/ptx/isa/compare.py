"""Comparison and selection (ISA 9.7.6, 9.7.7)."""

from __future__ import annotations

from harness.ptx.bits import below64, f32_value, scalar
from harness.ptx.definedness import select
from harness.ptx.softfloat import f32_flush

from .modifiers import EQ, GT, HI, LE, LO, LS, LT, NAN, NE, NUM
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


_INT_CMP = ".eq .ne .lt .le .gt .ge"
_FLOAT_CMP = _INT_CMP + " .equ .neu .ltu .leu .gtu .geu .num .nan"


_SIGNED = ".s16 .s32 .s64"
_UNSIGNED = ".u16 .u32 .u64"
_UNSIGNED_CMP = _INT_CMP + " .lo .ls .hi .hs"
_ANY = ".b16 .b32 .b64 .u16 .u32 .u64 .s16 .s32 .s64 .f32 .f64"


@instruction("setp.cmp.type", "p:pred|q?:pred, a:type, b:type", section="9.7.6.2", cmp=".eq .ne", type=".b16 .b32 .b64")
@instruction("setp.cmp.type", "p:pred|q?:pred, a:type, b:type", section="9.7.6.2", cmp=_INT_CMP, type=_SIGNED)
@instruction("setp.cmp.type", "p:pred|q?:pred, a:type, b:type", section="9.7.6.2", cmp=_UNSIGNED_CMP, type=_UNSIGNED)
def setp_integer(a: int, b: int, cmp: int, signed: int, width: int, result: int) -> int:
    """Compare integers; the second destination gets the opposite."""
    return setp_integer_bool(a, b, 1, cmp, 0, signed, width, result)


@instruction(
    "setp.cmp.bool.type",
    "p:pred|q?:pred, a:type, b:type, c:pred",
    section="9.7.6.2",
    cmp=".eq .ne",
    bool=_BOOL,
    type=".b16 .b32 .b64",
)
@instruction(
    "setp.cmp.bool.type",
    "p:pred|q?:pred, a:type, b:type, c:pred",
    section="9.7.6.2",
    cmp=_INT_CMP,
    bool=_BOOL,
    type=_SIGNED,
)
@instruction(
    "setp.cmp.bool.type",
    "p:pred|q?:pred, a:type, b:type, c:pred",
    section="9.7.6.2",
    cmp=_UNSIGNED_CMP,
    bool=_BOOL,
    type=_UNSIGNED,
)
def setp_integer_bool(a: int, b: int, c: int, cmp: int, bool: int, signed: int, width: int, result: int) -> int:
    """Compare integers and join with `c`; the second destination gets the opposite comparison, joined too."""
    less = a < b if signed or width < 64 else below64(a, b)
    found = ordered(cmp, less, a == b)
    return combine(found == (result == 0), c, bool)


@instruction("setp.cmp{.ftz}.f32", "p:pred|q?:pred, a, b", section="9.7.6.2", cmp=_FLOAT_CMP)
def setp_f32(a: int, b: int, cmp: int, ftz: int, result: int) -> int:
    """Compare float32 values; the second destination gets the opposite."""
    return setp_f32_bool(a, b, 1, cmp, 0, ftz, result)


@instruction("setp.cmp.bool{.ftz}.f32", "p:pred|q?:pred, a, b, c:pred", section="9.7.6.2", cmp=_FLOAT_CMP, bool=_BOOL)
def setp_f32_bool(a: int, b: int, c: int, cmp: int, bool: int, ftz: int, result: int) -> int:
    """Compare float32 values and join with `c`."""
    found = float_compare(cmp, f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz)))
    return combine(found == (result == 0), c, bool)


@instruction("selp.type", "d, a, b, p:pred", section="9.7.6.3", type=_ANY, undefined=select)
def selp(a: int, b: int, p: int) -> int:
    """`a` where the predicate holds, else `b`."""
    return a if p else b
