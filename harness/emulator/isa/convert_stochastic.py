"""cvt.rs: stochastic rounding by random bits that the caller supplies (ISA 9.7.9.22).

The random bits are added to the upper end of the discarded bits, and a carry rounds away from zero. The text of the ISA
says which 16 bits of `rbits` belong to which two of four values; how the two share them is only in its figures. That
the first of the two reads the bits in reverse was reported from measurements on a B200. (A first print of ISA 9.4 had
.pzo in these forms; a later one does not, and ptxas 13.4 refuses it.)
"""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import RS, half_from_f32, half_relu, narrow_field, narrow_from_f32
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar

_TARGETS = "100a 103a 107a"


@instruction(
    "cvt.rs{.relu}{.satfinite}.f16x2.f32",
    "d, a, b, r:tf32",
    section="9.7.9.22",
    requires=_TARGETS,
    relaxed=True,
    undefined="sources",
)
def cvt_f16x2_f32_rs(a: int, b: int, r: int, relu: int, satfinite: int) -> int:
    """Two float32 to float16: `a` with bits 16 to 28 of `r` to the upper half, `b` with bits 0 to 12 to the lower."""
    high = half_relu(half_from_f32(a, 10, 15, 0x7C00, RS, r >> 16 & 0x1FFF, 13, satfinite), relu)
    return high << 16 | half_relu(half_from_f32(b, 10, 15, 0x7C00, RS, r & 0x1FFF, 13, satfinite), relu)


@instruction(
    "cvt.rs{.relu}{.satfinite}.bf16x2.f32",
    "d, a, b, r:tf32",
    section="9.7.9.22",
    requires=_TARGETS,
    undefined="sources",
)
def cvt_bf16x2_f32_rs(a: int, b: int, r: int, relu: int, satfinite: int) -> int:
    """Two float32 to bfloat16: `a` with the upper half of `r` to the upper half, `b` with the lower to the lower."""
    high = half_relu(half_from_f32(a, 7, 127, 0x7F80, RS, r >> 16, 16, satfinite), relu)
    return high << 16 | half_relu(half_from_f32(b, 7, 127, 0x7F80, RS, r & 0xFFFF, 16, satfinite), relu)


@scalar
def reversed16(x: int) -> int:
    """Sixteen bits in reverse order."""
    x = (x & 0x5555) << 1 | (x >> 1 & 0x5555)
    x = (x & 0x3333) << 2 | (x >> 2 & 0x3333)
    x = (x & 0x0F0F) << 4 | (x >> 4 & 0x0F0F)
    return (x & 0xFF) << 8 | x >> 8


@instruction(
    "cvt.rs{.relu}.satfinite.form.f32",
    "d, {a b e f}, r:tf32",
    section="9.7.9.22",
    requires=_TARGETS,
    undefined="sources",
    form=".e4m3x4 .e5m2x4 .e2m3x4 .e3m2x4 .e2m1x4",
)
def cvt_narrow_f32_rs(a: int, b: int, e: int, f: int, r: int, relu: int, form: int) -> int:
    """Four float32, `a` to the uppermost code, clamped to the largest finite value.

    a and b share 16 random bits, e and f the other 16: the upper and lower half of `r`, for e2m1 the upper and
    the lower bytes of both halves. a and e read theirs in reverse.
    """
    upper, lower = r >> 16, r & 0xFFFF
    if narrow_field(form) == 4:
        upper, lower = (r >> 16 & 0xFF00) | (r >> 8 & 0xFF), (r >> 8 & 0xFF00) | (r & 0xFF)
    field = narrow_field(form)
    high = narrow_from_f32(a, form, RS, relu, reversed16(upper)) << field | narrow_from_f32(b, form, RS, relu, upper)
    low = narrow_from_f32(e, form, RS, relu, reversed16(lower)) << field | narrow_from_f32(f, form, RS, relu, lower)
    return high << 2 * field | low
