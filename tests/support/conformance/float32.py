"""float32 arithmetic from IEEE 754 alone: sums and products without error in float64, then one rounding.

A product of two float32 is exact in float64. For a sum, Knuth's two-sum gives the rounded float64 and its error. From
both the sum is rounded to odd, to 53 bits. Rounding that to 24 bits or fewer gives the same result as rounding the
exact sum (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

NAN = 0x7FFFFFFF
"""The NaN of a float32 result (PTX ISA, floating point instructions: the canonical NaN)."""
MODES = ("rn", "rz", "rm", "rp")
_KINDS = {"f16": (np.uint16, np.float16), "bf16": (np.uint16, ml_dtypes.bfloat16), "f32": (np.uint32, np.float32)}
_SCALE = 2.0**100
_LEAST = 2.0**-126


def values(patterns: Any, name: str, ftz: bool = False) -> Any:
    """The float64 values of patterns. `ftz`: a subnormal becomes zero with the same sign."""
    bits, kind = _KINDS[name]
    with np.errstate(invalid="ignore"):
        x = patterns.astype(bits).view(kind).astype(np.float64)
    return np.where(np.abs(x) < _LEAST, np.copysign(0.0, x), x) if ftz else x


def added(x: Any, y: Any) -> tuple[Any, Any]:
    """The sum of float64 values, rounded to odd; and a mask of sums that are exactly zero though the terms are not
    equal zeros.

    The terms and the sum must not be so large or so small that float64 loses bits of them.
    """
    with np.errstate(invalid="ignore"):
        s = x + y
        part = s - x
        missing = (x - (s - part)) + (y - part)
    missing = np.where(np.isfinite(s), missing, 0.0)
    even = s.view(np.int64) & 1 == 0
    odd = np.nextafter(s, np.where(missing > 0, np.inf, -np.inf))
    cancelled = (s == 0) & ((x != 0) | (np.signbit(x) != np.signbit(y)))
    return np.where((missing != 0) & even, odd, s), cancelled


def patterns(x: Any, mode: str, *, cancelled: Any = False, ftz: bool = False, sat: bool = False) -> Any:
    """float32 patterns of float64 values that were rounded to odd if they had more bits.

    `cancelled`: a mask of zeros whose sign the rounding mode determines: minus for "rm", else plus. `ftz`: a result
    that is below the least normal number, when rounded as if exponents had no lower end, becomes zero with the same
    sign. `sat`: results are clamped to [0, 1]; NaN and both zeros become +0.
    """
    found = rounded(x, mode)
    if ftz:
        some = np.abs(x) < 2 * _LEAST
        tiny = np.abs(rounded(np.where(some, x, 0.0) * _SCALE, mode)) < _LEAST * _SCALE
        found = np.where(some & tiny, np.where(np.signbit(x), np.float32(-0.0), np.float32(0)), found)
    if sat:
        with np.errstate(invalid="ignore"):
            found = np.where(found > 0, np.minimum(found, np.float32(1)), np.float32(0))
    elif np.any(cancelled):
        found = np.where(cancelled, np.float32(-0.0 if mode == "rm" else 0.0), found)
    return np.where(np.isnan(found), NAN, found.view(np.uint32).astype(np.int64))


def rounded(x: Any, mode: str) -> Any:
    """float64 rounded to float32. A cast rounds to nearest; for other modes the result is moved back by one if the cast
    went too far."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = x.astype(np.float32)
        wide = found.astype(np.float64)
        if mode == "rz":
            back, to = np.abs(wide) > np.abs(x), np.zeros_like(found)
        else:
            back = wide > x if mode == "rm" else wide < x
            to = np.full_like(found, -np.inf if mode == "rm" else np.inf)
        return found if mode == "rn" else np.where(back, np.nextafter(found, to), found)


def least(columns: list[Any], *, largest: bool, nan: bool, magnitudes: bool, ftz: bool) -> Any:
    """Patterns of the minimum, or of the maximum, of float32 patterns; -0 is less than +0.

    `largest`: the maximum. `nan`: one NaN makes the result NaN; else NaNs are ignored. `magnitudes`: signs are removed
    first.
    """
    keys, missing = [], []
    for column in columns:
        size, minus = column & 0x7FFFFFFF, column >> 31 != 0
        if ftz:
            size = np.where(size < 0x00800000, 0, size)
        if magnitudes:
            minus = np.zeros_like(minus)
        # An integer from sign and magnitude that rises with the value: -1 stands for -0, 0 for +0.
        keys.append(np.where(minus, -1 - size, size))
        missing.append(size > 0x7F800000)
    worst = -(1 << 40) if largest else 1 << 40
    kept = np.where(missing, worst, keys)
    best = kept.max(axis=0) if largest else kept.min(axis=0)
    found = np.where(best < 0, -1 - best | 1 << 31, best)
    undefined = np.any(missing, axis=0) if nan else np.all(missing, axis=0)
    return np.where(undefined, NAN, found)
