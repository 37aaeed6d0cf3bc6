"""Elementary functions rounded to nearest, for the models of approximate instructions.

How the nearest float32 is known: the host's float64 function is within two units of its last place, and an exhaustive
search over every float32 argument (decided with 300 bits) found how near the true values come to the middle between
two float32 numbers. log2 and tanh stay 2.6 and 5 such units away, so that rounding the float64 value again is right.
2**x and the sine come nearer; the arguments within four units are listed with their results, and are looked up where
the float64 value is within two units of a middle. The results do not depend on the host's library, then. For 16-bit
formats every argument is at least 2**-27 away (`tests/ptx/isa/test_approximate.py` holds all this to mpmath).
"""

from __future__ import annotations

import math

from .binary64 import fma64
from .bits import SIGN64, f32_round, f32_value, f64_bits, f64_value, scalar

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
"""Arguments of 2**x whose float64 value does not tell the nearest float32, with that float32's pattern."""

SINE_HARD = (
    (float.fromhex("0x1.ca9b6ap-23"), 0x35B41836),
    (float.fromhex("0x1.d595ecp-16"), 0x393867E5),
    (float.fromhex("0x1.dd7320p-7"), 0x3DBB3B76),
    (float.fromhex("0x1.fafebp-5"), 0x3EC21DD8),
    (float.fromhex("0x1.ffbc6f2c8p-3"), 0x3F7FFFFB),
)
"""The same for the sine of u turns, 0 < u <= 1/4."""

# 2 pi in two parts, the first of 28 bits: its product with 24 bits is exact.
_TURN_HIGH = float.fromhex("0x1.921fb54p+2")
_TURN_LOW = float.fromhex("0x1.10b4611a62633p-28")


@scalar
def near_middle(x: float) -> bool:
    """Whether a float64 of float32's normal range is within two units of the middle between two float32 numbers."""
    return abs((f64_bits(x) & 0x1FFFFFFF) - 0x10000000) <= 2


@scalar
def exp2_f64(x: float) -> float:
    """2**x in float64; 0 and infinity from 1000 on."""
    if x != x:
        return x
    return math.pow(2.0, min(max(x, -1000.0), 1000.0))


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
    """log2 in float64: -infinity at zero, NaN below."""
    if x == 0.0:
        return -math.inf
    if not x > 0.0:
        return math.nan
    return x if x == math.inf else math.log2(x)


@scalar
def sine_of_turns(u: float) -> float:
    """The sine of u turns, -1/4 <= u <= 1/4, as a float64 that rounds to the nearest float32."""
    head = f32_value(f32_round(u))
    high = head * _TURN_HIGH
    rest = (u - head) * _TURN_HIGH + u * _TURN_LOW
    angle = high + rest
    y = math.sin(angle)
    # What the angle's rounding lost, times the cosine, which is not negative here.
    y += ((high - angle) + rest) * math.sqrt(max(1.0 - y * y, 0.0))
    if near_middle(y):
        for argument, pattern in SINE_HARD:
            if argument == abs(u):
                return math.copysign(f32_value(pattern), u)
    return math.copysign(y, u)


@scalar
def fraction_of_turn(t: float) -> float:
    """A float32's fraction after the nearest integer is taken off, exact; of halves, the one of its sign."""
    if abs(t) >= 8388608.0:
        return 0.0 * t
    whole = math.floor(abs(t) + 0.5)
    rest = abs(t) - whole
    return math.copysign(1.0, t) * (0.5 if rest == -0.5 else rest)


@scalar
def rsqrt_nearest(x: float) -> float:
    """1 / sqrt(x) for a positive float32, as a float64 that rounds to the nearest float32."""
    y = 1.0 / math.sqrt(x)
    if near_middle(y):
        # The middle has 25 bits: its square is exact, and times x exact in two parts.
        middle = f64_value((f64_bits(y) + 0x8000000) >> 28 << 28)
        square = middle * middle
        head = f32_value(f32_round(square))
        excess = (x * head - 1.0) + x * (square - head)
        return f64_value(f64_bits(middle) + (-1 if excess > 0.0 else 1))
    return y


@scalar
def rsqrt64(a: int) -> int:
    """The float64 nearest to 1 / sqrt(a) (but for about one in 2**50), for a positive normal or subnormal pattern."""
    scaled, shift = a, 0
    if a < 0x0010000000000000:
        scaled = f64_bits(f64_value(a) * 18014398509481984.0)
        shift = 27
    # To [1, 4), so that nothing below leaves the range.
    half = (scaled >> 52) - 1023 >> 1
    scaled -= half << 53
    x = f64_value(scaled)
    y = 1.0 / math.sqrt(x)
    p = y * y
    minus = f64_bits(p) ^ SIGN64
    low = f64_value(fma64(f64_bits(y), f64_bits(y), minus, 0))
    rest = f64_value(fma64(scaled, minus, 0x3FF0000000000000, 0)) - x * low
    return f64_bits(y + y * rest * (0.5 + 0.375 * rest)) + ((shift - half) << 52)
