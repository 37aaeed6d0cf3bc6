"""cvt between integers, and from integers to float32 (ISA 9.7.9.22)."""

from __future__ import annotations

from harness.ptx.bits import scalar, shr64, to_float
from harness.ptx.definedness import extend
from harness.ptx.softfloat import f32_from_f64

from .registry import instruction

_INT = ".u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64"


@instruction(
    "cvt{.sat}.dtype.atype", "d, a", section="9.7.9.22", dtype=_INT, atype=_INT, relaxed=True, undefined=extend
)
def cvt_integer(a: int, sat: int, dwidth: int, dsigned: int, awidth: int, asigned: int) -> int:
    """Cut or extend; with .sat clamp to the destination's range."""
    if not sat:
        return a
    if asigned:
        low = -(1 << (dwidth - 1)) if dsigned else 0
        high_bits = dwidth - 1 if dsigned else dwidth
        if a < low:
            return low
        return (1 << high_bits) - 1 if high_bits < 63 and a > (1 << high_bits) - 1 else a
    bits = dwidth - 1 if dsigned else dwidth
    if bits < 64 and awidth > bits and (shr64(a, bits) != 0):
        return (1 << 63) - 1 if bits == 63 else (1 << bits) - 1
    return a


@scalar
def sticky_float(a: int, unsigned64: int) -> float:
    """An integer as a float64 rounded to odd, so that a later rounding to 51 bits or fewer is correct."""
    if unsigned64 and a < 0:
        return to_float(shr64(a, 12) | (1 if a & 0xFFF else 0)) * 4096.0
    if -(1 << 53) <= a <= 1 << 53:
        return to_float(a)
    return to_float((a >> 11) | (1 if a & 0x7FF else 0)) * 2048.0


@instruction("cvt.rnd{.ftz}.f32.atype", "d, a", section="9.7.9.22", rnd=".rn .rz .rm .rp", atype=_INT, relaxed=True)
def cvt_f32_integer(a: int, rnd: int, awidth: int, asigned: int) -> int:
    """Nearest (or directed) float32 of an integer; exact zero is +0."""
    return f32_from_f64(sticky_float(a, 1 if awidth == 64 and not asigned else 0), rnd)
