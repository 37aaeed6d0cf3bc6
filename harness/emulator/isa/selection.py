"""Selection (ISA 9.7.6)."""

from __future__ import annotations

from typing import Any

from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.definedness import select
from ptxdiff.emulator.numeric.vectorise import Array

_ANY = ".b16 .b32 .b64 .u16 .u32 .u64 .s16 .s32 .s64 .f32 .f64"


@instruction("selp.type", "d, a, b, p:pred", section="9.7.6.3", type=_ANY, undefined=select)
def selp(a: int, b: int, p: int) -> int:
    """`a` if the predicate is true, else `b`."""
    return a if p else b


def _by_sign(values: list[Array], masks: list[Array]) -> Array:
    """Like `selp` with the predicate c >= 0; any undefined bit of `c` makes the predicate undefined."""
    a, b, c = values
    ua, ub, uc = masks
    chosen: Any = (c.view("i4") >= 0).view("u1")
    return select([a, b, chosen], [ua, ub, (uc != 0).view("u1")])


@instruction("slct.dtype.s32", "d:dtype, a:dtype, b:dtype, c:s32", section="9.7.6.4", dtype=_ANY, undefined=_by_sign)
def slct_s32(a: int, b: int, c: int) -> int:
    """`a` if c is not negative, else `b`."""
    return a if c >= 0 else b


@instruction("slct{.ftz}.dtype.f32", "d:dtype, a:dtype, b:dtype, c:f32", section="9.7.6.4", dtype=_ANY)
def slct_f32(a: int, b: int, c: int, ftz: int) -> int:
    """`a` if c >= 0 (true for -0), else `b`, also for NaN. With .ftz a negative subnormal counts as -0."""
    magnitude = c & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return b
    negative = c >> 31 and magnitude != 0 and not (ftz and magnitude < 0x00800000)
    return b if negative else a
