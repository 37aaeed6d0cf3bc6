"""Edge codes of a format: values at which arithmetic behaves differently than at their neighbours, and their
positions in the ordered values."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import Format, encode, ordinal

Codes = NDArray[np.int64]


@functools.cache
def edge_codes(fmt: Format) -> tuple[int, ...]:
    """The edge codes of one code of a format, in order of size, both signs; all codes if there are at most 256."""
    if fmt.code_bits <= 8:
        return tuple(range(fmt.code_mask + 1))
    codes = _float_edges(fmt) if fmt.is_float else _integer_edges(fmt)
    return tuple(dict.fromkeys(c & fmt.code_mask for c in codes))


def _float_edges(fmt: Format) -> list[int]:
    step = fmt.min_positive
    one = encode(fmt, 1.0)
    top = fmt.max_finite
    sizes = [0, step, 2 * step, 3 * step, fmt.min_normal - step, fmt.min_normal, fmt.min_normal + step]
    sizes += [one + d * step for d in (-2, -1, 0, 1, 2)]
    sizes += [encode(fmt, v) for v in (0.5, 1.5, 2.0, 3.0, 4.0, 6.0, 7.0, 10.0, 100.0, 255.0, 256.0)]
    sizes += [2 * fmt.min_normal, top - step, top]
    # Halves, which tie when rounded to integers, and the first value above which every value is an integer.
    sizes += [encode(fmt, v) for v in (2.5, 3.5)]
    integer = encode(fmt, float(1 << fmt.mantissa_bits))
    sizes += [integer - step, integer, integer + step]
    # A power of two, its neighbours and an all-ones significand in a spread of binades.
    binade = 1 << (fmt.mantissa_bits + fmt.ignored_bits)
    exponents = (1 << fmt.exponent_bits) - 1
    for exponent in range(1, exponents, max(1, exponents // 12)):
        sizes += [exponent * binade, (exponent + 1) * binade - step]
    # The last binades, whose reciprocals are subnormal.
    sizes += [(exponents - back) * binade + d * step for back in (1, 2, 3) for d in (0, 1)]
    if fmt.infinity_code is not None:
        sizes.append(fmt.infinity_code)
    sizes += _nans(fmt)
    sign = 1 << fmt.sign_shift if fmt.has_sign else 0
    return [code | s for code in sizes if code <= fmt.magnitude_mask for s in ((0, sign) if sign else (0,))]


def _nans(fmt: Format) -> list[int]:
    """Quiet and signalling NaNs, with the smallest, a mixed and the largest payload."""
    if fmt.nan == "none":
        return []
    if fmt.nan == "fn":
        return [fmt.magnitude_mask]
    quiet = 1 << (fmt.mantissa_bits + fmt.ignored_bits - 1)
    base = fmt.infinity_code or 0
    payload = (quiet - 1) & 0x5A5A5A5A5A5A5 or 1
    return [base | quiet, base | quiet | payload, base | (2 * quiet - 1), base | fmt.min_positive, base | payload]


def _integer_edges(fmt: Format) -> list[int]:
    bits = fmt.code_bits
    top = 1 << (bits - 1)
    codes = [0, 1, 2, 3, -1, -2, -3, top, top - 1, top + 1, top - 2, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA]
    codes += [0x0123456789ABCDEF, 0xFEDCBA9876543210, 0x00FF00FF00FF00FF, 127, 128, 255, 256]
    for bit in range(2, bits, max(1, bits // 16)):
        codes += [1 << bit, (1 << bit) - 1, -(1 << bit), (1 << bit) + 1]
    # Integers that the significands of float16, bfloat16 and float32 cannot all hold: ties when converted.
    codes += [sign * ((1 << p) + d) for p in (8, 11, 24, 53) if p < bits for d in (-1, 1, 3) for sign in (1, -1)]
    return codes


@functools.cache
def edge_units(fmt: Format) -> Codes:
    """Edge values of one storage unit, as int64: for packed formats, combinations of edge codes."""
    if fmt.codes_per_unit == 1:
        return np.array([_signed64(c) for c in edge_codes(fmt)], dtype=np.int64)
    if fmt.unit_bits <= 8:
        return np.arange(1 << fmt.unit_bits, dtype=np.int64)
    single = edge_codes(fmt.single)
    few = single[:: max(1, len(single) // 24)]
    pairs = itertools.product(few, repeat=2)
    units = []
    for low, high in pairs:  # alternating codes: every pair occurs in neighbouring slots
        slots = [low if k % 2 == 0 else high for k in range(fmt.codes_per_unit)]
        units.append(_signed64(sum(code << (k * fmt.slot_bits) for k, code in enumerate(slots))))
    return np.array(units, dtype=np.int64)


def _signed64(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code


def product(columns: list[Codes], cap: int, rng: np.random.Generator) -> list[Codes]:
    """The product of the columns if it has at most `cap` rows; otherwise every pair of values of every two columns.

    If that also has more than `cap` rows, a sample of the pairs that keeps every value of every column.
    """
    if not columns:
        return []
    total = int(np.prod([len(c) for c in columns], dtype=object))
    if total <= cap:
        grids = np.meshgrid(*columns, indexing="ij")
        return [g.reshape(-1) for g in grids]
    rows: list[list[Codes]] = []
    pairs = list(itertools.combinations(range(len(columns)), 2))
    for i, j in pairs:
        a, b = (g.reshape(-1) for g in np.meshgrid(columns[i], columns[j], indexing="ij"))
        row = [rng.choice(c, len(a)) for c in columns]
        row[i], row[j] = a, b
        rows.append(_sampled(row, max(1, cap // len(pairs)), columns, rng))
    return [np.concatenate([row[k] for row in rows]) for k in range(len(columns))]


def _sampled(row: list[Codes], count: int, columns: list[Codes], rng: np.random.Generator) -> list[Codes]:
    if len(row[0]) <= count:
        return row
    chosen = rng.choice(len(row[0]), count, replace=False)
    every = max(len(c) for c in columns)
    extra = [np.resize(c, every) for c in columns]
    return [np.concatenate([values[chosen], more]) for values, more in zip(row, extra, strict=True)]


# ---- Positions in a format's ordered values --------------------------------------------------------------------------
#
# In every binade, between integers, of float64 values; and codes in slots.


_INTEGERS = 192
"""Magnitude of the integers between which places are taken: the exponents of float32's powers of two end at -150 and
128."""


def ends(fmt: Format) -> tuple[int, int]:
    """The first and the last ordinal of a format: infinities, or the largest values."""
    if fmt.is_float:
        last = int(ordinal(fmt, fmt.infinity_code or fmt.max_finite))
        return (-last if fmt.has_sign else 0), last
    half = 1 << (fmt.code_bits - 1)
    return (-half, half - 1) if fmt.has_sign or fmt.code_bits == 64 else (0, fmt.code_mask)


def spread(fmt: Format, count: int, rng: np.random.Generator) -> Codes:
    """About `count` places (ordinals) of a format, in order: equally many of every binade, or one of some binades, and
    infinities.

    For integers, binades are those of the distance from zero; for unsigned ones also of the distance from the largest.
    """
    top = fmt.max_finite >> fmt.ignored_bits if fmt.is_float else (1 << (fmt.code_bits - 1)) - 1
    sizes = np.arange(top + 1, dtype=np.int64) if top < count // 2 else _of_binades(fmt, top, count // 2, rng)
    if fmt.is_float:
        finite = sizes if fmt.infinity_code is None else np.append(sizes, fmt.infinity_code >> fmt.ignored_bits)
        places = np.concatenate([-finite, finite]) if fmt.has_sign else finite
    else:
        places = ordinal(fmt, np.concatenate([sizes, ~sizes]) & (fmt.code_mask if fmt.code_bits < 64 else -1))
    unique: Codes = np.unique(places)
    return unique


def _of_binades(fmt: Format, top: int, count: int, rng: np.random.Generator) -> Codes:
    """Random sizes up to `top`, from as many parts of each binade as `count` allows, including zero and the ends."""
    lengths = fmt.mantissa_bits if fmt.is_float else fmt.code_bits - 1
    begins = [0, *(1 << b for b in range(lengths)), *(f << lengths for f in range(1, (top >> lengths) + 1))]
    low, high = np.array(begins, dtype=np.int64), np.array([*begins[1:], top], dtype=np.int64)
    if len(low) > count:
        chosen = np.unique(np.linspace(0, len(low) - 1, count).astype(np.int64))
        low, high = low[chosen], high[chosen]
    parts = max(1, count // len(low))
    width = (high - low).astype(np.float64)[:, None]
    offset = ((np.arange(parts) + rng.random((len(low), parts))) / parts * width).astype(np.int64)
    return np.concatenate([(low[:, None] + offset).reshape(-1), [top]])


def between_integers(fmt: Format, each: int, rng: np.random.Generator) -> Codes:
    """Places between each two neighbouring integers around zero, because a range reduction restarts at integers.

    None for formats of a byte, and none for integers.
    """
    if not fmt.is_float or fmt.code_bits <= 8:
        return np.zeros(0, dtype=np.int64)
    values = np.repeat(np.arange(_INTEGERS), each) + rng.random(_INTEGERS * each)
    places: Codes = ordinal(fmt, cut(fmt, values))
    return np.concatenate([places, -places]) if fmt.has_sign else places


def cut(fmt: Format, values: NDArray[np.float64]) -> Codes:
    """Magnitudes rounded towards zero to a format, as positive codes; beyond its range the largest finite one."""
    size = np.abs(np.nan_to_num(values, nan=0.0))
    lowest = fmt.min_exponent - fmt.mantissa_bits
    unit = np.maximum(np.frexp(size)[1] - fmt.precision, lowest)
    unit = np.minimum(unit, 1 << 14)
    kept = np.ldexp(size, -unit)
    kept = np.where(np.isfinite(kept), kept, 0).astype(np.int64)
    code = np.minimum(
        ((unit - lowest).astype(np.int64) << fmt.mantissa_bits) + kept, fmt.max_finite >> fmt.ignored_bits
    )
    code = np.where(np.isinf(size), fmt.max_finite >> fmt.ignored_bits, code)
    return code << fmt.ignored_bits


def in_slots(fmt: Format, codes: Codes) -> Codes:
    """Storage units with the codes in the first slot, and in each following slot the codes of the row before."""
    units: Codes = np.bitwise_or.reduce([np.roll(codes, k) << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)])
    return units


def repeated(fmt: Format, codes: Codes) -> NDArray[np.generic]:
    """Storage units with one code in all their slots."""
    units: Codes = np.bitwise_or.reduce([codes << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)])
    return units.astype(fmt.numpy_dtype())
