"""Elementary functions rounded to nearest, for the models of approximate instructions.

Why the result is the nearest float32: the float64 value here has an error of at most two float64 ulps (four for tanh).
An exhaustive search over every float32 argument (with 300 bits) found how near the true values come to the midpoint
between two float32 numbers. For log2 and tanh they stay 2.6 and 5 such ulps away, so rounding the float64 value is
correct. For 2**x and the sine they come nearer, so the arguments within four ulps are listed with their results and
looked up. For 16-bit formats every argument is at least 2**-27 away. `tests/emulator/isa/test_approximate.py` checks
all this with mpmath.

All code is straight-line arithmetic: compilers vectorise it, a GPU can run it, and no result depends on the host's math
library.
"""

from __future__ import annotations

import math

from ptxdiff.emulator.numeric.binary64 import fma64
from ptxdiff.emulator.numeric.bits import (
    SIGN64,
    divide,
    f32_round,
    f32_value,
    f64_bits,
    f64_value,
    scalar,
    square_root,
    to_float,
)

EX2_HARD = (
    (float.fromhex("-0x1.3e53bcp-3"), 0x3F65DA56),
    (float.fromhex("-0x1.e7526ep-6"), 0x3F7AC6B1),
    (float.fromhex("-0x1.d85680p-10"), 0x3F7FAE34),
    (float.fromhex("-0x1.a7a04cp-14"), 0x3F7FFB69),
    (float.fromhex("-0x1.5a3f34p-21"), 0x3F7FFFF8),
    (float.fromhex("0x1.0f39eep-18"), 0x3F800018),
    (float.fromhex("0x1.0f0af8p-11"), 0x3F800BBE),
    (float.fromhex("0x1.853a6ep-9"), 0x3F804385),
    (float.fromhex("0x1.05535ap-7"), 0x3F80B5A3),
)
"""Arguments of 2**x whose float64 value does not decide the nearest float32, with that float32's pattern."""

SINE_HARD = (
    (float.fromhex("0x1.ca9b6ap-23"), 0x35B41836),
    (float.fromhex("0x1.d595ecp-16"), 0x393867E5),
    (float.fromhex("0x1.dd7320p-7"), 0x3DBB3B76),
    (float.fromhex("0x1.fafebp-5"), 0x3EC21DD8),
    (float.fromhex("0x1.ffbc6f2c8p-3"), 0x3F7FFFFB),
)
"""The same for the sine of u turns, 0 < u <= 1/4."""

# One comparison each, because choosing between constants is faster than a look-up.
_HARD0, _HARD1, _HARD2, _HARD3, _HARD4 = (u for u, _ in SINE_HARD)
_SINE0, _SINE1, _SINE2, _SINE3, _SINE4 = (f32_value(pattern) for _, pattern in SINE_HARD)

# 2 pi in two parts, the first of 28 bits: its product with 24 bits is exact.
_TURN_HIGH = float.fromhex("0x1.921fb54p+2")
_TURN_LOW = float.fromhex("0x1.10b4611a62633p-28")

# The logarithm of 2 in two parts, the first of 28 bits, and its reciprocal likewise.
_LOG2_HIGH = float.fromhex("0x1.62e42fep-1")
_LOG2_LOW = float.fromhex("0x1.f473de6af278fp-30")
_PER_LOG2_HIGH = float.fromhex("0x1.7154764p+0")
_PER_LOG2_LOW = float.fromhex("0x1.2b82fe1777d1p-28")

_SHIFT = 6755399441055744.0
"""1.5 * 2**52: added to a number below 2**51, it leaves the nearest integer in the last bits."""
_SHIFT_BITS = f64_bits(_SHIFT)


@scalar
def near_middle(x: float) -> bool:
    """Whether a float64 in float32's normal range is within two ulps of the midpoint between two float32 numbers."""
    return abs((f64_bits(x) & 0x1FFFFFFF) - 0x10000000) <= 2


@scalar
def _exponential_rest(r: float) -> float:
    """(e**r - 1 - r) / r**2 for |r| up to log(2) / 2: Taylor's series; the remainder is below a relative 2**-57."""
    p = r * (1 / 6227020800.0) + 1 / 479001600.0
    p = p * r + 1 / 39916800.0
    p = p * r + 1 / 3628800.0
    p = p * r + 1 / 362880.0
    p = p * r + 1 / 40320.0
    p = p * r + 1 / 5040.0
    p = p * r + 1 / 720.0
    p = p * r + 1 / 120.0
    p = p * r + 1 / 24.0
    p = p * r + 1 / 6.0
    return p * r + 0.5


@scalar
def exp2_f64(x: float) -> float:
    """2**x in float64, for x of 24 bits or fewer; near 0 and infinity from 1000 on."""
    shifted = min(max(x, -1000.0), 1000.0) + _SHIFT
    r = min(max(x, -1000.0), 1000.0) - (shifted - _SHIFT)
    high, low = r * _LOG2_HIGH, r * _LOG2_LOW
    z = high + low
    sum_ = 1.0 + high
    y = sum_ + ((1.0 - sum_ + high) + (low + z * z * _exponential_rest(z)))
    power = f64_value((f64_bits(shifted) - _SHIFT_BITS + 1023) << 52)
    return x if x != x else y * power


@scalar
def exp2_nearest(x: float) -> float:
    """2**x as a float64 that rounds to the float32 nearest to the true value, for a float32 x."""
    y = exp2_f64(x)
    if near_middle(y):
        for argument, pattern in EX2_HARD:
            if argument == x:
                return f32_value(pattern)
    return y


@scalar
def log2_f64(x: float) -> float:
    """log2 in float64, for x of 24 bits or fewer: -infinity at zero, NaN below.

    log2(m * 2**n) with m from sqrt(1/2) to sqrt(2), and log(1 + f) as f - f**2 / 2 and a series in f / (2 + f).
    """
    bits = f64_bits(x)
    n = bits - 0x3FE6A09E667F3BCD >> 52
    f = f64_value(bits - (n << 52)) - 1.0
    s = divide(f, 2.0 + f)
    z = s * s
    p = z * (2 / 25.0) + 2 / 23.0
    p = p * z + 2 / 21.0
    p = p * z + 2 / 19.0
    p = p * z + 2 / 17.0
    p = p * z + 2 / 15.0
    p = p * z + 2 / 13.0
    p = p * z + 2 / 11.0
    p = p * z + 2 / 9.0
    p = p * z + 2 / 7.0
    p = p * z + 2 / 5.0
    p = p * z + 2 / 3.0
    half = 0.5 * f * f
    # In two parts, the first of 24 bits.
    high = f32_value(f32_round(f - half))
    low = ((f - high) - half) + s * (half + p * z)
    head = high * _PER_LOG2_HIGH
    rest = (low + high) * _PER_LOG2_LOW + low * _PER_LOG2_HIGH
    whole = to_float(n)
    total = whole + head
    y = total + (rest + ((whole - total) + head))
    y = math.inf if x == math.inf else y
    return (-math.inf if x == 0.0 else y) if x >= 0.0 else math.nan


@scalar
def sine_of_turns(u: float) -> float:
    """The sine of u turns, -1/4 <= u <= 1/4, as a float64 that rounds to the nearest float32."""
    head = f32_value(f32_round(u))
    high = head * _TURN_HIGH
    rest = (u - head) * _TURN_HIGH + u * _TURN_LOW
    angle = high + rest
    z = angle * angle
    # Taylor's series; the remainder is below 2**-59 of the sine.
    p = z * (1 / 51090942171709440000.0) - 1 / 121645100408832000.0
    p = p * z + 1 / 355687428096000.0
    p = p * z - 1 / 1307674368000.0
    p = p * z + 1 / 6227020800.0
    p = p * z - 1 / 39916800.0
    p = p * z + 1 / 362880.0
    p = p * z - 1 / 5040.0
    p = p * z + 1 / 120.0
    p = p * z - 1 / 6.0
    # The rounding error of the angle times the cosine, of which a few bits suffice.
    lost = ((high - angle) + rest) * (1.0 - z * (0.5 - z * (1 / 24.0 - z * (1 / 720.0))))
    y = abs(angle + (angle * z * p + lost))
    x = abs(u)
    y = _SINE0 if x == _HARD0 else y
    y = _SINE1 if x == _HARD1 else y
    y = _SINE2 if x == _HARD2 else y
    y = _SINE3 if x == _HARD3 else y
    y = _SINE4 if x == _HARD4 else y
    return math.copysign(y, u)


@scalar
def fraction_of_turn(t: float) -> float:
    """A float32 minus its nearest integer, exact. A half stays a half, with the argument's sign."""
    size = abs(t)
    # In float64 numbers from 2**52 on are integers: the sum is rounded to one.
    rest = size - ((size + 4503599627370496.0) - 4503599627370496.0)
    rest = 0.5 if rest == -0.5 else rest
    return math.copysign(1.0, t) * (rest if size < 8388608.0 else 0.0)


@scalar
def tanh_nearest(x: float) -> float:
    """The hyperbolic tangent of a float32, as a float64 that rounds to the nearest float32.

    E / (E + 2) with E = e**(2 |x|) - 1.
    """
    size = 2.0 * min(abs(x), 20.0)
    # Subtract the nearest multiple of log 2, in two parts, the first of 32 bits.
    shifted = size * 1.4426950408889634 + _SHIFT
    whole = shifted - _SHIFT
    r = (size - whole * _LOG2_HIGH) - whole * _LOG2_LOW
    p = _exponential_rest(r)
    power = f64_value((f64_bits(shifted) - _SHIFT_BITS + 1023) << 52)
    e = (r + r * r * p) * power + (power - 1.0)
    return x if x != x else math.copysign(e / (e + 2.0), x)


@scalar
def rsqrt_nearest(x: float) -> float:
    """1 / sqrt(x) for a positive float32, as a float64 that rounds to the nearest float32."""
    y = 1.0 / square_root(x)
    if near_middle(y):
        # The midpoint has 25 bits: its square is exact, and the product with x is exact in two parts.
        middle = f64_value((f64_bits(y) + 0x8000000) >> 28 << 28)
        square = middle * middle
        head = f32_value(f32_round(square))
        excess = (x * head - 1.0) + x * (square - head)
        return f64_value(f64_bits(middle) + (-1 if excess > 0.0 else 1))
    return y


@scalar
def rsqrt64(a: int) -> int:
    """The float64 nearest to 1 / sqrt(a) (wrong for about one in 2**50), for a positive normal or subnormal pattern."""
    scaled, shift = a, 0
    if a < 0x0010000000000000:
        scaled = f64_bits(f64_value(a) * 18014398509481984.0)
        shift = 27
    # Scale to [1, 4), so that no later result overflows or underflows.
    half = (scaled >> 52) - 1023 >> 1
    scaled -= half << 53
    x = f64_value(scaled)
    y = 1.0 / square_root(x)
    p = y * y
    minus = f64_bits(p) ^ SIGN64
    low = f64_value(fma64(f64_bits(y), f64_bits(y), minus, 0))
    rest = f64_value(fma64(scaled, minus, 0x3FF0000000000000, 0)) - x * low
    return f64_bits(y + y * rest * (0.5 + 0.375 * rest)) + ((shift - half) << 52)
