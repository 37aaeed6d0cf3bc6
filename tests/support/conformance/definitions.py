"""Conversions to and from narrow formats, by three definitions that use only the formats' own definitions.

`Exact` decides with rational numbers: a format is the list of its values, and a result is found by comparing the source
with the exact points at which the rounded result changes. `Gfloat` uses the package of that name, and `MlDtypes` the
casts of ml_dtypes, for the conversions that they have. All three take float64 arrays that hold the sources exactly, and
return magnitude codes. `finished` adds signs, NaN and modifiers, in the same way for all.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
from gfloat import Domain, FormatInfo, RoundMode, decode_ndarray, encode_ndarray, round_ndarray
from gfloat import formats as known

MODES = {"rn": RoundMode.TiesToEven, "rz": RoundMode.TowardZero, "rp": RoundMode.TowardPositive}


@dataclass(frozen=True)
class Narrow:
    """A format: bits of exponent and mantissa, bias, largest finite code, its NaN, and the code's width.

    `unsigned`: the sign of a source is ignored.
    """

    name: str
    exponent: int
    mantissa: int
    bias: int
    largest: int
    nan: int
    bits: int
    unsigned: bool = False

    @property
    def sign(self) -> int:
        """The bit of the sign; 0 for a format without signs."""
        return 0 if self.unsigned else 1 << (self.bits - 1)

    def value(self, code: int) -> Fraction:
        """The exact value of a non-negative finite code."""
        if self.name == "ue8m0":
            return Fraction(2) ** (code - 127)
        field, fraction = code >> self.mantissa, code & ((1 << self.mantissa) - 1)
        if field:
            fraction |= 1 << self.mantissa
        return fraction * Fraction(2) ** (max(field, 1) - self.bias - self.mantissa)

    def values(self, codes: Any) -> Any:
        """`value` of an array of codes, as float64, which has more than enough bits for each."""
        if self.name == "ue8m0":
            return np.ldexp(1.0, codes - 127)
        field, fraction = codes >> self.mantissa, codes & ((1 << self.mantissa) - 1)
        fraction = fraction | np.where(field > 0, 1 << self.mantissa, 0)
        return np.ldexp(fraction.astype(np.float64), np.maximum(field, 1) - self.bias - self.mantissa)


FORMATS = {
    f.name: f
    for f in (
        Narrow("e4m3", 4, 3, 7, 0x7E, 0x7F, 8),
        Narrow("e5m2", 5, 2, 15, 0x7B, 0x7F, 8),
        Narrow("e2m3", 2, 3, 1, 0x1F, 0x1F, 6),
        Narrow("e3m2", 3, 2, 3, 0x1F, 0x1F, 6),
        Narrow("e2m1", 2, 1, 1, 0x7, 0x7, 4),
        Narrow("ue8m0", 8, 0, 127, 0xFE, 0xFF, 8, unsigned=True),
        Narrow("ue5m3", 5, 3, 15, 0xFE, 0xFF, 8, unsigned=True),
        Narrow("f16", 5, 10, 15, 0x7BFF, 0x7FFF, 16),
        Narrow("bf16", 8, 7, 127, 0x7F7F, 0x7FFF, 16),
        Narrow("tf32", 8, 10, 127, 0x3FBFF, 0x3FFFF, 19),
    )
}
"""e2m3, e3m2 and e2m1 have no NaN: a NaN becomes the largest number. tf32: the upper 19 bits of a float32."""

GFLOAT = {n: getattr(known, f"format_info_ocp_{n}") for n in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")}
GFLOAT |= {"ue8m0": known.format_info_ocp_e8m0, "s2f6": known.format_info_ocp_int8}
GFLOAT |= {"f16": known.format_info_binary16, "bf16": known.format_info_bfloat16}
GFLOAT["tf32"] = FormatInfo(
    "tf32",
    k=19,
    precision=11,
    bias=127,
    is_signed=True,
    domain=Domain.Extended,
    has_nz=True,
    num_high_nans=(1 << 10) - 1,
    has_subnormals=True,
    is_twos_complement=False,
)
GFLOAT["ue5m3"] = FormatInfo(
    "ue5m3",
    k=8,
    precision=4,
    bias=15,
    is_signed=False,
    domain=Domain.Finite,
    has_nz=False,
    num_high_nans=1,
    has_subnormals=True,
    is_twos_complement=False,
)

CASTS = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
}


@cache
def thresholds(name: str, mode: str) -> Any:
    """float64 values in ascending order: a magnitude of at least the n-th value (from 1) has code n or more.

    The last value leads to the code after the largest number. All values are exact: where a midpoint itself rounds
    down, the value is the next float64 above the midpoint.
    """
    fmt = FORMATS[name]
    codes = np.arange(fmt.largest + 2)
    values = fmt.values(codes)
    some = slice(None, None, len(codes) // 1024 + 1)  # of formats of 8 bits and fewer all
    assert [Fraction(v) for v in values[some]] == [fmt.value(int(code)) for code in codes[some]]
    below, above = values[:-1], values[1:]
    if mode == "rz":
        return above
    if mode == "rp":
        return np.nextafter(below, np.inf)
    middle = (below + above) / 2
    assert (middle - below == above - middle).all()
    return np.where(codes[:-1] & 1 == 1, middle, np.nextafter(middle, np.inf))


def exact(x: Any, name: str, mode: str) -> Any:
    """Magnitude codes by exact comparison. The code after the largest one is an overflow, which "rz" never gives.

    The caller replaces the codes of NaN.
    """
    points = thresholds(name, mode)[: -1 if mode == "rz" else None]
    return np.searchsorted(points, np.abs(x), side="right").astype(np.int64)


def by_gfloat(x: Any, name: str, mode: str, clamp: bool) -> Any:
    """Magnitude codes by gfloat; without `clamp` an overflow has the code of infinity or NaN."""
    info = GFLOAT[name]
    # ue8m0 has no zero: everything below its least number becomes its least number.
    bottom = 2.0**-127 if name == "ue8m0" else 0.0
    size = np.maximum(np.where(np.isnan(x), bottom, np.abs(x)), bottom)
    return encode_ndarray(info, round_ndarray(info, size, MODES[mode], sat=clamp)).astype(np.int64)


def by_ml_dtypes(x: Any, name: str) -> Any:
    """Magnitude codes by a cast from float32, to nearest even, clamped at the largest.

    A cast from float64 would round twice. A float64 that float32 cannot hold here lies below every point at which the
    result changes.
    """
    top = np.float32(FORMATS[name].value(FORMATS[name].largest))
    with np.errstate(all="ignore"):
        codes = np.minimum(np.abs(x), top).astype(np.float32).astype(CASTS[name]).view(np.uint8)
    return (codes & ((1 << FORMATS[name].bits) - 1)).astype(np.int64)


def by_half_cast(x: Any, name: str) -> Any:
    """Magnitude codes of float32 values by numpy's cast to float16, or by ml_dtypes' cast to bfloat16."""
    with np.errstate(all="ignore"):
        codes = np.abs(x).astype(np.float32).astype(np.float16 if name == "f16" else ml_dtypes.bfloat16)
    return codes.view(np.uint16).astype(np.int64)


def by_fields(patterns: Any, mode: str) -> Any:
    """ue8m0 codes of float32 patterns from their fields: the exponent, plus one where the mantissa is rounded up."""
    field, fraction = patterns >> 23 & 0xFF, patterns & 0x7FFFFF
    if mode == "rz":
        return field
    # The smallest power of two is the subnormal 0x00400000.
    return np.where(field == 0, fraction > 0x400000, field + (fraction != 0))


def finished(magnitude: Any, x: Any, name: str, words: frozenset[str], overflow: int | None = None) -> Any:
    """Codes from magnitude codes: clamped or overflowed, with NaN, sign, .relu and .pzo.

    `overflow`: the code of numbers beyond the largest, if .satfinite does not clamp them.
    """
    fmt = FORMATS[name]
    top = fmt.largest if "satfinite" in words or overflow is None else overflow
    codes = np.where(magnitude > fmt.largest, top, magnitude)
    if overflow is not None and "satfinite" not in words:
        codes = np.where(np.isinf(x), overflow, codes)
    if not fmt.unsigned:
        minus = np.signbit(x)
        codes = np.where(minus, 0 if "relu" in words else codes | fmt.sign, codes)
        if "pzo" in words:
            codes = np.where(codes == fmt.sign, 0, codes)
    return np.where(np.isnan(x), fmt.nan, codes)


# stochastic rounding ---------------------------------------------------------------------------------------------


def stochastic_integers(patterns: Any, random: Any, name: str, random_bits: int) -> Any:
    """Magnitude codes of float32 patterns, computed in integers: |x| plus `random` parts of a unit in the last place,
    truncated."""
    fmt = FORMATS[name]
    field, fraction = patterns.astype(np.int64) >> 23 & 0xFF, patterns.astype(np.int64) & 0x7FFFFF
    significand = np.where(field > 0, fraction | 1 << 23, fraction)
    exponent = np.maximum(field, 1) - 127
    least = 1 - fmt.bias
    unit = np.maximum(exponent, least) - fmt.mantissa
    shift = np.minimum(unit - (exponent - 23), 44)
    steps = (significand << random_bits) + (random.astype(np.int64) << shift) >> shift + random_bits
    code = (np.maximum(exponent, least) - least << fmt.mantissa) + steps
    return np.minimum(code, fmt.largest + 1)


def stochastic_gfloat(x: Any, random: Any, name: str, random_bits: int, clamp: bool) -> Any:
    """Like `stochastic_integers`, by gfloat; without `clamp` an overflow has the code of infinity."""
    info = GFLOAT[name]
    size = np.where(np.isnan(x), 0.0, np.abs(x))
    rounded = round_ndarray(info, size, RoundMode.StochasticFastest, clamp, random.astype(np.int64), random_bits)
    return encode_ndarray(info, rounded).astype(np.int64)


def stochastic_sum(x: Any, random: Any, name: str, random_bits: int) -> Any:
    """Like `stochastic_integers`: a float64 sum, truncated by exact comparison."""
    fmt = FORMATS[name]
    size = np.where(np.isfinite(x), np.abs(x), 0.0)
    exponent = np.maximum(np.frexp(np.where(size > 0, size, 1.0))[1] - 1, 1 - fmt.bias)
    exponent = np.where(size > 0, exponent, 1 - fmt.bias)
    summed = size + np.ldexp(random.astype(np.float64), exponent - fmt.mantissa - random_bits)
    codes = np.searchsorted(thresholds(name, "rz"), summed, side="right")
    return np.where(np.isinf(x), fmt.largest + 1, codes)


# to wider formats ------------------------------------------------------------------------------------------------


def wide_exact(codes: Any, name: str, wide: str, scale: Any = None) -> Any:
    """The f16 or bf16 pattern of every code, by exact comparison. `scale`: ue8m0 codes of factors."""
    fmt, target = FORMATS[name], FORMATS[wide]
    size, minus = codes & ~fmt.sign & ((1 << fmt.bits) - 1), codes & fmt.sign != 0
    infinite = (size == 0x7C) & (name == "e5m2")
    numbers = np.array([float(fmt.value(code)) for code in range(fmt.largest + 1)])
    fields = _nearest(numbers[np.minimum(size, fmt.largest)], scale, wide)
    fields = np.where(infinite, target.largest + 1, fields) | np.where(minus, target.sign, 0)
    undefined = (size > fmt.largest) & ~infinite
    return np.where(undefined if scale is None else undefined | (scale == 0xFF), target.nan, fields)


def _nearest(numbers: Any, scale: Any, wide: str) -> Any:
    """Magnitude codes of numbers times scales. The numbers have few bits and scales are powers of two, so float64
    products are exact."""
    if scale is not None:
        numbers = np.ldexp(numbers, scale - 127)
    return np.searchsorted(thresholds(wide, "rn"), numbers, side="right")


def wide_gfloat(codes: Any, name: str, wide: str, scale: Any = None) -> Any:
    """Like `wide_exact`, by gfloat's decoding and rounding."""
    x = decode_ndarray(GFLOAT[name], codes.astype(np.int64) & ((1 << FORMATS[name].bits) - 1))
    return _rounded_by_gfloat(x, wide, scale)


def wide_ml_dtypes(codes: Any, name: str, wide: str) -> Any:
    """Like `wide_exact`, by ml_dtypes' casts."""
    small = (codes & ((1 << FORMATS[name].bits) - 1)).astype(np.uint8).view(CASTS[name])
    with np.errstate(all="ignore"):
        x = small.astype(np.float32)
        found = x.astype(np.float16 if wide == "f16" else ml_dtypes.bfloat16).view(np.uint16).astype(np.int64)
    return np.where(np.isnan(x), 0x7FFF, found)


def _rounded_by_gfloat(x: Any, wide: str, scale: Any) -> Any:
    if scale is not None:
        x = np.where(scale == 255, np.nan, x * 2.0 ** (np.minimum(scale, 254) - 127.0))
    info = GFLOAT[wide]
    patterns = encode_ndarray(info, round_ndarray(info, x, RoundMode.TiesToEven)).astype(np.int64)
    return np.where(np.isnan(x), 0x7FFF, patterns)


# s2f6: two's complement in 64ths ----------------------------------------------------------------------------------


def s2f6_exact(x: Any, mode: str) -> Any:
    """Codes of float64 values. 64 times a float32 is exact in float64. The caller replaces the codes of NaN."""
    number = np.clip(np.where(np.isnan(x), 0.0, x) * 64.0, -300.0, 300.0)
    whole = np.rint(number) if mode == "rn" else np.trunc(number)
    return np.clip(whole, -128, 127).astype(np.int64) & 0xFF


def s2f6_gfloat(x: Any, mode: str) -> Any:
    """Like `s2f6_exact`, by gfloat's OCP int8, which has the same values."""
    info = GFLOAT["s2f6"]
    rounded = round_ndarray(info, np.where(np.isnan(x), 0.0, x), MODES[mode], sat=True)
    return encode_ndarray(info, rounded).astype(np.int64) & 0xFF


def s2f6_wide_exact(codes: Any, scale: Any) -> Any:
    """bfloat16 patterns of s2f6 codes times scales, by exact comparison."""
    number = np.where(codes & 0x80, codes - 256, codes)
    fields = _nearest(np.abs(number) / 64, scale, "bf16")
    return np.where(scale == 0xFF, 0x7FFF, fields | np.where(number < 0, 0x8000, 0))


def s2f6_wide_gfloat(codes: Any, scale: Any) -> Any:
    """Like `s2f6_wide_exact`, by gfloat."""
    x = decode_ndarray(GFLOAT["s2f6"], codes.astype(np.int64))
    return _rounded_by_gfloat(x, "bf16", np.broadcast_to(scale, codes.shape))
