"""Positions in a format's ordered values: in every binade, between integers, of float64 values; and codes in slots."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import Format, ordinal

Codes = NDArray[np.int64]

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
