"""Edge codes of a format: values at which arithmetic behaves differently than at their neighbours."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import Format, encode

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
