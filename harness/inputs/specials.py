"""Few values of each input, those with rules of their own, in combinations that a sample of the edges leaves out.

Of three inputs with a hundred edges each the edge set has a third of the pairs, of four a sixth. So it may lack a zero
beside a zero of the other sign, or an infinity beside its opposite. Up to three inputs have every combination of these
few values; more have every pair of every two inputs, by an orthogonal array, several times over.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_codes, edge_units
from ptxdiff.references.formats import Format, encode

Codes = NDArray[np.int64]

_FEW = 18
_ROWS = 8_000
"""Rows up to which there is every combination."""
_TURNS = 8
"""Arrays for more inputs, each with the values in another order: a domain may not hold what stands beside a pair."""


@functools.cache
def special_units(fmt: Format) -> Codes:
    """At most `_FEW` storage units: of wide formats zeros, infinities, NaN, ones, and both ends of what is subnormal.

    Of others, and of packed ones, edges at equal distances.
    """
    if fmt.codes_per_unit > 1 or fmt.code_bits <= 8:
        units = edge_units(fmt)
        some: Codes = units[np.unique(np.linspace(0, len(units) - 1, _FEW).astype(int))]
        return some
    if not fmt.is_float:
        top = 1 << (fmt.code_bits - 1)
        codes = [0, 1, 2, 31, 32, 127, 128, 255, 256, -1, -2, -32, top, top - 1, top + 1, top // 2, 0x5555555555555555]
    else:
        sizes = [
            0,
            fmt.min_positive,
            fmt.min_normal - fmt.min_positive,
            fmt.min_normal,
            encode(fmt, 1.0),
            fmt.max_finite,
        ]
        sizes += [] if fmt.infinity_code is None else [fmt.infinity_code]
        sign = 1 << fmt.sign_shift if fmt.has_sign else 0
        codes = [size | s for size in sizes for s in ((0, sign) if sign else (0,))] + _nans(fmt)
    kept = dict.fromkeys(c & fmt.code_mask for c in codes)
    return np.array([c - (1 << 64) if c >> 63 else c for c in kept], dtype=np.int64)


def _nans(fmt: Format) -> list[int]:
    """The edges that are NaN: the first one, quiet, and the last one, signalling."""
    if fmt.infinity_code is None:
        return [] if fmt.nan == "none" else [fmt.magnitude_mask]
    found = [c for c in edge_codes(fmt) if c & fmt.magnitude_mask > fmt.infinity_code]
    return [found[0], found[-1]] if found else []


def combinations(columns: Sequence[Codes], rng: np.random.Generator) -> list[Codes]:
    """Rows with every combination of the columns' values, or every pair of every two columns."""
    if np.prod([len(c) for c in columns], dtype=object) <= _ROWS:
        return [g.reshape(-1) for g in np.meshgrid(*columns, indexing="ij")]
    prime = _prime_from(max(len(columns) - 1, *(len(c) for c in columns)))
    i, j = (g.reshape(-1) for g in np.meshgrid(np.arange(prime), np.arange(prime), indexing="ij"))
    # Bush's array of strength 2: modulo a prime, any two of j, i, i + j, i + 2j, ... determine the row.
    places = [j, *((i + k * j) % prime for k in range(len(columns) - 1))]
    turns = [
        [np.resize(rng.permutation(c), prime)[place] for _ in range(_TURNS)]
        for c, place in zip(columns, places, strict=True)
    ]
    return [np.concatenate(turn) for turn in turns]


def _prime_from(least: int) -> int:
    """The smallest prime that is not below `least`."""
    number = max(least, 2)
    while any(number % divisor == 0 for divisor in range(2, number)):
        number += 1
    return number
