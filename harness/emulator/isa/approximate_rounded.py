"""Approximate instructions, rounded to nearest: models for GPUs that were not measured (`approximate="rounded"`).

Special values, flushing and range follow the sequences that ptxas generates (equal on every target from sm_75 to
sm_121). Otherwise the result is the number of the format nearest to the true value; hardware may differ by the ulps
that the ISA states. `ptxdiff.emulator.numeric.elementary` says how the nearest number is found. NaN results are
0x7fffffff, of 16-bit formats 0x7fff.
"""

from __future__ import annotations

import math

from ptxdiff.emulator.isa.half import half_round
from ptxdiff.emulator.numeric.binary64 import F64_NAN
from ptxdiff.emulator.numeric.bits import (
    SIGN64,
    divide,
    f32_value,
    f64_bits,
    f64_value,
    scalar,
    shl64,
    square_root,
    to_float,
)
from ptxdiff.emulator.numeric.elementary import (
    exp2_f64,
    exp2_nearest,
    fraction_of_turn,
    log2_f64,
    rsqrt64,
    rsqrt_nearest,
    sine_of_turns,
    tanh_nearest,
)
from ptxdiff.emulator.numeric.floatbits import BF16, flush, value_of
from ptxdiff.emulator.numeric.softfloat import f32_finish, f32_flush, narrow
from ptxdiff.emulator.numeric.special_functions import reciprocal_significand


@scalar
def rcp_rounded(a: int, ftz: int) -> int:
    """About 1 / a, within 1 ulp; infinity for zero."""
    return f32_finish(divide(1.0, f32_value(f32_flush(a, ftz))), 0, ftz, 0)


@scalar
def _product(x: float, y: float) -> float:
    """The exact product of x and the unit's 1 / y, which hardware rounds to give a quotient; x, y finite and not 0."""
    bits = f64_bits(y)
    power = f64_value(2022 - (bits >> 52 & 0x7FF) << 52)
    return math.copysign(1.0, y) * x * (to_float(reciprocal_significand(bits >> 29 & 0x7FFFFF)) * power)


@scalar
def _beside(x: float, end: float) -> bool:
    """Whether x is within a few float32 ulps of an end of the range."""
    return abs(x - end) < end * 4.76837158203125e-7


@scalar
def div_full_rounded(a: int, b: int, ftz: int) -> int:
    """About a / b over the full range of b, within 2 ulp.

    Near the ends of the range the result is hardware's product, which decides overflow, zero and flushing (an H200:
    every significand of b with the numbers next to these ends, `tests/gpu/test_reciprocal_unit.py`).
    """
    x, y = f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz))
    quotient = divide(x, y)
    # 2**-126, or half of the least subnormal number, and 2**128.
    least = 1.1754943508222875e-38 if ftz else 7.006492321624085e-46
    if _beside(abs(quotient), least) or _beside(abs(quotient), 3.402823669209385e38):
        quotient = _product(x, y)
    return f32_finish(quotient, 0, ftz, 0)


@scalar
def div_approx_rounded(a: int, b: int, ftz: int) -> int:
    """About a times 1 / b, within 2 ulp; above 2**126 in magnitude, 1 / b counts as zero."""
    magnitude = b & 0x7FFFFFFF
    if 0x7E800000 < magnitude < 0x7F800000:
        b = (b & 0x80000000) | 0x7F800000
        if (a & 0x7FFFFFFF) == 0x7F800000:
            return 0x7FFFFFFF
    return div_full_rounded(a, b, ftz)


@scalar
def sqrt_rounded(a: int, ftz: int) -> int:
    """About the square root; -0 for -0, NaN for negative arguments."""
    return f32_finish(square_root(f32_value(f32_flush(a, ftz))), 0, 0, 0)


@scalar
def rsqrt_rounded(a: int, ftz: int) -> int:
    """About 1 / sqrt(a), within 2 ulp; an infinity of its sign for zero, NaN for negative arguments."""
    a = f32_flush(a, ftz)
    if a & 0x7FFFFFFF == 0:
        return a | 0x7F800000
    if a == 0x7F800000:
        return 0
    if a > 0x7F800000:
        return 0x7FFFFFFF
    return f32_finish(rsqrt_nearest(f32_value(a)), 0, 0, 0)


@scalar
def _turns(a: int) -> float:
    """The angle in turns as the hardware's unit receives it: times 1/(2 pi) of 24 bits, truncated; zero if
    subnormal."""
    t = f32_value(a) * 0.15915493667125702
    if abs(t) < 1.1754943508222875e-38:
        return 0.0 * t
    return f64_value(f64_bits(t) >> 29 << 29)


# The unit truncates the angle to 25 bits of a turn, and inverts the bits in the second and fourth quarter. Angles below
# this one become zero, and so does this angle at the end of such a quarter.
_UNIT = 2.0**-25


@scalar
def sin_rounded(a: int) -> int:
    """About the sine, within 2**-20.5 in [-2 pi, 2 pi]; .ftz makes no difference.

    The argument is reduced by one multiplication with a 24-bit 1/(2 pi), whose error grows with the argument and is
    reproduced; the model rounds the sine of the reduced angle to nearest. Within 2**-25 turns of a half or whole turn
    the result is zero. It has the angle's sign, from half a turn on the opposite sign (an H200, all such angles).
    """
    t = _turns(a)
    u = fraction_of_turn(t)
    left = min(abs(u), 0.5 - abs(u))
    left = 0.0 if left < _UNIT or (left == _UNIT and abs(u) > 0.25) else left
    sine = f32_finish(sine_of_turns(math.copysign(left, u if abs(u) < 0.5 else -u)), 0, 0, 0)
    return sine if t - t == 0.0 else 0x7FFFFFFF


@scalar
def cos_rounded(a: int) -> int:
    """About the cosine, within 2**-20.4 in [-2 pi, 2 pi]; the argument as in `sin_rounded`.

    A quarter turn gives -0. Three quarters, and angles at most 2**-25 turns before a quarter, give +0 (an H200, all
    such angles).
    """
    t = _turns(a)
    u = fraction_of_turn(abs(t))
    left = 0.25 - abs(u)
    left = math.copysign(0.0, left - u) if left == 0.0 else (0.0 if 0.0 < left <= _UNIT else left)
    cosine = f32_finish(sine_of_turns(left), 0, 0, 0)
    return cosine if t - t == 0.0 else 0x7FFFFFFF


@scalar
def lg2_rounded(a: int, ftz: int) -> int:
    """About log2; -infinity for zeros, NaN for negative arguments."""
    return f32_finish(log2_f64(f32_value(f32_flush(a, ftz))), 0, 0, 0)


@scalar
def ex2_rounded(a: int, ftz: int) -> int:
    """About 2**a, within 2 ulp."""
    return f32_finish(exp2_nearest(f32_value(f32_flush(a, ftz))), 0, ftz, 0)


@scalar
def tanh_rounded(a: int) -> int:
    """About the hyperbolic tangent, within a relative 2**-11; subnormal arguments are returned unchanged."""
    return f32_finish(tanh_nearest(f32_value(a)), 0, 0, 0)


# float64

_UPPER_NAN = 0x7FFFFFFF


@scalar
def _upper(a: int) -> float:
    """The value of a pattern whose lower half is replaced by zero; subnormals become zeros of their sign."""
    kept = a >> 32 << 32
    return f64_value(kept & SIGN64 if kept & 0x7FF0000000000000 == 0 else kept)


@scalar
def _of_upper(x: float) -> int:
    """The pattern with lower half zero that is nearest to x, with subnormals flushed."""
    upper = _UPPER_NAN if x != x else narrow(x, 11, 20, 0)
    return shl64(upper & 0x80000000 if upper & 0x7FF00000 == 0 else upper, 32)


@scalar
def rcp64_rounded(a: int) -> int:
    """About 1 / a to 20 bits: upper half of `a` to upper half of the result, whose lower half is zero."""
    return _of_upper(divide(1.0, _upper(a)))


@scalar
def rsqrt64_upper_rounded(a: int) -> int:
    """About 1 / sqrt(a) to 20 bits, upper half to upper half; an infinity of its sign for zero, NaN for negative
    arguments."""
    x = _upper(a)
    if x < 0.0 or x != x:
        return shl64(_UPPER_NAN, 32)
    return _of_upper(divide(1.0, x if x == 0.0 else math.sqrt(x)))


@scalar
def rsqrt64_rounded(a: int) -> int:
    """About 1 / sqrt(a); special values as in the sequence that ptxas inserts. A NaN argument is returned quiet."""
    magnitude = a & 0x7FFFFFFFFFFFFFFF
    if magnitude > 0x7FF0000000000000:
        return a | 0x0008000000000000
    if magnitude == 0:
        return a | 0x7FF0000000000000
    if a < 0:
        return F64_NAN
    return 0 if a == 0x7FF0000000000000 else rsqrt64(a)


# float16 and bfloat16


@scalar
def tanh_half_rounded(a: int, type: int) -> int:
    """About the hyperbolic tangent; subnormal arguments are returned unchanged."""
    return half_round(tanh_nearest(value_of(a, type)), type, 0)


@scalar
def ex2_half_rounded(a: int, type: int) -> int:
    """About 2**a; float16 keeps subnormals, bfloat16 flushes them on both sides.

    Below 2**-24, the least number of float16, the result is zero (an H200, all arguments).
    """
    bf16 = 1 if type == BF16 else 0
    exponent = value_of(flush(a, type, bf16), type)
    if exponent < -24.0 and not bf16:
        return 0
    return flush(half_round(exp2_f64(exponent), type, 0), type, bf16)


@scalar
def tanh_halves_rounded(a: int, type: int) -> int:
    """About two hyperbolic tangents."""
    return tanh_half_rounded(a & 0xFFFF, type) | tanh_half_rounded(a >> 16, type) << 16


@scalar
def ex2_halves_rounded(a: int, type: int) -> int:
    """About two powers of 2."""
    return ex2_half_rounded(a & 0xFFFF, type) | ex2_half_rounded(a >> 16, type) << 16
