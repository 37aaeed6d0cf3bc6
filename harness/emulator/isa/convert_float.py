"""cvt between float16, bfloat16, tf32, float32 and float64, one value or two of them packed (ISA 9.7.9.22).

NaN: conversions to or from float64 keep the sign and the upper payload and make the NaN quiet. All others give the
all-ones NaN of the destination, with the exceptions that the definitions state.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import (
    bf16_from_f32,
    f16_from_f32,
    f16_saturate,
    f32_of_f16,
    f64_is_nan,
    f64_saturate,
    half_relu,
    no_negative_zero,
    shrink,
)
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_value, f64_bits, f64_value, scalar, shl64, shr64
from ptxdiff.emulator.numeric.softfloat import (
    bf16_from_f64,
    bf16_value,
    f16_from_f64,
    f16_value,
    f32_flush,
    f32_from_f64,
    f32_is_nan,
    f32_saturate,
)

RND = ".rn .rz .rm .rp"
PZO = {"pzo": "107f"}
_CRASHES = [".pzo .rm", ".pzo .rp"]
"""Modifiers that ptxas 13.4 accepts in conversions to one value; it crashes if the result is used."""
_CLAMPS = [f".{a} .{b}" for a in ("rm", "rp", "ftz", "sat") for b in ("relu", "satfinite")]
"""Modifiers that exclude .relu and .satfinite."""


@scalar
def widened_nan(a: int, width: int, mantissa_bits: int) -> int:
    """The float64 NaN for a narrower NaN: the same sign, the payload in the upper bits, made quiet."""
    payload = (a & ((1 << mantissa_bits) - 1)) << (52 - mantissa_bits)
    return shl64(a >> (width - 1) & 1, 63) | 0x7FF8000000000000 | payload


@scalar
def narrowed_nan(a: int, width: int, mantissa_bits: int) -> int:
    """The narrower NaN for a float64 NaN: the same sign, the upper bits of the payload, made quiet."""
    payload = a >> (52 - mantissa_bits) & ((1 << mantissa_bits) - 1)
    exponent = ((1 << (width - 1 - mantissa_bits)) - 1) << mantissa_bits
    return shr64(a, 63) << (width - 1) | exponent | 1 << (mantissa_bits - 1) | payload


# The same type: `cvt.f32.f32` copies, also NaN. With a modifier, and always for 16 bits, it is an addition of zero,
# which makes a NaN canonical.


@instruction("cvt{.ftz}{.sat}.f32.f32", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f32_f32(a: int, ftz: int, sat: int) -> int:
    """The value itself, bit for bit without .ftz; with it NaN is 0x7fffffff."""
    if ftz and f32_is_nan(a):
        a = 0x7FFFFFFF
    return f32_saturate(f32_flush(a, ftz), sat)


@instruction("cvt{.sat}.f64.f64", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f64_f64(a: int, sat: int) -> int:
    """The value itself, bit for bit."""
    return f64_saturate(a, sat)


@instruction("cvt{.sat}.f16.f16", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f16_f16(a: int, sat: int) -> int:
    """The value itself; NaN is 0x7fff."""
    return f16_saturate(0x7FFF if (a & 0x7FFF) > 0x7C00 else a, sat)


@instruction("cvt.bf16.bf16", "d, a", section="9.7.9.22", requires=90)
def cvt_bf16_bf16(a: int) -> int:
    """The value itself; NaN is 0x7fff."""
    return 0x7FFF if (a & 0x7FFF) > 0x7F80 else a


# Wider: exact.


@instruction("cvt{.ftz}{.sat}.f32.f16", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f32_f16(a: int, sat: int) -> int:
    """Exact; NaN is 0x7fffffff. No result is subnormal, so .ftz changes nothing."""
    return f32_saturate(f32_of_f16(a), sat)


@instruction("cvt{.rnd}{.ftz}.f32.bf16", "d, a", section="9.7.9.22", requires=80, rnd=RND)
def cvt_f32_bf16(a: int, ftz: int) -> int:
    """The same bits with 16 zeros below, NaN too; with .ftz NaN is 0x7fffffff. A rounding mode changes nothing."""
    wide = a << 16
    if ftz:
        return 0x7FFFFFFF if f32_is_nan(wide) else f32_flush(wide, 1)
    return wide


@instruction("cvt{.ftz}{.sat}.f64.f32", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f64_f32(a: int, ftz: int, sat: int) -> int:
    """Exact; a NaN keeps sign and payload (with .ftz it is 0x7fffffff first) and becomes quiet."""
    if f32_is_nan(a):
        return 0 if sat else widened_nan(0x7FFFFFFF if ftz else a, 32, 23)
    return f64_saturate(f64_bits(f32_value(f32_flush(a, ftz))), sat)


@instruction("cvt{.sat}.f64.f16", "d, a", section="9.7.9.22", relaxed=True)
def cvt_f64_f16(a: int, sat: int) -> int:
    """Exact; a NaN keeps sign and payload and becomes quiet."""
    if (a & 0x7FFF) > 0x7C00:
        return 0 if sat else widened_nan(a, 16, 10)
    return f64_saturate(f64_bits(f16_value(a)), sat)


@instruction("cvt{.rnd}.f64.bf16", "d, a", section="9.7.9.22", requires=90, rnd=RND)
def cvt_f64_bf16(a: int) -> int:
    """Exact; a NaN keeps sign and payload and becomes quiet. A rounding mode changes nothing."""
    return widened_nan(a, 16, 7) if (a & 0x7FFF) > 0x7F80 else f64_bits(bf16_value(a))


# Narrower, from float64.


@instruction("cvt.rnd{.ftz}{.sat}.f32.f64", "d, a", section="9.7.9.22", rnd=RND, relaxed=True)
def cvt_f32_f64(a: int, rnd: int, ftz: int, sat: int) -> int:
    """Rounded once; a NaN keeps sign and upper payload and becomes quiet.

    With .ftz a result is flushed if it is below the normal range after rounding with an unbounded exponent: a value
    just below 2**-126 that rounds to 2**-126 is kept.
    """
    if f64_is_nan(a):
        return f32_saturate(narrowed_nan(a, 32, 23), sat)
    x = f64_value(a)
    result = f32_from_f64(x, rnd)
    if ftz and abs(f32_value(f32_from_f64(x * 2.0, rnd))) < 2.350988701644575e-38:
        result &= 0x80000000
    return f32_saturate(result, sat)


@instruction("cvt.rnd{.sat}.f16.f64", "d, a", section="9.7.9.22", rnd=RND, relaxed=True)
def cvt_f16_f64(a: int, rnd: int, sat: int) -> int:
    """Rounded once; a NaN keeps sign and upper payload and becomes quiet."""
    if f64_is_nan(a):
        return 0 if sat else narrowed_nan(a, 16, 10)
    return f16_saturate(f16_from_f64(f64_value(a), rnd), sat)


@instruction("cvt.rnd.bf16.f64", "d, a", section="9.7.9.22", rnd=RND, requires=90)
def cvt_bf16_f64(a: int, rnd: int) -> int:
    """Rounded once; a NaN keeps sign and upper payload and becomes quiet."""
    return narrowed_nan(a, 16, 7) if f64_is_nan(a) else bf16_from_f64(f64_value(a), rnd)


# Narrower, from float32 and between the two 16-bit formats.


@instruction(
    "cvt.rnd{.ftz}{.sat}{.relu}{.satfinite}{.pzo}.f16.f32",
    "d, a",
    section="9.7.9.22",
    rnd=RND,
    relaxed=True,
    needs={"relu": 80, **PZO},
    excludes=[*_CLAMPS, *_CRASHES, ".pzo .ftz", ".pzo .sat"],
)
def cvt_f16_f32(a: int, rnd: int, sat: int, relu: int, satfinite: int, pzo: int) -> int:
    """Rounded once; NaN is 0x7fff.

    .ftz has no effect: ptxas 12.9 and 13.4 assemble the same instruction with and without it. (By the ISA it flushes a
    subnormal source, which would be visible only with .rm and .rp.)
    """
    result = half_relu(f16_from_f32(a, rnd, satfinite), relu)
    return no_negative_zero(f16_saturate(result, sat), 0x8000, pzo)


@instruction(
    "cvt.rnd{.ftz}{.relu}{.satfinite}{.pzo}.bf16.f32",
    "d, a",
    section="9.7.9.22",
    rnd=RND,
    requires=80,
    needs=PZO,
    excludes=[*_CLAMPS, *_CRASHES],
)
@instruction(
    "cvt.rnd.ftz.pzo.bf16.f32",
    "d, a",
    section="9.7.9.22",
    rnd=".rm .rp",
    requires="107f",
    given={"relu": 0, "satfinite": 0},
)
def cvt_bf16_f32(a: int, rnd: int, ftz: int, relu: int, satfinite: int, pzo: int) -> int:
    """Rounded once; NaN is 0x7fff. With .ftz a subnormal source is zero of its sign."""
    return no_negative_zero(half_relu(bf16_from_f32(f32_flush(a, ftz), rnd, satfinite), relu), 0x8000, pzo)


@instruction("cvt{.rnd}.f16.bf16", "d, a", section="9.7.9.22", rnd=RND, requires=90)
def cvt_f16_bf16(a: int, rnd: int) -> int:
    """Rounded once, to nearest even without a modifier; NaN is 0x7fff."""
    return f16_from_f32(a << 16, rnd, 0)


@instruction("cvt{.rnd}.bf16.f16", "d, a", section="9.7.9.22", rnd=RND, requires=90)
def cvt_bf16_f16(a: int, rnd: int) -> int:
    """Rounded once, to nearest even without a modifier; NaN is 0x7fff."""
    return bf16_from_f32(f32_of_f16(a), rnd, 0)


@instruction(
    "cvt.rnd{.relu}{.satfinite}{.pzo}.f16x2.f32",
    "d, a, b",
    section="9.7.9.22",
    undefined="pair",
    rnd=".rn .rz",
    relaxed=True,
    requires=80,
    needs=PZO,
)
def cvt_f16x2_f32(a: int, b: int, rnd: int, relu: int, satfinite: int, pzo: int) -> int:
    """Two float32 to float16: `a` to the upper half, `b` to the lower."""
    high = cvt_f16_f32(a, rnd, 0, relu, satfinite, pzo)
    return high << 16 | cvt_f16_f32(b, rnd, 0, relu, satfinite, pzo)


@instruction(
    "cvt.rnd{.relu}{.satfinite}{.pzo}.bf16x2.f32",
    "d, a, b",
    section="9.7.9.22",
    undefined="pair",
    rnd=".rn .rz",
    requires=80,
    needs=PZO,
)
def cvt_bf16x2_f32(a: int, b: int, rnd: int, relu: int, satfinite: int, pzo: int) -> int:
    """Two float32 to bfloat16: `a` to the upper half, `b` to the lower."""
    high = cvt_bf16_f32(a, rnd, 0, relu, satfinite, pzo)
    return high << 16 | cvt_bf16_f32(b, rnd, 0, relu, satfinite, pzo)


# tf32: 1 sign, 8 exponent and 10 mantissa bits at the upper end of a float32; the lower 13 are zero.


@instruction("cvt.rna{.satfinite}.tf32.f32", "d, a", section="9.7.9.22", requires=80)
def cvt_tf32_f32_away(a: int, satfinite: int) -> int:
    """Rounded to nearest, ties away from zero.

    A NaN is truncated like a number: one with a payload in only the lower 13 bits becomes infinity, and .satfinite
    decrements NaNs as it does infinities. The reason: ptxas assembles an addition and a mask on every target.
    """
    result = a if (a & 0x7FFFFFFF) >= 0x7F800000 else a + 0x1000
    result &= 0xFFFFE000
    return result - 0x2000 if satfinite and (result & 0x7FFFFFFF) >= 0x7F800000 else result


@instruction(
    "cvt.rnd{.satfinite}{.relu}{.pzo}.tf32.f32",
    "d, a",
    section="9.7.9.22",
    rnd=".rn .rz",
    requires=90,
    needs={"satfinite": 100, **PZO},
)
def cvt_tf32_f32(a: int, rnd: int, satfinite: int, relu: int, pzo: int) -> int:
    """Rounded once; NaN is 0x7fffe000."""
    magnitude = a & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return 0x7FFFE000
    if relu and a > 0x7FFFFFFF:
        return 0
    code = 0x3FC00 if magnitude == 0x7F800000 else shrink(a, 10, 127, rnd, 0, 13)
    if satfinite and code == 0x3FC00:
        code -= 1
    return no_negative_zero((a & 0x80000000) | code << 13, 0x80000000, pzo)
