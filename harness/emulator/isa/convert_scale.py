"""cvt to and from the unsigned scale formats ue8m0 and ue5m3 and the fixed-point s2f6 (ISA 9.7.9.22; ue5m3 and
s2f6 with .rz from ISA 9.4). A register has two values, the first in the upper byte.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import f32_of_f16, f32_of_flushed_f16, scaled_f32, shrink, two_to
from ptxdiff.emulator.isa.convert_integral import integral
from ptxdiff.emulator.isa.convert_narrow import FAMILIES, bf16_scaled
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_value, scalar, sign_extend, to_int
from ptxdiff.emulator.numeric.softfloat import f32_flush, f32_is_nan

S2F6 = "100a 103a 107a 110a 120a 121a"


@scalar
def ue8m0_from_f32(a: int, rnd: int, satfinite: int) -> int:
    """The power of two next to a magnitude, downwards (RZ) or upwards (RP), as its exponent plus 127.

    The sign is dropped. NaN gives 0xff. Magnitudes above 2**127, including infinity, give 0xff, or with .satfinite
    0xfe. Zero, and magnitudes below 2**-127 that are rounded down, give 0, which is 2**-127. The ISA does not define
    zero, nor overflow without .satfinite; another public model does the same.
    """
    if f32_is_nan(a):
        return 0xFF
    magnitude = a & 0x7FFFFFFF
    code = magnitude >> 23
    if rnd == 3:
        # A subnormal above 2**-127, whose pattern is 0x400000, rounds up to 2**-126.
        code = code + 1 if magnitude & 0x7FFFFF and (code or magnitude > 0x400000) else code
    return 0xFE if satfinite and code == 0xFF else code


@instruction(
    "cvt.rnd{.satfinite}.ue8m0x2.f32", "d, a, b", section="9.7.9.22", undefined="pair", requires=FAMILIES, rnd=".rz .rp"
)
def cvt_ue8m0x2_f32(a: int, b: int, rnd: int, satfinite: int) -> int:
    """Two scales from float32: `a` to the upper byte."""
    return ue8m0_from_f32(a, rnd, satfinite) << 8 | ue8m0_from_f32(b, rnd, satfinite)


@instruction(
    "cvt.rnd{.satfinite}.ue8m0x2.bf16x2", "d, a", section="9.7.9.22", undefined="pair", requires=FAMILIES, rnd=".rz .rp"
)
def cvt_ue8m0x2_bf16x2(a: int, rnd: int, satfinite: int) -> int:
    """Two scales from bfloat16: upper half to upper byte."""
    high = ue8m0_from_f32(a & 0xFFFF0000, rnd, satfinite)
    return high << 8 | ue8m0_from_f32(a << 16 & 0xFFFFFFFF, rnd, satfinite)


@scalar
def _bf16_of_ue8m0(s: int) -> int:
    """2 to the power of s - 127 (2**-127 is subnormal); NaN is 0x7fff."""
    if s == 0xFF:
        return 0x7FFF
    return s << 7 if s else 0x40


@instruction("cvt.rn.bf16x2.ue8m0x2", "d, a", section="9.7.9.22", undefined="pair", requires=FAMILIES)
def cvt_bf16x2_ue8m0x2(a: int) -> int:
    """Two scales as bfloat16, exactly."""
    return _bf16_of_ue8m0(a >> 8) << 16 | _bf16_of_ue8m0(a & 0xFF)


# ue5m3: five exponent bits of bias 15, three mantissa bits, no sign; 0xff is NaN.


@scalar
def ue5m3_from_f32(a: int, rnd: int, satfinite: int) -> int:
    """ue5m3 code of a magnitude; the sign is dropped. NaN is 0xff.

    Overflow and infinity give the largest value with .satfinite and NaN without; towards zero only infinity
    does. The ISA (9.4) does not define the cases without .satfinite. Another public model has the same rule, which it
    attributes to CUDA 13.4's header for 8-bit floats.
    """
    magnitude = a & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return 0xFF
    code = 0xFF if magnitude == 0x7F800000 else min(shrink(magnitude, 3, 15, rnd, 0, 16), 0xFF)
    if code == 0xFF and (satfinite or (rnd == 1 and magnitude != 0x7F800000)):
        code = 0xFE
    return code


@instruction("cvt.rnd{.satfinite}.ue5m3x2.f32", "d, a, b", section="9.7.9.22", requires="107f", rnd=".rn .rz .rp")
def cvt_ue5m3x2_f32(a: int, b: int, rnd: int, satfinite: int) -> int:
    """Two scales from float32: `a` to the upper byte."""
    return ue5m3_from_f32(a, rnd, satfinite) << 8 | ue5m3_from_f32(b, rnd, satfinite)


@instruction("cvt.rnd{.satfinite}.ue5m3x2.f16x2", "d, a", section="9.7.9.22", requires="107f", rnd=".rn .rz .rp")
def cvt_ue5m3x2_f16x2(a: int, rnd: int, satfinite: int) -> int:
    """Two scales from float16: upper half to upper byte."""
    return cvt_ue5m3x2_f32(f32_of_f16(a >> 16), f32_of_f16(a & 0xFFFF), rnd, satfinite)


@instruction("cvt.rnd{.satfinite}.ue5m3x2.bf16x2", "d, a", section="9.7.9.22", requires="107f", rnd=".rn .rz .rp")
def cvt_ue5m3x2_bf16x2(a: int, rnd: int, satfinite: int) -> int:
    """Two scales from bfloat16: upper half to upper byte."""
    return cvt_ue5m3x2_f32(a & 0xFFFF0000, a << 16 & 0xFFFFFFFF, rnd, satfinite)


_SCALED = "cvt.rnd{.satfinite}.scaled::n1::ue8m0.ue5m3x2"


@scalar
def _scaled_ue5m3(a: int, s: int, rnd: int, satfinite: int) -> int:
    """ue5m3 code of a float32 divided by a scale; for .rz a finite quotient beyond float32's range does not count as
    infinity."""
    scaled = scaled_f32(a, s)
    if (scaled & 0x7FFFFFFF) == 0x7F800000 and (a & 0x7FFFFFFF) != 0x7F800000:
        scaled = 0x7F7FFFFF
    return ue5m3_from_f32(scaled, rnd, satfinite)


@instruction(f"{_SCALED}.f32", "d, a, b, s:ue8m0", section="9.7.9.22", requires="107f", rnd=".rn .rz")
def cvt_ue5m3x2_f32_scaled(a: int, b: int, s: int, rnd: int, satfinite: int) -> int:
    """Two float32, subnormals flushed, divided by the scale."""
    high = _scaled_ue5m3(f32_flush(a, 1), s, rnd, satfinite)
    return high << 8 | _scaled_ue5m3(f32_flush(b, 1), s, rnd, satfinite)


@instruction(f"{_SCALED}.f16x2", "d, a, s:ue8m0", section="9.7.9.22", requires="107f", rnd=".rn .rz")
def cvt_ue5m3x2_f16x2_scaled(a: int, s: int, rnd: int, satfinite: int) -> int:
    """Two float16, subnormals flushed, divided by the scale."""
    high = _scaled_ue5m3(f32_of_flushed_f16(a >> 16), s, rnd, satfinite)
    return high << 8 | _scaled_ue5m3(f32_of_flushed_f16(a & 0xFFFF), s, rnd, satfinite)


@instruction(f"{_SCALED}.bf16x2", "d, a, s:ue8m0", section="9.7.9.22", requires="107f", rnd=".rn .rz", braces="a")
def cvt_ue5m3x2_bf16x2_scaled(a: int, s: int, rnd: int, satfinite: int) -> int:
    """Two bfloat16, subnormals flushed, divided by the scale."""
    return cvt_ue5m3x2_f32_scaled(a & 0xFFFF0000, a << 16 & 0xFFFFFFFF, s, rnd, satfinite)


# s2f6: two's complement with six bits after the binary point, from -2 to 1.984375.


@scalar
def s2f6_from_f32(a: int, s: int, rnd: int, relu: int) -> int:
    """A float32 divided by a scale, as a clamped fixed-point byte; NaN is 0x7f.

    Clamping at the negative end gives 0x80: the section on cvt says "sign-preserved MAX_NORM", and in ISA 5.2.4 (since
    9.1) the negative end is -2. Another public model agrees, also on NaN.
    """
    if f32_is_nan(a) or s == 0xFF:
        return 0x7F
    if relu and a > 0x7FFFFFFF:
        return 0
    x = integral(f32_value(a) * two_to(127 - s) * 64.0, rnd)
    return to_int(min(max(x, -128.0), 127.0)) & 0xFF


@instruction(
    "cvt.rnd.satfinite{.relu}.s2f6x2.f32",
    "d:b16, a, b",
    section="9.7.9.22",
    requires=S2F6,
    needs={"rz": "107a"},
    rnd=".rn .rz",
    braces="d",
)
def cvt_s2f6x2_f32(a: int, b: int, rnd: int, relu: int) -> int:
    """Two float32 to fixed point: `a` to the upper byte."""
    return s2f6_from_f32(a, 127, rnd, relu) << 8 | s2f6_from_f32(b, 127, rnd, relu)


@instruction(
    "cvt.rnd.satfinite{.relu}.scaled::n2::ue8m0.s2f6x2.f32",
    "d:b16, a, b, s:ue8m0x2",
    section="9.7.9.22",
    requires=S2F6,
    needs={"rz": "107a"},
    rnd=".rn .rz",
)
def cvt_s2f6x2_f32_scaled(a: int, b: int, s: int, rnd: int, relu: int) -> int:
    """Two float32, each divided by the scale in the same half of `s`."""
    return s2f6_from_f32(a, s >> 8, rnd, relu) << 8 | s2f6_from_f32(b, s & 0xFF, rnd, relu)


@instruction(
    "cvt.rnd.satfinite{.relu}.s2f6x2.bf16x2",
    "d:b16, a",
    section="9.7.9.22",
    requires=S2F6,
    needs={"rz": "107a"},
    rnd=".rn .rz",
)
def cvt_s2f6x2_bf16x2(a: int, rnd: int, relu: int) -> int:
    """Two bfloat16 to fixed point: upper half to upper byte.

    The sources are halves, although the ISA's pseudocode takes a[15:8] and a[7:0], which cannot hold a bfloat16. Its
    text on the scales says the upper and the lower 16 bits, and ptxas generates one instruction that unpacks bfloat16.
    """
    return cvt_s2f6x2_f32(a & 0xFFFF0000, a << 16 & 0xFFFFFFFF, rnd, relu)


@instruction(
    "cvt.rnd.satfinite{.relu}.scaled::n2::ue8m0.s2f6x2.bf16x2",
    "d:b16, a, s:ue8m0x2",
    section="9.7.9.22",
    requires=S2F6,
    needs={"rz": "107a"},
    rnd=".rn .rz",
)
def cvt_s2f6x2_bf16x2_scaled(a: int, s: int, rnd: int, relu: int) -> int:
    """Two bfloat16, each divided by the scale in the same half of `s`."""
    return cvt_s2f6x2_f32_scaled(a & 0xFFFF0000, a << 16 & 0xFFFFFFFF, s, rnd, relu)


@scalar
def _bf16_of_s2f6(a: int, s: int, relu: int, satfinite: int) -> int:
    return bf16_scaled(sign_extend(a, 8) / 64.0, s, relu, satfinite)


@instruction("cvt.rn{.relu}{.satfinite}.bf16x2.s2f6x2", "d, a", section="9.7.9.22", requires=S2F6)
def cvt_bf16x2_s2f6x2(a: int, relu: int, satfinite: int) -> int:
    """Two fixed-point bytes to bfloat16, exactly."""
    return _bf16_of_s2f6(a >> 8, 127, relu, satfinite) << 16 | _bf16_of_s2f6(a, 127, relu, satfinite)


@instruction(
    "cvt.rn{.relu}{.satfinite}.scaled::n2::ue8m0.bf16x2.s2f6x2",
    "d, a, s:ue8m0x2",
    section="9.7.9.22",
    requires=S2F6,
)
def cvt_bf16x2_s2f6x2_scaled(a: int, s: int, relu: int, satfinite: int) -> int:
    """Two fixed-point bytes to bfloat16, each times the scale in the same half of `s`."""
    return _bf16_of_s2f6(a >> 8, s >> 8, relu, satfinite) << 16 | _bf16_of_s2f6(a, s & 0xFF, relu, satfinite)
