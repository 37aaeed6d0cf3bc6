"""cvt between integers, and from integers to floats (ISA 9.7.9.22)."""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import f16_saturate, f64_pattern, f64_saturate
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import clz64, mask, scalar, shr64, to_float
from ptxdiff.emulator.numeric.definedness import extend
from ptxdiff.emulator.numeric.softfloat import bf16_from_f64, f16_from_f64, f32_from_f64, f32_saturate

INTEGERS = ".u8 .u16 .u32 .u64 .s8 .s16 .s32 .s64"
RND = ".rn .rz .rm .rp"

_SATURATING = {
    ".u8": ".s8",
    ".s8": ".u8 .u16 .u32 .u64",
    ".u16": ".u8 .s8 .s16",
    ".s16": ".u8 .u16 .u32 .u64 .s8",
    ".u32": ".u8 .u16 .s8 .s16 .s32",
    ".s32": ".u8 .u16 .u32 .u64 .s8 .s16",
    ".u64": ".u8 .u16 .u32 .s8 .s16 .s32 .s64",
    ".s64": ".u8 .u16 .u32 .u64 .s8 .s16 .s32",
}
"""For each source type, the destinations for which .sat is legal: those that do not hold all of its values."""


@instruction(
    "cvt.dtype.atype", "d, a", section="9.7.9.22", dtype=INTEGERS, atype=INTEGERS, relaxed=True, undefined=extend
)
def cvt_integer(a: int) -> int:
    """Truncated to the destination's width, or extended according to the source's type."""
    return a


def cvt_integer_saturated(a: int, dwidth: int, dsigned: int, awidth: int, asigned: int) -> int:
    """The value, or the nearest end of the destination's range."""
    bits = dwidth - 1 if dsigned else dwidth
    if asigned:
        low = -(1 << (dwidth - 1)) if dsigned else 0
        if a < low:
            return low
        return (1 << bits) - 1 if bits < 63 and a > (1 << bits) - 1 else a
    if bits < 64 and awidth > bits and shr64(a, bits) != 0:
        return (1 << 63) - 1 if bits == 63 else (1 << bits) - 1
    return a


for _source, _destinations in _SATURATING.items():
    instruction("cvt.sat.dtype.atype", "d, a", section="9.7.9.22", dtype=_destinations, atype=_source, relaxed=True)(
        cvt_integer_saturated
    )


@scalar
def sticky_float(a: int, unsigned64: int) -> float:
    """An integer as a float64 rounded to odd, so that a later rounding to 51 bits or fewer is correct."""
    if unsigned64 and a < 0:
        return to_float(shr64(a, 12) | (1 if a & 0xFFF else 0)) * 4096.0
    if -(1 << 53) <= a <= 1 << 53:
        return to_float(a)
    return to_float((a >> 11) | (1 if a & 0x7FF else 0)) * 2048.0


@scalar
def float64_of(a: int, unsigned64: int, rnd: int) -> float:
    """An integer as a float64, rounded once in mode RN, RZ, RM or RP."""
    negative = a < 0 and not unsigned64
    if -(1 << 53) <= a <= 1 << 53 and (negative or a >= 0):
        return to_float(a)
    magnitude = -a if negative else a
    # In 64 bits -2**63 negated is itself, which is correct as an unsigned pattern.
    drop = 11 - clz64(magnitude)
    kept = shr64(magnitude, drop)
    lost = magnitude & mask(drop)
    half = 1 << (drop - 1)
    if rnd == 0:
        up = lost > half or (lost == half and kept & 1 == 1)
    else:
        up = lost != 0 and rnd != 1 and negative == (rnd == 2)
    value = to_float(kept + 1 if up else kept) * to_float(1 << drop)
    return -value if negative else value


@instruction("cvt.rnd{.ftz}{.sat}.f32.atype", "d, a", section="9.7.9.22", rnd=RND, atype=INTEGERS, relaxed=True)
def cvt_f32_integer(a: int, rnd: int, sat: int, awidth: int, asigned: int) -> int:
    """Nearest (or directed) float32 of an integer; zero is +0. No result is subnormal, so .ftz changes nothing."""
    return f32_saturate(f32_from_f64(sticky_float(a, 1 if awidth == 64 and not asigned else 0), rnd), sat)


@instruction("cvt.rnd{.sat}.f64.atype", "d, a", section="9.7.9.22", rnd=RND, atype=INTEGERS, relaxed=True)
def cvt_f64_integer(a: int, rnd: int, sat: int, awidth: int, asigned: int) -> int:
    """float64 of an integer; exact up to 53 bits."""
    return f64_saturate(f64_pattern(float64_of(a, 1 if awidth == 64 and not asigned else 0, rnd)), sat)


@instruction("cvt.rnd{.sat}.f16.atype", "d, a", section="9.7.9.22", rnd=RND, atype=INTEGERS, relaxed=True)
def cvt_f16_integer(a: int, rnd: int, sat: int, awidth: int, asigned: int) -> int:
    """float16 of an integer.

    Overflow gives infinity, or the largest finite value if `rnd` rounds towards zero there.
    """
    return f16_saturate(f16_from_f64(sticky_float(a, 1 if awidth == 64 and not asigned else 0), rnd), sat)


@instruction("cvt.rnd.bf16.atype", "d, a", section="9.7.9.22", requires=90, rnd=RND, atype=INTEGERS)
def cvt_bf16_integer(a: int, rnd: int, awidth: int, asigned: int) -> int:
    """bfloat16 of an integer, rounded once."""
    return bf16_from_f64(sticky_float(a, 1 if awidth == 64 and not asigned else 0), rnd)
