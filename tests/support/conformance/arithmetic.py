"""Arithmetic on narrow and mixed formats, from the formats' definitions alone. `definitions` has conversions.

`exact_codes` never adds: it compares the operands, which float64 holds exactly, with the exact points at which the
rounded result changes. `by_gfloat` rounds a sum or product in float64, where that is exact. `rounded` rounds a rational
number bit by bit.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tests.support.conformance import definitions as d

NAN = {"e4m3": 0x7F, "e5m2": 0x7F}
"""The NaN that a result has, by format."""


@cache
def values(name: str) -> Any:
    """The float64 value of every code of a format, NaN and infinities included."""
    fmt = d.FORMATS[name]
    found = np.full(1 << fmt.bits, np.nan)
    for code in range(fmt.largest + 1):
        number = float(fmt.value(code))
        assert Fraction(number) == fmt.value(code)
        found[code] = number
        if fmt.sign:
            found[code | fmt.sign] = -number
    if name == "e5m2":
        found[0x7C], found[0xFC] = np.inf, -np.inf
    return found


@cache
def _points(name: str) -> tuple[Any, Any]:
    """The midpoint below each of the codes 1, 2, ... up to the one after the largest; and whether the midpoint itself
    rounds to that code."""
    fmt = d.FORMATS[name]
    found = [float((fmt.value(n) + fmt.value(n + 1)) / 2) for n in range(fmt.largest + 1)]
    return np.array(found), np.array([n & 1 == 1 for n in range(fmt.largest + 1)])


def _reached(x: Any, name: str, less: float) -> Any:
    """The code of `x - less`; 0 where that is negative. Adds `less` to the midpoints, so that the operand stays
    exact."""
    middles, inclusive = _points(name)
    moved = middles + less
    below = np.searchsorted(moved, x, side="left")
    at = np.minimum(below, len(moved) - 1)
    return below + ((moved[at] == x) & inclusive[at] & (below < len(moved)))


def exact_codes(product: Any, addend: float | None, to: str, satfinite: bool) -> Any:
    """Codes of `product` (an array) plus `addend`, rounded to nearest even; of `product` alone if `addend` is None."""
    fmt = d.FORMATS[to]
    other = 0.0 if addend is None else addend
    with np.errstate(invalid="ignore"):
        size = np.maximum(_reached(product, to, -other), _reached(-product, to, other))
        minus = (product < -other) | (
            (product == -other) & np.signbit(product) & (True if addend is None else bool(np.signbit(addend)))
        )
        nan = np.isnan(product + other)
    return finished(size, minus, nan, fmt, satfinite)


def finished(size: Any, minus: Any, nan: Any, fmt: d.Narrow, satfinite: bool) -> Any:
    """Codes from magnitude codes and signs. A magnitude code beyond the largest is an overflow."""
    codes = np.where(minus, fmt.sign, 0) | np.minimum(size, fmt.largest + (not satfinite))
    overflow = np.zeros_like(nan) if satfinite or fmt.name == "e5m2" else size > fmt.largest
    return np.where(nan | overflow, NAN[fmt.name], codes)


def by_gfloat(product: Any, addend: float | None, to: str, satfinite: bool) -> tuple[Any, Any]:
    """Like `exact_codes`, by gfloat; and a mask of the results for which the float64 sum is exact."""
    other = 0.0 if addend is None else addend
    with np.errstate(invalid="ignore", over="ignore"):
        x = product if addend is None else product + other
        large = np.where(np.abs(product) > abs(other), product, other)
        small = np.where(np.abs(product) > abs(other), other, product)
        covered = (x - large == small) | ~np.isfinite(x) | np.full(x.shape, addend is None)
    size = d.by_gfloat(x, to, "rn", satfinite)
    fmt = d.FORMATS[to]
    return finished(size, np.signbit(x), np.isnan(x), fmt, satfinite), covered


# Mixed precision ---------------------------------------------------------------------------------------------------

FORMATS = {"f16": (10, 15, 16), "bf16": (7, 127, 16), "f32": (23, 127, 32)}
"""Mantissa bits, bias and width."""


def split(pattern: int, name: str) -> tuple[int, Fraction | str]:
    """The sign (0 or 1) of a pattern, and its magnitude, "inf" or "nan"."""
    mantissa, bias, width = FORMATS[name]
    sign, rest = pattern >> (width - 1), pattern & ((1 << (width - 1)) - 1)
    field, fraction = rest >> mantissa, rest & ((1 << mantissa) - 1)
    if field == 2 * bias + 1:
        return sign, "nan" if fraction else "inf"
    whole = fraction | (1 << mantissa if field else 0)
    return sign, whole * Fraction(2) ** (max(field, 1) - bias - mantissa)


def rounded(sign: int, size: Fraction, name: str, mode: str) -> int:
    """The pattern of a magnitude with a sign, rounded by rational arithmetic."""
    mantissa, bias, width = FORMATS[name]
    infinity = (2 * bias + 1) << mantissa
    up = mode == ("rp", "rm")[sign]
    power = 1 - bias
    if size:
        power = max(size.numerator.bit_length() - size.denominator.bit_length() - 1, power)
        power += size >= Fraction(2) ** (power + 1)
    whole, rest = divmod(size / Fraction(2) ** (power - mantissa), 1)
    if (rest and up) or (mode == "rn" and (rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1))):
        whole += 1
    code = ((power + bias - 1) << mantissa) + whole
    if code >= infinity:
        code = infinity if up or mode == "rn" else infinity - 1
    return sign << (width - 1) | code


def result(product: tuple[int, Any], addend: tuple[int, Any] | None, name: str, mode: str) -> int:
    """The pattern of a product (sign and magnitude) plus an addend."""
    mantissa, bias, width = FORMATS[name]
    nan = (1 << (width - 1)) - 1
    terms = [product] if addend is None else [product, addend]
    if any(t[1] == "nan" for t in terms):
        return nan
    signs = {s for s, size in terms if size == "inf"}
    if signs:
        return nan if len(signs) == 2 else signs.pop() << (width - 1) | (2 * bias + 1) << mantissa
    total = sum((-size if s else size for s, size in terms), Fraction(0))
    if total:
        return rounded(int(total < 0), abs(total), name, mode)
    same = len({s for s, _ in terms}) == 1
    minus = terms[0][0] if same else int(mode == "rm")
    return minus << (width - 1)


def times(a: tuple[int, Any], b: tuple[int, Any]) -> tuple[int, Any]:
    """The exact product."""
    sign, sizes = a[0] ^ b[0], (a[1], b[1])
    if "nan" in sizes or ("inf" in sizes and 0 in sizes):
        return sign, "nan"
    return sign, "inf" if "inf" in sizes else a[1] * b[1]


def flushed(pattern: int, name: str) -> int:
    """The pattern; a subnormal becomes zero with the same sign."""
    mantissa, bias, width = FORMATS[name]
    small = pattern >> mantissa & (2 * bias + 1) == 0
    return pattern & 1 << (width - 1) if small else pattern
