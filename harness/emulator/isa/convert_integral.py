"""cvt from floats to integers, and to integral values of the same float type (ISA 9.7.9.22)."""

from __future__ import annotations

from ptxdiff.emulator.isa.convert_formats import f16_saturate, f64_is_nan, f64_saturate
from ptxdiff.emulator.isa.convert_integer import INTEGERS
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import SIGN64, f32_round, f32_value, f64_bits, f64_value, scalar, to_int
from ptxdiff.emulator.numeric.softfloat import (
    bf16_from_f64,
    bf16_value,
    f16_from_f64,
    f16_value,
    f32_flush,
    f32_saturate,
)

IRND = ".rni .rzi .rmi .rpi"


@scalar
def integral(x: float, rnd: int) -> float:
    """A float64 rounded to an integral value of the same sign; infinities and NaN unchanged.

    Modes RN (ties to even), RZ, RM, RP.
    """
    magnitude = abs(x)
    if not magnitude < 4503599627370496.0:
        return x
    # From 2**52 on float64 numbers are integers, so adding 2**52 rounds to an integer.
    r = (magnitude + 4503599627370496.0) - 4503599627370496.0
    negative = f64_bits(x) < 0
    if rnd != 0:
        outwards = rnd != 1 and negative == (rnd == 2)
        if outwards and r < magnitude:
            r += 1.0
        elif not outwards and r > magnitude:
            r -= 1.0
    return -r if negative else r


@scalar
def integer_of(x: float, rnd: int, width: int, signed: int, nan: int) -> int:
    """A float64 as an integer of a type, clamped to its range; `nan` for NaN."""
    if x != x:
        return nan
    r = integral(x, rnd)
    limit = f64_value((width - signed + 1023) << 52)
    if r >= limit:
        return -1 if width == 64 and not signed else (1 << (width - signed)) - 1
    if signed:
        return -(1 << (width - 1)) if r <= -limit else to_int(r)
    if r <= 0.0:
        return 0
    return to_int(r - 9223372036854775808.0) + SIGN64 if r >= 9223372036854775808.0 else to_int(r)


@scalar
def _integer_of_narrow(x: float, rnd: int, width: int, signed: int) -> int:
    """Like `integer_of`, for sources narrower than float64: NaN gives 0; in 64 bits only the top bit is set."""
    return integer_of(x, rnd, width, signed, SIGN64 if width == 64 else 0)


@instruction("cvt.rnd{.ftz}{.sat}.dtype.f32", "d, a", section="9.7.9.22", rnd=IRND, dtype=INTEGERS, relaxed=True)
def cvt_integer_f32(a: int, rnd: int, ftz: int, dwidth: int, dsigned: int) -> int:
    """The integer, clamped to the destination's range with or without .sat.

    NaN gives 0 in 8 to 32 bits, and in 64 bits only the top bit set (ISA 9.7.9.22, "Integer Notes").
    """
    return _integer_of_narrow(f32_value(f32_flush(a, ftz)), rnd, dwidth, dsigned)


@instruction("cvt.rnd{.sat}.dtype.f16", "d, a", section="9.7.9.22", rnd=IRND, dtype=INTEGERS, relaxed=True)
def cvt_integer_f16(a: int, rnd: int, dwidth: int, dsigned: int) -> int:
    """The integer, clamped to the destination's range; NaN as from float32."""
    return _integer_of_narrow(f16_value(a), rnd, dwidth, dsigned)


@instruction("cvt.rnd.dtype.bf16", "d, a", section="9.7.9.22", rnd=IRND, dtype=INTEGERS, requires=90)
def cvt_integer_bf16(a: int, rnd: int, dwidth: int, dsigned: int) -> int:
    """The integer, clamped to the destination's range; NaN as from float32."""
    return _integer_of_narrow(bf16_value(a), rnd, dwidth, dsigned)


@instruction("cvt.rnd{.sat}.dtype.f64", "d, a", section="9.7.9.22", rnd=IRND, dtype=INTEGERS, relaxed=True)
def cvt_integer_f64(a: int, rnd: int, dwidth: int, dsigned: int) -> int:
    """The integer, clamped to the destination's range; NaN gives a result with only the top bit set."""
    return integer_of(f64_value(a), rnd, dwidth, dsigned, SIGN64 if dwidth == 64 else 1 << (dwidth - 1))


@instruction("cvt.rnd{.ftz}{.sat}.f32.f32", "d, a", section="9.7.9.22", rnd=IRND, relaxed=True)
def cvt_integral_f32(a: int, rnd: int, ftz: int, sat: int) -> int:
    """Integral float32 of the source's sign; NaN is 0x7fffffff."""
    x = f32_value(f32_flush(a, ftz))
    return f32_saturate(0x7FFFFFFF if x != x else f32_round(integral(x, rnd)), sat)


@instruction("cvt.rnd{.sat}.f64.f64", "d, a", section="9.7.9.22", rnd=IRND, relaxed=True)
def cvt_integral_f64(a: int, rnd: int, sat: int) -> int:
    """Integral float64 of the source's sign; a NaN keeps sign and payload and becomes quiet."""
    if f64_is_nan(a):
        return 0 if sat else a | 0x8000000000000
    return f64_saturate(f64_bits(integral(f64_value(a), rnd)), sat)


@instruction("cvt.rnd{.sat}.f16.f16", "d, a", section="9.7.9.22", rnd=IRND, relaxed=True)
def cvt_integral_f16(a: int, rnd: int, sat: int) -> int:
    """Integral float16 of the source's sign; NaN is 0x7fff."""
    return f16_saturate(f16_from_f64(integral(f16_value(a), rnd), 0), sat)


@instruction("cvt.rnd.bf16.bf16", "d, a", section="9.7.9.22", rnd=IRND, requires=90)
def cvt_integral_bf16(a: int, rnd: int) -> int:
    """Integral bfloat16 of the source's sign; NaN is 0x7fff."""
    return bf16_from_f64(integral(bf16_value(a), rnd), 0)
