"""cvt to and from e4m3, e5m2, e2m3, e3m2 and e2m1, two values a register (ISA 9.7.9.22; .rz, .pzo and one scale
for two values from ISA 9.4).

The first value is in the upper half of the register. Six-bit codes have a byte each, e2m1 codes four bits. NaN
gives the positive NaN of formats that have one, 0x7f, and the largest value of the others (e2m1: 7, seen on an
sm_120 card).

Where one scale serves two values, a subnormal source is flushed to zero of its sign first. The ISA says "to zero"; that
the sign stays, that a scale of 0xff makes NaN of everything and that an infinity gives the largest value is what a
published test of kernels found on an sm_107 GPU (e4m3 and e5m2 from float32). Another public model flushes to +0.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import (
    f32_of_f16,
    f32_of_flushed_f16,
    half_relu,
    narrow_field,
    narrow_from_f32,
    narrow_is_nan,
    narrow_sign,
    narrow_value,
    no_negative_zero,
    scale_value,
    scaled_f32,
)
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import mask, scalar
from ptxdiff.emulator.numeric.softfloat import bf16_from_f64, f16_from_f64, f32_flush

FAMILIES = "100f 110f 120f"
"""Targets of the Blackwell families, suffix a or f."""
_F8 = ".e4m3x2 .e5m2x2"
_NARROW = ".e4m3x2 .e5m2x2 .e2m3x2 .e3m2x2 .e2m1x2"
_DOWN = {"rz": "107f", "pzo": "107f"}


@scalar
def _pair(a: int, b: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float32 patterns as a packed pair."""
    sign = narrow_sign(form)
    high = no_negative_zero(narrow_from_f32(a, form, rnd, relu, 0), sign, pzo)
    return high << narrow_field(form) | no_negative_zero(narrow_from_f32(b, form, rnd, relu, 0), sign, pzo)


@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}.form.f32",
    "d, a, b",
    section="9.7.9.22",
    undefined="pair",
    requires=89,
    needs=_DOWN,
    rnd=".rn .rz",
    form=_F8,
)
@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}.form.f32",
    "d, a, b",
    section="9.7.9.22",
    undefined="pair",
    requires=FAMILIES,
    needs=_DOWN,
    rnd=".rn .rz",
    form=".e2m3x2 .e3m2x2 .e2m1x2",
)
def cvt_narrow_f32(a: int, b: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float32, clamped to the largest finite value: `a` to the upper part, `b` to the lower."""
    return _pair(a, b, rnd, relu, pzo, form)


@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}.form.f16x2",
    "d, a",
    section="9.7.9.22",
    undefined="pair",
    requires=89,
    needs=_DOWN,
    rnd=".rn .rz",
    form=_F8,
)
@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}.form.f16x2",
    "d, a",
    section="9.7.9.22",
    undefined="pair",
    requires=FAMILIES,
    needs=_DOWN,
    rnd=".rn .rz",
    form=".e2m3x2 .e3m2x2 .e2m1x2",
)
def cvt_narrow_f16x2(a: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float16, clamped; upper half to upper part."""
    return _pair(f32_of_f16(a >> 16), f32_of_f16(a & 0xFFFF), rnd, relu, pzo, form)


@instruction(
    "cvt.rnd.satfinite{.relu}{.pzo}.form.bf16x2",
    "d, a",
    section="9.7.9.22",
    undefined="pair",
    requires=FAMILIES,
    needs=_DOWN,
    rnd=".rn .rz",
    form=_NARROW,
)
def cvt_narrow_bf16x2(a: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two bfloat16, clamped; upper half to upper part."""
    return _pair(a & 0xFFFF0000, a << 16 & 0xFFFFFFFF, rnd, relu, pzo, form)


# With one ue8m0 scale, by which both values are divided.

_SCALED = "cvt.rnd.satfinite{.relu}{.pzo}.scaled::n1::ue8m0.form"


@scalar
def _scaled_pair(a: int, b: int, s: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    return _pair(scaled_f32(a, s), scaled_f32(b, s), rnd, relu, pzo, form)


@instruction(f"{_SCALED}.f32", "d, a, b, s:ue8m0", section="9.7.9.22", requires="107f", rnd=".rn .rz", form=_NARROW)
def cvt_narrow_f32_scaled(a: int, b: int, s: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float32, subnormals flushed, divided by the scale and clamped."""
    return _scaled_pair(f32_flush(a, 1), f32_flush(b, 1), s, rnd, relu, pzo, form)


@instruction(f"{_SCALED}.f16x2", "d, a, s:ue8m0", section="9.7.9.22", requires="107f", rnd=".rn .rz", form=_NARROW)
def cvt_narrow_f16x2_scaled(a: int, s: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two float16, subnormals flushed, divided by the scale and clamped."""
    return _scaled_pair(f32_of_flushed_f16(a >> 16), f32_of_flushed_f16(a & 0xFFFF), s, rnd, relu, pzo, form)


@instruction(
    f"{_SCALED}.bf16x2",
    "d, a, s:ue8m0",
    section="9.7.9.22",
    requires="107f",
    rnd=".rn .rz",
    form=_NARROW,
    braces="a",
)
def cvt_narrow_bf16x2_scaled(a: int, s: int, rnd: int, relu: int, pzo: int, form: int) -> int:
    """Two bfloat16, subnormals flushed, divided by the scale and clamped."""
    return _scaled_pair(f32_flush(a & 0xFFFF0000, 1), f32_flush(a << 16 & 0xFFFFFFFF, 1), s, rnd, relu, pzo, form)


# To float16 (exact) and bfloat16 (exact but for a scale's overflow and underflow).


@scalar
def _code(a: int, upper: int, form: int) -> int:
    """One code of a packed pair."""
    return (a >> narrow_field(form) if upper else a) & mask(narrow_field(form))


@scalar
def _f16(a: int, upper: int, relu: int, form: int) -> int:
    code = _code(a, upper, form)
    return 0x7FFF if narrow_is_nan(code, form) else half_relu(f16_from_f64(narrow_value(code, form), 0), relu)


@instruction("cvt.rn{.relu}.f16x2.form", "d, a", section="9.7.9.22", undefined="pair", requires=89, form=_F8)
@instruction(
    "cvt.rn{.relu}.f16x2.form",
    "d, a",
    section="9.7.9.22",
    undefined="pair",
    requires=FAMILIES,
    form=".e2m3x2 .e3m2x2 .e2m1x2",
)
def cvt_f16x2_narrow(a: int, form: int, relu: int) -> int:
    """Two codes to float16, exactly; upper part to upper half; NaN is 0x7fff, e5m2 infinities stay."""
    return _f16(a, 1, relu, form) << 16 | _f16(a, 0, relu, form)


@scalar
def bf16_scaled(x: float, s: int, relu: int, satfinite: int) -> int:
    """bfloat16 of a value times a ue8m0 scale, rounded once to nearest even; NaN is 0x7fff, of the scale too."""
    if x != x or s == 0xFF:
        return 0x7FFF
    result = bf16_from_f64(x * scale_value(s), 0)
    if satfinite and result & 0x7FFF == 0x7F80:
        result -= 1
    return half_relu(result, relu)


@scalar
def _bf16(a: int, upper: int, s: int, relu: int, satfinite: int, form: int) -> int:
    code = _code(a, upper, form)
    return 0x7FFF if narrow_is_nan(code, form) else bf16_scaled(narrow_value(code, form), s, relu, satfinite)


@instruction(
    "cvt.rn{.relu}{.satfinite}.bf16x2.form",
    "d, a",
    section="9.7.9.22",
    undefined="pair",
    requires=FAMILIES,
    form=_NARROW,
)
@instruction(
    "cvt.rn{.satfinite}.bf16x2.form", "d, a", section="9.7.9.22", undefined="pair", requires="107f", form=".ue5m3x2"
)
def cvt_bf16x2_narrow(a: int, form: int, satfinite: int, relu: int = 0) -> int:
    """Two codes to bfloat16, exactly; NaN is 0x7fff; .satfinite turns e5m2's infinities into the largest value."""
    return _bf16(a, 1, 127, relu, satfinite, form) << 16 | _bf16(a, 0, 127, relu, satfinite, form)


@instruction(
    "cvt.rn{.relu}{.satfinite}.scaled::n2::ue8m0.bf16x2.form",
    "d, a, s:ue8m0x2",
    section="9.7.9.22",
    requires=FAMILIES,
    form=_NARROW,
)
@instruction(
    "cvt.rn{.satfinite}.scaled::n2::ue8m0.bf16x2.form",
    "d, a, s:ue8m0x2",
    section="9.7.9.22",
    requires="107f",
    form=".ue5m3x2",
)
def cvt_bf16x2_narrow_scaled(a: int, s: int, form: int, satfinite: int, relu: int = 0) -> int:
    """Two codes to bfloat16, each times the scale in the same half of `s`."""
    high = _bf16(a, 1, s >> 8, relu, satfinite, form)
    return high << 16 | _bf16(a, 0, s & 0xFF, relu, satfinite, form)


@instruction("cvt.rn.f16x2.ue5m3x2", "d, a", section="9.7.9.22", requires="107f")
def cvt_f16x2_ue5m3x2(a: int) -> int:
    """Two ue5m3 codes to float16; NaN is 0x7fff. Codes above 65504 overflow to infinity."""
    return _f16(a, 1, 0, 5) << 16 | _f16(a, 0, 0, 5)
