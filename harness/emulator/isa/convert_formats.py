"""Rounding and number formats shared by the conversions.

A float32 is rounded to a narrower format on its bit pattern: a number that depends on the rounding mode is added to the
significand, which is then shifted right. Patterns of float16 and bfloat16 are first widened to float32, which is exact.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator.numeric.bits import f32_round, f32_value, f64_bits, f64_value, mask, scalar
from ptxdiff.emulator.numeric.softfloat import f16_value, f32_is_nan
from ptxdiff.emulator.text.types import BY_CODE

RS = 5
"""Rounding mode: stochastic, by the random bits given."""


@scalar
def f64_pattern(x: float) -> int:
    """The bit pattern of a float64 that is not a NaN (the payload of a NaN would depend on the host)."""
    return f64_bits(x)


@scalar
def f64_is_nan(a: int) -> bool:
    """Whether a float64 pattern is a NaN."""
    return (a & 0x7FFFFFFFFFFFFFFF) > 0x7FF0000000000000


@scalar
def f64_saturate(a: int, sat: int) -> int:
    """A float64 pattern clamped to [0, 1], NaN and -0 to +0, if `sat`."""
    if sat:
        if a < 0 or a > 0x7FF0000000000000:
            return 0
        if a > 0x3FF0000000000000:
            return 0x3FF0000000000000
    return a


@scalar
def f16_saturate(a: int, sat: int) -> int:
    """A float16 pattern clamped to [0, 1], NaN and -0 to +0, if `sat`."""
    if sat:
        if a > 0x7C00:
            return 0
        if a > 0x3C00:
            return 0x3C00
    return a


@scalar
def f32_of_f16(a: int) -> int:
    """The float32 pattern of a float16; NaN gives 0x7fffffff."""
    return 0x7FFFFFFF if (a & 0x7FFF) > 0x7C00 else f32_round(f16_value(a))


@scalar
def f32_of_flushed_f16(a: int) -> int:
    """The float32 pattern of a float16 with subnormals replaced by zero of their sign."""
    return f32_of_f16(a if a & 0x7C00 else a & 0x8000)


@scalar
def shrink(a: int, mantissa_bits: int, bias: int, rnd: int, random: int, random_bits: int) -> int:
    """The code, without sign, of the magnitude of a finite float32 pattern in a narrower format.

    The code may exceed the format's largest, as if the exponent were unbounded; the caller clamps it. `rnd`: RN, RZ,
    RM, RP, RNA or RS. For RS the `random_bits` bits of `random` are added to the upper end of the discarded bits, and a
    carry rounds away from zero.
    """
    magnitude = a & 0x7FFFFFFF
    exponent = magnitude >> 23
    significand = magnitude & 0x7FFFFF
    if exponent:
        significand |= 0x800000
    else:
        exponent = 1
    place = exponent - 127 + bias
    drop = 23 - mantissa_bits
    if place < 1:
        # For shifts above 40 the significand cannot affect the kept bits, not even by a carry from random bits.
        drop = min(drop + 1 - place, 40)
        place = 1
    if rnd == 0:
        add = (1 << (drop - 1)) - 1 + (significand >> drop & 1)
    elif rnd == 1:
        add = 0
    elif rnd == 4:
        add = 1 << (drop - 1)
    elif rnd == 5:
        add = random << (drop - random_bits)
    else:
        add = mask(drop) if (a > 0x7FFFFFFF) == (rnd == 2) else 0
    # The hidden bit of a normal number adds one to the exponent field.
    return ((place - 1) << mantissa_bits) + ((significand + add) >> drop)


@scalar
def half_from_f32(
    a: int, mantissa_bits: int, bias: int, infinity: int, rnd: int, random: int, random_bits: int, satfinite: int
) -> int:
    """float16 or bfloat16 pattern of a float32; NaN gives 0x7fff.

    Overflow gives infinity; if the mode rounds towards zero there, or with .satfinite, the largest finite value. With
    .satfinite infinity gives it too.
    """
    magnitude = a & 0x7FFFFFFF
    if magnitude > 0x7F800000:
        return 0x7FFF
    sign = a >> 16 & 0x8000
    code = shrink(a, mantissa_bits, bias, rnd, random, random_bits)
    if magnitude == 0x7F800000:
        code = infinity
    elif code >= infinity:
        inwards = rnd == 1 or (rnd == 2 and not sign) or (rnd == 3 and sign != 0)
        code = infinity - 1 if inwards else infinity
    if satfinite and code == infinity:
        code = infinity - 1
    return sign | code


@scalar
def f16_from_f32(a: int, rnd: int, satfinite: int) -> int:
    """float16 pattern of a float32 pattern; see `half_from_f32`."""
    return half_from_f32(a, 10, 15, 0x7C00, rnd, 0, 13, satfinite)


@scalar
def bf16_from_f32(a: int, rnd: int, satfinite: int) -> int:
    """bfloat16 pattern of a float32 pattern; see `half_from_f32`."""
    return half_from_f32(a, 7, 127, 0x7F80, rnd, 0, 16, satfinite)


@scalar
def half_relu(a: int, relu: int) -> int:
    """A float16 or bfloat16 pattern with negative values and -0 replaced by +0, if `relu`; the NaN is positive."""
    return 0 if relu and a & 0x8000 else a


@scalar
def no_negative_zero(a: int, sign: int, pzo: int) -> int:
    """A pattern, with -0 (only the sign bit set) replaced by +0 if `pzo`."""
    return 0 if pzo and a == sign else a


def _column(name: str) -> NDArray[np.int64]:
    """An array of one property, indexed by the format's number. Compiled code reads it without a branch."""
    return np.array([getattr(BY_CODE[code], name) for code in range(len(BY_CODE))], np.int64)


_FIELD = _column("field")
_MANTISSA = _column("mantissa_bits")
_BIAS = _column("bias")
_SIGN = _column("sign")
_LARGEST = _column("largest")
_ONES = _column("ones")
_FIRST_NAN = _column("first_nan")
_INFINITY = _column("infinity")


@scalar
def narrow_field(form: int) -> int:
    """Bits of one code in a packed register; `form` is the code of a row in `ptxdiff.emulator.text.types`."""
    return int(_FIELD[form])


@scalar
def narrow_sign(form: int) -> int:
    """The sign bit of a narrow format; 0 for an unsigned one."""
    return int(_SIGN[form])


@scalar
def narrow_magnitude(code: int, form: int) -> int:
    """A narrow code without its sign bit and without the bits above the format."""
    return code & int(_ONES[form])


@scalar
def narrow_from_f32(a: int, form: int, rnd: int, relu: int, random: int) -> int:
    """Code of a float32 pattern in a narrow signed format, clamped to the largest finite value."""
    if f32_is_nan(a):
        return int(_ONES[form])  # the NaN; in a format without NaN the largest value
    negative = a > 0x7FFFFFFF
    if relu and negative:
        return 0
    code = min(shrink(a, int(_MANTISSA[form]), int(_BIAS[form]), rnd, random, 16), int(_LARGEST[form]))
    return code | narrow_sign(form) if negative else code


@scalar
def narrow_value(code: int, form: int) -> float:
    """The value of a narrow code that is no NaN; bits above the format are ignored."""
    bits = narrow_magnitude(code, form)
    mantissa_bits = int(_MANTISSA[form])
    exponent = bits >> mantissa_bits
    fraction = bits & mask(mantissa_bits)
    if bits == int(_INFINITY[form]):
        magnitude = 1e300 * 1e300
    elif exponent == 0:
        magnitude = fraction * two_to(1 - int(_BIAS[form]) - mantissa_bits)
    else:
        magnitude = (fraction + (1 << mantissa_bits)) * two_to(exponent - int(_BIAS[form]) - mantissa_bits)
    return -magnitude if code & int(_SIGN[form]) else magnitude


@scalar
def narrow_is_nan(code: int, form: int) -> bool:
    """Whether a narrow code is a NaN."""
    return narrow_magnitude(code, form) >= int(_FIRST_NAN[form])


@scalar
def two_to(exponent: int) -> float:
    """A power of two in float64's normal range."""
    return f64_value((exponent + 1023) << 52)


@scalar
def scale_value(s: int) -> float:
    """The value of a ue8m0 code other than 0xff, its NaN: 2 to the power of s - 127."""
    return two_to(s - 127)


@scalar
def scaled_f32(a: int, s: int) -> int:
    """A float32 pattern divided by a ue8m0 scale; NaN is 0x7fffffff, of the scale too.

    A quotient outside float32's range becomes infinity or (nearly) zero, which gives the same code in every narrow
    format.
    """
    if f32_is_nan(a) or s == 0xFF:
        return 0x7FFFFFFF
    return f32_round(f32_value(a) * two_to(127 - s))
