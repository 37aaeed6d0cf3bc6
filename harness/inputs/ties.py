"""Ties: inputs for which a conversion to a narrower format has two nearest outputs, and their neighbours.

They are computed from the two formats: every midpoint of neighbouring outputs that the input format holds, the point
half an ulp above the largest finite output (where overflow begins), and the input values next to each, with both signs.
"""

from __future__ import annotations

import functools
import itertools
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import Format, encode, finite_codes, floor_log2, fraction, from_ordinal, ordinal

Codes = NDArray[np.int64]


@functools.cache
def tie_codes(source: Format, result: Format, cap: int) -> Codes:
    """Codes of `source` at and next to every tie of a conversion to `result`; empty if `result` is not narrower.

    At most about `cap` codes: if there are more midpoints, evenly spaced ones and those at the ends of binades are
    kept.
    """
    source, result = source.single, result.single
    if not source.is_float or source == result:
        return _integer_ties(source, result) if not source.is_float and result.is_float else _none()
    if not result.is_float:
        return _codes(source, _half_integers(result))
    if result.precision >= source.precision and result.exponent_bits >= source.exponent_bits:
        return _none()
    return _codes(source, _midpoints(result, cap // 6))


def _none() -> Codes:
    return np.zeros(0, dtype=np.int64)


def _midpoints(result: Format, most: int) -> list[Fraction]:
    if result.code_bits <= 8:
        values = [fraction(result, c) for c in finite_codes(result) if c <= result.max_finite]
    else:
        values = [fraction(result, c) for c in _spread(result, most)]
    values = sorted(v for v in set(values) if v >= 0)
    if result.code_bits <= 8:
        middles = [(a + b) / 2 for a, b in itertools.pairwise(values)]
    else:
        middles = [v + _gap_above(result, v) / 2 for v in values]
    top = fraction(result, result.max_finite)
    middles += [top + _gap_below(result, top) / 2, *(v for v in values if v)]
    return middles


def _spread(result: Format, most: int) -> list[int]:
    """Codes of a wide format: the ends of every binade, and others up to `most`."""
    binade = result.min_normal
    ends = [e + d * result.min_positive for e in range(0, result.max_finite, binade) for d in (0, 1, 2, -1, -2)]
    ends += [result.max_finite - d * result.min_positive for d in (1, 2)]
    step = max(1, result.max_finite // max(1, most)) | 1
    return [c for c in (*ends, *range(0, result.max_finite, step)) if 0 <= c < result.max_finite]


def _gap_above(fmt: Format, value: Fraction) -> Fraction:
    code = encode(fmt, value)
    return fraction(fmt, code + fmt.min_positive) - value


def _gap_below(fmt: Format, value: Fraction) -> Fraction:
    return value - fraction(fmt, encode(fmt, value) - fmt.min_positive)


def _half_integers(result: Format) -> list[Fraction]:
    """Halves near zero and near powers of two, and near both limits of an integer format."""
    halves = [Fraction(2 * k + 1, 2) for k in range(20)]
    halves += [(1 << p) + Fraction(d, 2) for p in range(5, result.code_bits + 1) for d in (-3, -1, 0, 1, 3)]
    return halves


def _codes(source: Format, values: list[Fraction]) -> Codes:
    """The codes of the values (of the values next to them if the format does not hold them), and their neighbours."""
    codes: set[int] = set()
    for value in values:
        position = ordinal(source, nearest_below(source, value))
        for neighbour in (position - 1, position, position + 1):
            if 0 <= neighbour <= ordinal(source, source.max_finite):
                codes.add(from_ordinal(source, neighbour))
    sign = 1 << source.sign_shift if source.has_sign else 0
    both = sorted(codes) + [c | sign for c in sorted(codes)] * bool(sign)
    return np.array([c - (1 << 64) if c >> 63 else c for c in both], dtype=np.int64)


def nearest_below(source: Format, value: Fraction) -> int:
    """The code of the largest value of the format that is not above `value` (0 or more)."""
    if value <= 0:
        return 0
    unit = max(floor_log2(value), source.min_exponent) - source.mantissa_bits
    significand = (value.numerator << max(-unit, 0)) // (value.denominator << max(unit, 0))
    truncated = Fraction(significand << max(unit, 0), 1 << max(-unit, 0))
    largest = fraction(source, source.max_finite)
    return source.max_finite if truncated > largest else encode(source, truncated)


def _integer_ties(source: Format, result: Format) -> Codes:
    """Integers with one bit more than the significand, which lie halfway between two floats, and their neighbours."""
    codes: list[int] = []
    limit = source.code_bits - int(source.has_sign)
    for exponent in range(result.precision, limit):
        half = 1 << (exponent - result.precision)
        for multiple in (0, 1, 2, (1 << result.mantissa_bits) - 1):
            base = (1 << exponent) + multiple * 2 * half + half
            codes += [base - 1, base, base + 1]
    codes = [c for c in codes if c < 1 << limit]
    negative = [-c & source.code_mask for c in codes] if source.has_sign else []
    return np.array([c - (1 << 64) if c >> 63 else c for c in codes + negative], dtype=np.int64)
