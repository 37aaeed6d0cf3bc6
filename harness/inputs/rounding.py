"""Operands, derived from the formats alone, for rounding cases that random operands rarely reach.

For two operands: products that tie in the result's format, normal or subnormal; quotients that are exact, or as near
to a tie as a quotient can be; sums that tie or cancel; products and quotients near both ends of the range. A third
operand is an addend that breaks such a tie from far below, or cancels all but the last bits of the product. Many rows
are also shifted by one or two ulps, to the other side of the tie or limit. `sticky_inputs` breaks ties in the last
places of wider formats.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import cut, edge_units, in_slots
from ptxdiff.references.formats import F32, Format, from_ordinal, ordinal, to_float64

Codes = NDArray[np.int64]
Pair = tuple[Codes, Codes]
Rng = np.random.Generator

_ROWS = {"quick": 384, "full": 4096, "exhaustive": 4096}
"""By effort: rows of each kind for each pair of inputs."""


@np.errstate(all="ignore")
def rounding_inputs(formats: Mapping[str, Format], results: Sequence[Format], effort: str, rng: Rng) -> list[Codes]:
    """Storage units of each input; none unless two inputs and a result are floats wider than a byte."""
    names = [n for n, f in formats.items() if _suits(f)]
    targets = list(dict.fromkeys(r.single for r in results if _suits(r)))
    rows: dict[str, list[Codes]] = {n: [np.zeros(0, dtype=np.int64)] for n in formats}
    for (left, right), target in itertools.product(itertools.combinations(names, 2), targets):
        others = [n for n in names if n not in (left, right)]
        for kind in _KINDS:
            a, b = kind(formats[left].single, formats[right].single, target, _ROWS[effort], rng)
            a, b = _shifted(formats[left].single, a, rng), _shifted(formats[right].single, b, rng)
            rows[left].append(in_slots(formats[left], a))
            rows[right].append(in_slots(formats[right], b))
            for name, fmt in formats.items():
                if name in others:
                    pair = _value(formats[left], a) * _value(formats[right], b)
                    rows[name].append(in_slots(fmt, _addends(fmt.single, pair, rng)))
                elif name not in (left, right):
                    rows[name].append(rng.choice(edge_units(fmt), len(a)))
    return [np.concatenate(rows[n]) for n in formats]


_WIDER = (24, 53)
"""The digits of float32 and float64, in which a product and a sum of narrower formats are often computed."""


@np.errstate(all="ignore")
def sticky_inputs(formats: Mapping[str, Format], results: Sequence[Format], effort: str, rng: Rng) -> list[Codes]:
    """Products that tie, with addends about the last place of a wider format, where a sum in that one goes wrong; and
    products that would tie with a larger addend if they were rounded first.

    A sum that is rounded to odd there, and once more to the result, is right only if it keeps what lies below. Storage
    units of each input; none where fewer than three inputs, or no result, are floats wider than a byte.
    """
    names = [n for n, f in formats.items() if _suits(f)]
    targets = list(dict.fromkeys(r.single for r in results if _suits(r)))
    rows: dict[str, list[Codes]] = {n: [np.zeros(0, dtype=np.int64)] for n in formats}
    for (left, right), target in itertools.product(itertools.combinations(names, 2), targets):
        others = [n for n in names if n not in (left, right)]
        for digits in _WIDER if others else ():
            if digits <= target.precision:
                continue
            a, b = _product_ties(formats[left].single, formats[right].single, target, _ROWS[effort], rng)
            exponent = np.frexp(_value(formats[left], a) * _value(formats[right], b))[1]
            rows[left].append(in_slots(formats[left], a))
            rows[right].append(in_slots(formats[right], b))
            for name, fmt in formats.items():
                if name in others:
                    size = np.ldexp(0.25 + 1.25 * rng.random(len(a)), exponent - digits)
                    code = _signed(fmt.single, cut(fmt.single, size), rng.random(len(a)) < 0.5)
                    rows[name].append(in_slots(fmt, code))
                elif name not in (left, right):
                    rows[name].append(rng.choice(edge_units(fmt), len(a)))
        if others and target.precision <= F32.precision:
            a, b, c = _rounded_to_ties(formats[left].single, formats[right].single, target, _ROWS[effort], rng)
            for name, fmt in formats.items():
                codes = {left: a, right: b}.get(name, _signed(fmt.single, cut(fmt.single, np.abs(c)), c < 0))
                rows[name].append(in_slots(fmt, codes) if _suits(fmt) else rng.choice(edge_units(fmt), len(a)))
    return [np.concatenate(rows[n]) for n in formats]


def _rounded_to_ties(
    left: Format, right: Format, target: Format, count: int, rng: Rng
) -> tuple[Codes, Codes, NDArray[np.float64]]:
    """Factors whose product, rounded to the result's format, would tie in the sum with an addend that is larger by any
    number of binades; the product itself does not. Codes of the factors, values of the addends.
    """
    digits = target.precision
    larger = 1 + np.arange(count) % (digits - 1)
    upper = rng.integers(0, 1 << 62, count) | 1 << 62
    tie = (upper >> (63 - digits + larger) << larger | 1 << (larger - 1)).astype(np.float64)
    a = _made(left, _odd(np.full(count, left.precision), rng), np.full(count, 1 - left.precision), rng)
    b = cut(right, np.abs(tie / _value(left, a) * np.ldexp(1.0, 1 - digits)))
    products = np.ldexp(np.abs(_value(left, a) * _value(right, b)), digits - 1)
    kept = (np.abs(products - tie) < 0.5) & (products != tie)
    addends = np.ldexp(1.0 + 0.75 * rng.random(count), larger) * rng.choice([-1.0, 1.0], count)
    return a[kept], b[kept], addends[kept]


def _suits(fmt: Format) -> bool:
    return fmt.is_float and fmt.code_bits > 8


def _odd(most: Codes, rng: Rng) -> Codes:
    """Random odd numbers of exactly `bits` bits."""
    top: Codes = 1 << (most - 1)
    return top | (rng.integers(0, 1 << 62, len(most)) & (top - 1)) | 1


def _made(fmt: Format, significand: Codes, exponent: Codes, rng: Rng) -> Codes:
    """The codes of significand * 2^exponent with random signs, truncated to the format and clamped to its range."""
    size = np.ldexp(significand.astype(np.float64), exponent)
    return _signed(fmt, cut(fmt, size), rng.integers(0, 2, len(size)) == 1)


def _signed(fmt: Format, codes: Codes, negative: NDArray[np.bool_]) -> Codes:
    distance = ordinal(fmt, codes)
    signed: Codes = from_ordinal(fmt, np.where(negative & fmt.has_sign, -distance, distance))
    return signed


def _value(fmt: Format, codes: Codes) -> NDArray[np.float64]:
    values: NDArray[np.float64] = to_float64(fmt.single, codes)
    return values


def _exponents(target: Format, count: int, rng: Rng) -> Codes:
    """Binary exponents of results: a third anywhere, a third among the smallest numbers, a third among the largest."""
    low, high = target.min_exponent, target.bias
    choice = rng.integers(0, 3, count)
    anywhere = rng.integers(low, high + 1, count)
    small = rng.integers(low - target.mantissa_bits - 1, low + 2, count)
    large = rng.integers(high - 1, high + 2, count)
    return np.where(choice == 0, anywhere, np.where(choice == 1, small, large))


def _factor_exponent(left: Format, exponent: Codes, rng: Rng) -> Codes:
    """An exponent for the left of two factors: near half of the product's, within its format's range."""
    span = max(2, left.bias // 4)
    half: Codes = exponent // 2 + rng.integers(-span, span + 1, len(exponent))
    return np.clip(half, left.min_exponent, left.bias)


def _product_ties(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Odd factors whose product has one bit more than the result's format, or ends half an ulp below a subnormal's last
    place."""
    bits = target.precision + 1
    subnormal = rng.random(count) < 0.4
    bits_here = np.where(subnormal, rng.integers(2, bits + 1, count), bits)
    first = rng.integers(1, np.minimum(bits_here, left.precision) + 1)
    second = np.clip(bits_here - first + rng.integers(0, 2, count), 1, right.precision)
    a, b = _odd(first, rng), _odd(second, rng)
    length = np.frexp((a * b).astype(np.float64))[1]
    top = _exponents(target, count, rng).clip(target.min_exponent, target.bias)
    last = np.where(subnormal, target.min_exponent - target.mantissa_bits - 1, top - length + 1)
    own = _factor_exponent(left, last + length, rng) - first
    return _made(left, a, own, rng), _made(right, b, last - own, rng)


def _quotient_ties(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Dividends that are a divisor times a quotient of few bits, or times one that would tie, truncated to the format.

    Exact quotients end half an ulp below a subnormal's last place, because only there a quotient can tie.
    """
    exact = rng.random(count) < 0.5
    second = np.where(exact, rng.integers(1, right.precision, count), right.precision)
    most = np.maximum(1, np.minimum(left.precision - second, target.precision))
    first = np.where(exact, 1 + rng.integers(0, 1 << 30, count) % most, target.precision + 1)
    q, b = _odd(first, rng), _odd(second, rng)
    top = np.where(exact, target.min_exponent - target.mantissa_bits - 2 + first, _exponents(target, count, rng))
    divisor = _factor_exponent(right, -top, rng) - second
    quotient = top - first + 1
    # The dividend may need more bits than float64 has; the quotient then lies next to the tie.
    dividend = np.ldexp(q.astype(np.float64) * b.astype(np.float64), quotient + divisor)
    return _signed(left, cut(left, dividend), rng.random(count) < 0.5), _made(right, b, divisor, rng)


def _near_ends(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Random significands with the product, or the quotient, in the first or the last binades."""
    a = _odd(np.full(count, left.precision), rng)
    b = _odd(np.full(count, right.precision), rng)
    top = _exponents(target, count, rng)
    own = _factor_exponent(left, top, rng)
    other = np.where(rng.random(count) < 0.6, top - own, own - top)
    return _made(left, a, own - left.mantissa_bits, rng), _made(right, b, other - right.mantissa_bits, rng)


def _at_ends(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Operands whose product, sum or quotient is near the largest number, the smallest normal number, or half an
    ulp."""
    step = np.ldexp(1.0, target.min_exponent - target.mantissa_bits)
    largest = np.ldexp(2.0 - np.ldexp(1.0, -target.mantissa_bits), min(target.bias, 1023))
    normal = np.ldexp(1.0, target.min_exponent)
    quarter = np.ldexp(0.25, target.bias - target.mantissa_bits)  # a quarter ulp: still rounded to the largest
    ends = np.array([largest, largest + quarter, largest + 2 * quarter, normal, normal - step / 2, step / 2])
    end = rng.choice(ends, count)
    few = _odd(rng.integers(1, right.precision + 1, count), rng)
    b = cut(right, np.ldexp(few.astype(np.float64), rng.integers(-right.bias // 2, right.bias // 2, count)))
    value = _value(right, b)
    a = np.select([rng.random(count) < 0.4, rng.random(count) < 0.5], [end / value, end * value], end - value)
    negative = rng.integers(0, 2, count) == 1
    return _signed(left, cut(left, a), negative), _signed(right, b, rng.integers(0, 2, count) == 1)


def _close_products(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Factors that are a power of two of ulps away from powers of two, so that the discarded bits of the product are
    far below.

    Half of the products are next to one, because a constant in the reference is likely to cancel them.
    """
    shift = rng.integers(0, left.precision // 2 + 2, count)
    first = (1 << shift) * rng.choice([-1, 1], count)
    second = np.where(rng.random(count) < 0.5, -first, rng.integers(1, 9, count) * rng.choice([-1, 1], count))
    own = _factor_exponent(left, _exponents(target, count, rng), rng)
    other = np.where(rng.random(count) < 0.5, -own, -(own // 2))
    a, b = (1 << left.precision) + first, (1 << right.precision) + second
    return _made(left, a, own - left.precision, rng), _made(right, b, other - right.precision, rng)


def _sums(left: Format, right: Format, target: Format, count: int, rng: Rng) -> Pair:
    """Second operands that are the negative of the first, or half an ulp of it, or an odd number of half ulps."""
    a = _made(left, _odd(np.full(count, left.precision), rng), _exponents(left, count, rng) - left.mantissa_bits, rng)
    value = _value(left, a)
    half = np.ldexp(1.0, np.frexp(value)[1] - target.precision - 1)
    odd = _odd(rng.integers(1, max(2, right.precision - 1), count), rng).astype(np.float64)
    choice = rng.integers(0, 3, count)
    b = np.select([choice == 0, choice == 1], [np.abs(value), half], half * odd)
    negative = np.where(choice == 0, value > 0, rng.random(count) < 0.5)
    return a, _signed(right, cut(right, b), negative)


_Kind = Callable[[Format, Format, Format, int, Rng], Pair]
_KINDS: tuple[_Kind, ...] = (_product_ties, _quotient_ties, _near_ends, _at_ends, _close_products, _sums)


def _shifted(fmt: Format, codes: Codes, rng: Rng) -> Codes:
    """The same codes, with one in four moved up or down by one ulp."""
    step = np.where(rng.random(len(codes)) < 0.25, rng.choice([-1, 1], len(codes)), 0)
    top = fmt.max_finite >> fmt.ignored_bits
    moved: Codes = from_ordinal(fmt, np.clip(ordinal(fmt, codes) + step, -top, top))
    return np.where(step == 0, codes, moved)


def _addends(fmt: Format, products: NDArray[np.float64], rng: Rng) -> Codes:
    """Addends for products: zeros, far smaller numbers, half an ulp of the sum, and the negative product with its
    neighbours."""
    count = len(products)
    exponent = np.frexp(products)[1]
    below = np.ldexp(1.0, exponent - fmt.precision - rng.integers(2, 3 * fmt.precision, count))
    above = np.ldexp(1.0 + rng.random(count), np.minimum(exponent + rng.integers(0, fmt.precision + 2, count), 1 << 12))
    tiny = np.full(count, np.ldexp(1.0, fmt.min_exponent - fmt.mantissa_bits))
    choice = rng.integers(0, 8, count)
    size = np.select(
        [choice == 0, choice <= 2, choice == 3, choice == 4],
        [np.zeros(count), below, above, tiny],
        np.abs(products),
    )
    code = cut(fmt, size)
    near = np.clip(
        ordinal(fmt, code) + np.where(choice >= 6, rng.integers(-2, 3, count), 0), 0, fmt.max_finite >> fmt.ignored_bits
    )
    negative = np.where(choice >= 5, products > 0, rng.random(count) < 0.5)
    return _signed(fmt, from_ordinal(fmt, near), negative)
