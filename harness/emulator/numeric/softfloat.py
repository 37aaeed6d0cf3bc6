"""Rounding and classification of floats as bit patterns, shared by the scalar definitions.

Every format narrower than float64 is computed in float64 so that only one rounding remains. Products of two 24-bit
significands are exact there. Sums are rounded to odd (`odd`), which makes the last bit sticky, so that the final
rounding is correct.
"""

from __future__ import annotations

from ptxdiff.emulator.numeric.bits import f32_round, f32_value, f64_bits, f64_value, mask, scalar, shl64

RN, RZ, RM, RP, RNA = 0, 1, 2, 3, 4
"""Rounding modes: nearest even, towards zero, minus infinity, plus infinity, nearest with ties away."""


@scalar
def f32_is_nan(a: int) -> bool:
    """Whether a float32 pattern is a NaN."""
    return (a & 0x7FFFFFFF) > 0x7F800000


@scalar
def f32_flush(a: int, ftz: int) -> int:
    """A float32 pattern with subnormals replaced by zero of their sign, if `ftz`."""
    if ftz and (a & 0x7F800000) == 0:
        return a & 0x80000000
    return a


@scalar
def f32_saturate(a: int, sat: int) -> int:
    """A float32 pattern clamped to [0, 1], NaN and -0 to +0, if `sat`."""
    if sat:
        if a > 0x7F800000:
            return 0
        if a > 0x3F800000:
            return 0x3F800000
    return a


@scalar
def odd(s: float, error: float) -> float:
    """`s + error` rounded to odd; `s` is a float64 sum rounded to nearest and `error` its rounding error."""
    if error != 0.0 and error == error and s - s == 0.0:
        pattern = f64_bits(s)
        if pattern & 1 == 0:
            return f64_value(pattern + 1 if (error > 0.0) == (s > 0.0) else pattern - 1)
    return s


@scalar
def add_odd(a: float, b: float) -> float:
    """`a + b` in float64 rounded to odd, so that a later rounding to 51 bits or fewer is correct.

    Knuth's two-sum gives the exact error; the operands must be far from float64's overflow.
    """
    s = a + b
    t = s - a
    return odd(s, (a - (s - t)) + (b - t))


@scalar
def f32_from_f64(x: float, rnd: int) -> int:
    """Bit pattern of a float64 rounded to float32 in mode RN, RZ, RM or RP; NaN gives 0x7fffffff."""
    if x != x:
        return 0x7FFFFFFF
    y = f32_round(x)
    if rnd == 0:
        return y
    v = f32_value(y)
    if rnd == 1:
        if abs(v) > abs(x):
            y -= 1
    elif rnd == 2:
        if v > x:
            y += 1 if y & 0x80000000 else -1
    elif v < x:
        y += -1 if y & 0x80000000 else 1
    return y


@scalar
def f32_finish(x: float, rnd: int, ftz: int, sat: int) -> int:
    """A float64 (exact or rounded to odd) as the float32 result of an operation, NaN 0x7fffffff.

    With .ftz a result is flushed if it is subnormal after rounding to 24 bits with an unbounded exponent. ptxas's
    `div.rn.ftz` does so, and hardware was measured to do so (mul.f16 and rcp.f32 exhaustively on an H100).
    """
    y = f32_from_f64(x, rnd)
    if ftz and abs(x) < 1.1754943508222875e-38:
        # Scaled by 2**64 it is rounded as with an unbounded exponent; 2**-126 becomes 2**-62.
        wide = f32_from_f64(x * 18446744073709551616.0, rnd) & 0x7FFFFFFF
        y = (y & 0x80000000) | (0x00800000 if wide >= 0x20800000 else 0)
    return f32_saturate(y, sat)


@scalar
def f32_zero_sign(x: float, a: int, b: int, rnd: int) -> int:
    """The sign of an exact zero sum of float32 `a` and `b`: -0 when rounding down, unless both are +0."""
    if rnd == 2 and x == 0.0 and (a | b) & 0x80000000:
        return 0x80000000
    return f32_round(x)


@scalar
def narrow(x: float, exponent_bits: int, mantissa_bits: int, rnd: int) -> int:
    """The bit pattern of a float64 rounded to an IEEE-style format, whose highest exponent has infinities and NaNs.

    `x` is not a NaN. Overflow gives infinity or the largest finite value as `rnd` says. Modes RN to RNA.
    """
    pattern = f64_bits(x)
    sign = 1 if pattern < 0 else 0
    magnitude = pattern & 0x7FFFFFFFFFFFFFFF
    bias = (1 << (exponent_bits - 1)) - 1
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if magnitude == 0x7FF0000000000000:
        return sign << (exponent_bits + mantissa_bits) | infinity
    exponent = magnitude >> 52
    significand = magnitude & 0xFFFFFFFFFFFFF
    if exponent:
        significand |= 0x10000000000000
    else:
        exponent = 1
    target = exponent - 1023 + bias
    drop = 52 - mantissa_bits
    if target < 1:
        drop += 1 - target
        target = 1
    if drop > 55:
        significand = 1 if significand else 0
        drop = 55
    kept = significand >> drop
    lost = significand & mask(drop)
    half = 1 << (drop - 1)
    if rnd == 0:
        up = lost > half or (lost == half and kept & 1 == 1)
    elif rnd == 4:
        up = lost >= half
    elif rnd == 1:
        up = False
    else:
        up = lost != 0 and (sign == 1) == (rnd == 2)
    if up:
        kept += 1
    # kept includes the hidden bit, so the exponent field below is one less; a carry out of it increments the exponent.
    result = ((target - 1) << mantissa_bits) + kept if target < (1 << exponent_bits) else infinity
    if result >= infinity:
        toward = rnd == 1 or (rnd == 2 and sign == 0) or (rnd == 3 and sign == 1)
        result = infinity - 1 if toward else infinity
    return sign << (exponent_bits + mantissa_bits) | result


@scalar
def widen(a: int, exponent_bits: int, mantissa_bits: int) -> float:
    """The float64 value of an IEEE-style pattern (NaN without its payload); exact up to 52 mantissa bits."""
    sign = a >> (exponent_bits + mantissa_bits) & 1
    exponent = a >> mantissa_bits & mask(exponent_bits)
    fraction = a & mask(mantissa_bits)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == mask(exponent_bits):
        top = 0x7FF8000000000000 if fraction else 0x7FF0000000000000
        return f64_value(top | shl64(sign, 63))
    if exponent == 0:
        value = float(fraction) * f64_value((1 - bias - mantissa_bits + 1023) << 52)
        return -value if sign else value
    return f64_value(shl64(sign, 63) | (exponent - bias + 1023) << 52 | fraction << (52 - mantissa_bits))


@scalar
def f16_value(a: int) -> float:
    """The value of a float16 pattern."""
    return widen(a, 5, 10)


@scalar
def f16_from_f64(x: float, rnd: int) -> int:
    """Bit pattern of a float64 rounded to float16; NaN gives 0x7fff."""
    return 0x7FFF if x != x else narrow(x, 5, 10, rnd)


@scalar
def bf16_value(a: int) -> float:
    """The value of a bfloat16 pattern."""
    return f32_value(a << 16)


@scalar
def bf16_from_f64(x: float, rnd: int) -> int:
    """Bit pattern of a float64 rounded to bfloat16; NaN gives 0x7fff."""
    return 0x7FFF if x != x else narrow(x, 8, 7, rnd)
