"""Approximate float32 instructions, as models (ISA 9.7.3.8, 9.7.3.13 to 9.7.3.22).

Special values, flushing and range follow the sequences that ptxas makes of them (the same on every target from sm_75
to sm_121); elsewhere the model gives the float32 nearest to the true value, which the hardware misses by the ulps
that the ISA bounds. How the nearest is found: `harness.ptx.numeric.elementary`. NaN results are 0x7fffffff.
"""

from __future__ import annotations

import math

from harness.ptx.isa.registry import instruction
from harness.ptx.numeric.bits import divide, f32_value, f64_bits, f64_value, scalar, square_root, to_float
from harness.ptx.numeric.elementary import (
    exp2_nearest,
    fraction_of_turn,
    log2_f64,
    rsqrt_nearest,
    sine_of_turns,
    tanh_nearest,
)
from harness.ptx.numeric.interpolator import reciprocal_significand
from harness.ptx.numeric.softfloat import f32_finish, f32_flush


@instruction("rcp.approx{.ftz}.f32", "d, a", section="9.7.3.13", approximate=True)
def rcp_approx(a: int, ftz: int) -> int:
    """About 1 / a, within 1 ulp; infinity for zero."""
    return f32_finish(divide(1.0, f32_value(f32_flush(a, ftz))), 0, ftz, 0)


@scalar
def _product(x: float, y: float) -> float:
    """x times the unit's own 1 / y, exactly: what hardware rounds for a quotient, for finite x and y that are not 0."""
    bits = f64_bits(y)
    power = f64_value(2022 - (bits >> 52 & 0x7FF) << 52)
    return math.copysign(1.0, y) * x * (to_float(reciprocal_significand(bits >> 29 & 0x7FFFFF)) * power)


@scalar
def _beside(x: float, end: float) -> bool:
    """Whether x is within some units of the last place of 24 bits of an end of the range."""
    return abs(x - end) < end * 4.76837158203125e-7


@instruction("div.full{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True)
def div_full(a: int, b: int, ftz: int) -> int:
    """About a / b over the full range of b, within 2 ulp.

    Beside the ends of the range the result is hardware's own product, which decides what overflows, becomes zero or is
    flushed (an H200: every significand of b with the numbers next to these ends, `tests/gpu/test_reciprocal_unit.py`).
    """
    x, y = f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz))
    quotient = divide(x, y)
    # 2**-126, or half of the least subnormal number, and 2**128.
    least = 1.1754943508222875e-38 if ftz else 7.006492321624085e-46
    if _beside(abs(quotient), least) or _beside(abs(quotient), 3.402823669209385e38):
        quotient = _product(x, y)
    return f32_finish(quotient, 0, ftz, 0)


@instruction("div.approx{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True)
def div_approx(a: int, b: int, ftz: int) -> int:
    """About a times 1 / b, within 2 ulp; above 2**126 in magnitude, 1 / b counts as zero."""
    magnitude = b & 0x7FFFFFFF
    if 0x7E800000 < magnitude < 0x7F800000:
        b = (b & 0x80000000) | 0x7F800000
        if (a & 0x7FFFFFFF) == 0x7F800000:
            return 0x7FFFFFFF
    return div_full(a, b, ftz)


@instruction("sqrt.approx{.ftz}.f32", "d, a", section="9.7.3.15", approximate=True)
def sqrt_approx(a: int, ftz: int) -> int:
    """About the square root; -0 for -0, NaN below zero."""
    return f32_finish(square_root(f32_value(f32_flush(a, ftz))), 0, 0, 0)


@instruction("rsqrt.approx{.ftz}.f32", "d, a", section="9.7.3.16", approximate=True)
def rsqrt_approx(a: int, ftz: int) -> int:
    """About 1 / sqrt(a), within 2 ulp; an infinity of its sign for zero, NaN below."""
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
    """The angle in turns as the hardware's unit gets it: times 1/(2 pi) of 24 bits, cut off, a subnormal one zero."""
    t = f32_value(a) * 0.15915493667125702
    if abs(t) < 1.1754943508222875e-38:
        return 0.0 * t
    return f64_value(f64_bits(t) >> 29 << 29)


# The unit cuts the angle to 25 bits of a turn, and turns the bits round in the second and fourth quarter: what lies
# below this angle is zero, and so is the angle itself at the end of such a quarter.
_UNIT = 2.0**-25


@instruction("sin.approx{.ftz}.f32", "d, a", section="9.7.3.18", approximate=True)
def sin_approx(a: int) -> int:
    """About the sine, within 2**-20.5 in [-2 pi, 2 pi]; .ftz makes no difference.

    The argument is reduced by one multiplication with a 24-bit 1/(2 pi), whose error grows with the argument and is
    reproduced; the model is nearest to the sine of what that leaves. Within 2**-25 turns of a half or whole turn the
    result is zero, of the angle's sign, from half a turn on of the other (an H200, all of them).
    """
    t = _turns(a)
    u = fraction_of_turn(t)
    left = min(abs(u), 0.5 - abs(u))
    left = 0.0 if left < _UNIT or (left == _UNIT and abs(u) > 0.25) else left
    sine = f32_finish(sine_of_turns(math.copysign(left, u if abs(u) < 0.5 else -u)), 0, 0, 0)
    return sine if t - t == 0.0 else 0x7FFFFFFF


@instruction("cos.approx{.ftz}.f32", "d, a", section="9.7.3.19", approximate=True)
def cos_approx(a: int) -> int:
    """About the cosine, within 2**-20.4 in [-2 pi, 2 pi]; the argument as in `sin_approx`.

    A quarter turn gives -0, three quarters and what is at most 2**-25 turns before a quarter +0 (an H200, all of them).
    """
    t = _turns(a)
    u = fraction_of_turn(abs(t))
    left = 0.25 - abs(u)
    left = math.copysign(0.0, left - u) if left == 0.0 else (0.0 if 0.0 < left <= _UNIT else left)
    cosine = f32_finish(sine_of_turns(left), 0, 0, 0)
    return cosine if t - t == 0.0 else 0x7FFFFFFF


@instruction("lg2.approx{.ftz}.f32", "d, a", section="9.7.3.20", approximate=True)
def lg2_approx(a: int, ftz: int) -> int:
    """About log2; -infinity for zeros, NaN below."""
    return f32_finish(log2_f64(f32_value(f32_flush(a, ftz))), 0, 0, 0)


@instruction("ex2.approx{.ftz}.f32", "d, a", section="9.7.3.21", approximate=True)
def ex2_approx(a: int, ftz: int) -> int:
    """About 2**a, within 2 ulp."""
    return f32_finish(exp2_nearest(f32_value(f32_flush(a, ftz))), 0, ftz, 0)


@instruction("tanh.approx.f32", "d, a", section="9.7.3.22", requires=75, approximate=True)
def tanh_approx(a: int) -> int:
    """About the hyperbolic tangent, within a relative 2**-11; subnormals come back as they are."""
    return f32_finish(tanh_nearest(f32_value(a)), 0, 0, 0)
