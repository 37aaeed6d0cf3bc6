"""The MUFU instructions of Hopper's special function unit on float32 patterns, bit for bit.

Each function reduces its argument as the hardware does, interpolates with its segment's coefficients from
`ptxdiff.emulator.numeric.hopper`, and truncates the result to its format. Subnormal arguments count as zeros of their
sign and subnormal results become zeros (except for `tanh`); NaN results are 0x7fffffff. Only powers of 4 (rsqrt), 1
(lg2) and integers (ex2) are special cases.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxdiff.emulator.numeric import hopper
from ptxdiff.emulator.numeric.bits import f64_bits, scalar, to_float
from ptxdiff.emulator.numeric.interpolator import interpolated

_STEPS = (1 << 17) - 1


def _table(*columns: tuple[int, ...]) -> NDArray[np.int64]:
    """Coefficients by column, so that compiled code reads them without a branch."""
    return np.array(columns, np.int64)


_RCP = _table(hopper.RCP_CONSTANT, hopper.RCP_SLOPE, hopper.RCP_CURVE)
_RSQRT = _table(hopper.RSQRT_CONSTANT, hopper.RSQRT_SLOPE, hopper.RSQRT_CURVE)
_SQRT = _table(hopper.SQRT_CONSTANT, hopper.SQRT_SLOPE, hopper.SQRT_CURVE)
_EX2 = _table(hopper.EX2_CONSTANT, hopper.EX2_SLOPE, hopper.EX2_CURVE)
_LG2 = _table(hopper.LG2_CONSTANT, hopper.LG2_SLOPE, hopper.LG2_CURVE)
_SIN = _table(hopper.SIN_CONSTANT, hopper.SIN_SLOPE, hopper.SIN_CURVE)
_TANH = _table(hopper.TANH_CONSTANT, hopper.TANH_SLOPE, hopper.TANH_CURVE)

_NAN = 0x7FFFFFFF
_INFINITY = 0x7F800000
_ONE = 0x3F800000
_FRACTION = 0x7FFFFF
_HIDDEN = 0x800000


@scalar
def reciprocal_significand(fraction: int) -> int:
    """1 / (1 + fraction * 2**-23), in units of 2**-24, from 2**23 to 2**24, for a fraction of 23 bits."""
    segment = fraction >> 16 & 127
    constant = (int(_RCP[0, segment]) << 14) + 4046
    slope, curve = int(_RCP[1, segment]), int(_RCP[2, segment]) << 1
    return interpolated(constant, slope, curve, fraction << 1 & _STEPS) >> 16


@scalar
def reciprocal_root_significand(odd: int, fraction: int) -> int:
    """1 / sqrt((1 + fraction * 2**-23) * 2**odd), in units of 2**-24, from 2**23 to 2**24; exact for 1."""
    segment = odd << 6 | fraction >> 17 & 63
    constant = (int(_RSQRT[0, segment]) << 14) + 16383
    slope, curve = int(_RSQRT[1, segment]), int(_RSQRT[2, segment]) << 2
    root = interpolated(constant, slope, curve, fraction & _STEPS) >> 16
    return 0x1000000 if odd | fraction == 0 else root


@scalar
def root_significand(odd: int, fraction: int) -> int:
    """sqrt((1 + fraction * 2**-23) * 2**odd), in units of 2**-23."""
    segment = odd << 6 | fraction >> 17 & 63
    constant = (int(_SQRT[0, segment]) << 15) + 32767
    slope, curve = int(_SQRT[1, segment]), int(_SQRT[2, segment]) << 1
    return interpolated(constant, slope, curve, fraction & _STEPS) >> 17


@scalar
def power_significand(fraction: int) -> int:
    """2**(fraction * 2**-23), in units of 2**-23, for a fraction of 23 bits."""
    segment = fraction >> 17 & 63
    constant = (int(_EX2[0, segment]) << 14) + 12228
    slope, curve = int(_EX2[1, segment]), int(_EX2[2, segment]) << 1
    return interpolated(constant, slope, curve, fraction & _STEPS) >> 16


@scalar
def logarithm(fraction: int) -> int:
    """log2(1 + fraction * 2**-23), in units of 2**-36."""
    segment = fraction >> 17 & 63
    constant = (int(_LG2[0, segment]) << 12) + 837
    slope, curve = int(_LG2[1, segment]), int(_LG2[2, segment]) << 1
    return interpolated(constant, slope, curve, fraction & _STEPS) >> 2


@scalar
def sine(angle: int) -> int:
    """The sine of 0 <= angle < 2**23 in units of 2**-25 turns, in units of 2**-37."""
    segment = angle >> 17 & 63
    constant, slope, curve = int(_SIN[0, segment]) << 11, int(_SIN[1, segment]), int(_SIN[2, segment])
    return interpolated(constant, slope, curve, angle & _STEPS)


@scalar
def _cut_float32(value: int, scale: int) -> int:
    """The float32 pattern of value * 2**-scale, truncated, for 0 <= value < 2**52; zero for zero."""
    return (f64_bits(to_float(value)) >> 29) - (896 + scale << 23) if value else 0


@scalar
def unit_rcp(a: int) -> int:
    """MUFU.RCP: 1 / a."""
    exponent, fraction, sign = a >> 23 & 0xFF, a & _FRACTION, a & 0x80000000
    result = (252 - exponent << 23) + reciprocal_significand(fraction)
    # The least normal number is 2**-126; smaller results come from exponents 253 and 254, or from infinity.
    result = 0 if result < _HIDDEN else result
    result = _INFINITY if exponent == 0 else result
    result = 0 if exponent == 255 else result
    return _NAN if a & 0x7FFFFFFF > _INFINITY else sign | result


@scalar
def unit_rsqrt(a: int) -> int:
    """MUFU.RSQ: 1 / sqrt(a); an infinity of its sign for zero, NaN for negative arguments."""
    exponent, fraction = a >> 23 & 0xFF, a & _FRACTION
    result = (125 - (exponent - 127 >> 1) << 23) + reciprocal_root_significand(~exponent & 1, fraction)
    result = 0 if a == _INFINITY else result
    result = _NAN if a > _INFINITY else result
    return (a & 0x80000000) | _INFINITY if exponent == 0 else result


@scalar
def unit_sqrt(a: int) -> int:
    """MUFU.SQRT: sqrt(a); a zero of its sign for zero, NaN for negative arguments."""
    exponent, fraction = a >> 23 & 0xFF, a & _FRACTION
    result = (126 + (exponent - 127 >> 1) << 23) + root_significand(~exponent & 1, fraction)
    result = a if a == _INFINITY else result
    result = _NAN if a > _INFINITY else result
    return a & 0x80000000 if exponent == 0 else result


@scalar
def unit_ex2(a: int) -> int:
    """MUFU.EX2: 2**a. The argument is truncated to 23 fraction bits; all bits of a negative one are inverted.

    The inversion makes a negative argument 2**-23 too small, except for integers, which keep their values.
    """
    exponent = a >> 23 & 0xFF
    # Arguments from 2**9 on all overflow or underflow; the shift turns subnormal arguments into 0.
    size = (a & _FRACTION | _HIDDEN) << min(max(exponent - 103, 0), 33) >> 24
    negative = a >> 31 & 1
    fixed = (size ^ -negative) + (negative & (size & _FRACTION == 0))
    result = (126 + (fixed >> 23) << 23) + power_significand(fixed & _FRACTION)
    result = 0 if result < _HIDDEN else min(result, _INFINITY)
    return _NAN if a & 0x7FFFFFFF > _INFINITY else result


@scalar
def unit_lg2(a: int) -> int:
    """MUFU.LG2: log2(a), special-cased only for 1; -infinity for zeros, NaN for negative arguments.

    The exponent and the logarithm of the significand form one fixed-point number; if it is negative, all its bits are
    inverted.
    """
    exponent = a >> 23 & 0xFF
    fixed = (exponent - 127 << 36) + logarithm(a & _FRACTION)
    result = _cut_float32(fixed ^ (fixed >> 63), 36) | ((fixed >> 63) & 0x80000000)
    result = 0 if a == _ONE else result
    result = a if a == _INFINITY else result
    result = _NAN if a > _INFINITY else result
    return 0xFF800000 if exponent == 0 else result


@scalar
def _sine_of_turns(a: int, quarters: int) -> int:
    """The sine of a float32's magnitude in turns plus a number of quarters. The angle is truncated to 25 fraction bits.

    In the second and fourth quarter the bits of the angle are inverted, so that it decreases, starting 2**-25 turns
    below a full quarter.
    """
    exponent = a >> 23 & 0xFF
    # The shift discards whole turns; arguments from 2**26 on are whole turns.
    fixed = (a & _FRACTION | _HIDDEN) << min(max(exponent - 101, 0), 50) >> 24
    quarter = (fixed >> 23) + quarters
    angle = (fixed ^ -(quarter & 1)) & _FRACTION
    return _cut_float32(sine(angle), 37) | (quarter & 2) << 30


@scalar
def unit_sin(a: int) -> int:
    """MUFU.SIN: the sine of `a` turns."""
    result = _sine_of_turns(a, 0) ^ (a & 0x80000000)
    return _NAN if a & 0x7FFFFFFF >= _INFINITY else result


@scalar
def unit_cos(a: int) -> int:
    """MUFU.COS: the cosine of `a` turns."""
    return _NAN if a & 0x7FFFFFFF >= _INFINITY else _sine_of_turns(a, 1)


# For each binade from 2**-8 on: how many fraction bits choose a segment, and the first segment.
_TANH_CHOOSING = np.array((0, 0, 0, 1, 1, 2, 2, 2, 3, 4, 3, 0, 0, 0, 0, 0), np.int64)
_TANH_FIRST = np.array((0, 1, 2, 3, 5, 7, 11, 15, 19, 27, 43, 0, 0, 0, 0, 0), np.int64)


@scalar
def unit_tanh(a: int) -> int:
    """MUFU.TANH: the hyperbolic tangent.

    Below 2**-8 in magnitude it returns the argument, also if subnormal; from 8 on 1.
    """
    size = a & 0x7FFFFFFF
    binade = (size >> 23) - 119 & 15
    choosing = int(_TANH_CHOOSING[binade])
    # A segment has 2**17 inputs, so lower bits of the 23-bit fraction are truncated.
    place = (a & _FRACTION) >> 23 - 17 - choosing
    segment = int(_TANH_FIRST[binade]) + (place >> 17) & 63
    constant, slope, curve = int(_TANH[0, segment]) << 15, int(_TANH[1, segment]), int(_TANH[2, segment])
    value = interpolated(constant, slope, curve, place & _STEPS)
    result = _cut_float32(value, 39)
    result = size if size < 0x3B800000 else (_ONE if size >= 0x41000000 else result)
    return _NAN if size > _INFINITY else (a & 0x80000000) | result
