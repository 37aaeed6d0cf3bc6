"""Inputs chosen by the formats alone: patterns of bits, equal neighbours, and special values in combinations.

Each serves where neither edges nor random bits are enough.

Wide integers: every code of one or two bits, all bits but one, or a run of ones at either end. A function that moves
bits gives its extreme results on these. Packed formats: every edge code in every slot; the edges have a choice of them
there. Three or more floats: all of them in one binade and of one sign, for each binade, so that the largest and the
smallest of them lie there too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_codes, edge_units, in_slots
from ptxdiff.references.formats import Format, encode

Codes = NDArray[np.int64]
Rng = np.random.Generator

_EACH_BINADE = 2
"""Rows of each binade and sign."""
_MANY = 3
"""Floats from which on lines and random bits hardly ever put all of them into one binade far from one."""


def pattern_inputs(formats: Mapping[str, Format], rng: Rng) -> list[Codes]:
    """Storage units of every input: the patterns of each input in turn, with random edges in the others."""
    rows: dict[str, list[Codes]] = {n: [np.zeros(0, dtype=np.int64)] for n in formats}
    for name, fmt in formats.items():
        units = pattern_units(fmt)
        for other, its in formats.items() if len(units) else ():
            rows[other].append(units if other == name else rng.choice(edge_units(its), len(units)))
    for name, more in _of_one_binade(formats, rng).items():
        rows[name].append(more)
    return [np.concatenate(rows[n]) for n in formats]


def _of_one_binade(formats: Mapping[str, Format], rng: Rng) -> dict[str, Codes]:
    """All floats of a row in one binade, other inputs at random edges; nothing for few floats or several formats."""
    alike = [n for n, f in formats.items() if f.is_float and f.code_bits > 8]
    if len(alike) < _MANY or len({formats[n].single for n in alike}) > 1:
        return {}
    begins = _binades(formats[alike[0]].single)
    return {
        n: in_slots(f, _within(f.single, begins, rng)) if n in alike else rng.choice(edge_units(f), len(begins))
        for n, f in formats.items()
    }


@functools.cache
def pattern_units(fmt: Format) -> Codes:
    """Storage units of one input; none of formats whose edges are all of their codes, nor of single floats."""
    single = fmt.single
    packed = fmt.codes_per_unit > 1
    if single.code_bits <= 8 or (single.is_float and not packed):
        return np.zeros(0, dtype=np.int64)
    codes = list(edge_codes(single)) if packed else []
    codes += [] if single.is_float else _few_bits(single.code_bits)
    return in_slots(fmt, np.array([_signed64(c) for c in dict.fromkeys(codes)], dtype=np.int64))


def _few_bits(width: int) -> list[int]:
    """Codes of one or two bits, of all bits but one, and of a run of ones at the lower or the upper end."""
    ones = (1 << width) - 1
    bits = [1 << k for k in range(width)]
    runs = [run for bit in bits for run in (bit - 1, ones ^ (bit - 1))]
    return [*bits, *(ones ^ b for b in bits), *(a | b for a, b in itertools.combinations(bits, 2)), *runs]


def _binades(fmt: Format) -> Codes:
    """Codes with a zero fraction: each finite binade of either sign, as often as rows are wanted of it."""
    shift = fmt.mantissa_bits + fmt.ignored_bits
    sizes = np.arange((fmt.max_finite >> shift) + 1, dtype=np.int64) << shift
    both = np.concatenate([sizes, sizes | -(1 << fmt.sign_shift)]) if fmt.has_sign else sizes
    return np.repeat(both if fmt.code_bits == 64 else both & fmt.code_mask, _EACH_BINADE)


def _within(fmt: Format, begins: Codes, rng: Rng) -> Codes:
    """Random codes of the given binades."""
    fraction = rng.integers(0, 1 << fmt.mantissa_bits, len(begins)) << fmt.ignored_bits
    codes: Codes = np.minimum(begins & fmt.magnitude_mask | fraction, fmt.max_finite) | begins & ~fmt.magnitude_mask
    return codes


def _signed64(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code


# ---- Equal neighbours ------------------------------------------------------------------------------------------------
#
# Code that takes several elements at once may be wrong just there. In every other set neighbours differ almost
# everywhere, and a broadcast operand is one of the inputs only.


Inside = Callable[[Mapping[str, NDArray[np.generic]]], NDArray[np.bool_]]

GROUP = 16
"""The largest pack."""
_ALIKE, _MIXED = 48, 80
"""Groups of one value, and groups of two values in some order."""
_TRIES = 16


def neighbour_inputs(formats: Mapping[str, Format], rng: Rng, inside: Inside | None) -> list[Codes]:
    """Storage units of every input in groups of `GROUP` neighbours: all equal, or one of two values in each place.

    inside: which rows lie in the case's domain; None where it has none. In half of the groups of two values the inputs
    then choose apart: one may be equal in two places and another not. Each place differs alone in some group.
    """
    count = 2 * (_ALIKE + _MIXED)
    rows = _rows(formats, count, rng, inside) if formats else []
    if not rows or len(rows[0]) < 2:
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    one, two = ([np.resize(c[k::2], count // 2) for c in rows] for k in (0, 1))
    orders = _orders(rng)
    made = []
    for a, b in zip(one, two, strict=True):
        mixed = np.where(orders, a[_ALIKE:, None], b[_ALIKE:, None])
        if inside is None:
            orders = np.concatenate([orders[: _MIXED // 2], rng.permutation(orders[_MIXED // 2 :])])
        alike = np.repeat(a[:_ALIKE, None], GROUP, axis=1)
        made.append(np.concatenate([alike, mixed]).reshape(-1))
    return made


def _orders(rng: Rng) -> NDArray[np.bool_]:
    """For each group of two values, in which places the first one stands."""
    places = np.arange(GROUP)
    single = [places == k for k in range(GROUP)]
    spans = [(places // width) % 2 == k for width in (1, 2, 4, 8) for k in (0, 1)]
    drawn = list(rng.random((_MIXED - len(single) - len(spans), GROUP)) < 0.5)
    return np.array(rng.permutation(np.array([*single, *spans, *drawn])))


def _rows(formats: Mapping[str, Format], count: int, rng: Rng, inside: Inside | None) -> list[Codes]:
    """Up to `count` distinct rows in the domain: edges, and for every second one random bits."""
    chunks: list[list[Codes]] = []
    left = count
    for _ in range(_TRIES):
        columns = [_some(f, count, rng) for f in formats.values()]
        units = {n: c.astype(f.numpy_dtype()) for (n, f), c in zip(formats.items(), columns, strict=True)}
        kept = np.arange(count) if inside is None else np.flatnonzero(inside(units))[:left]
        chunks.append([c[kept] for c in columns])
        left -= len(kept)
        if left <= 0:
            break
    return [np.concatenate(parts) for parts in zip(*chunks, strict=True)]


def _some(fmt: Format, count: int, rng: Rng) -> Codes:
    drawn = rng.integers(0, 1 << min(fmt.unit_bits, 63), count, dtype=np.int64)
    return np.where(rng.random(count) < 0.5, drawn, rng.choice(edge_units(fmt), count))


# ---- Special values: few of each input, with rules of their own, in combinations that a sample of edges leaves out ---
#
# Of three inputs with a hundred edges each the edge set has a third of the pairs, of four a sixth. So it may lack a
# zero beside a zero of the other sign, or an infinity beside its opposite. Up to three inputs have every combination of
# these few values; more have every pair of every two inputs, by an orthogonal array, several times over.


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
    nans = [c for c in edge_codes(fmt) if c & fmt.magnitude_mask > fmt.infinity_code]
    return [nans[0], nans[-1]] if nans else []


def combinations(columns: Sequence[Codes], rng: np.random.Generator) -> list[Codes]:
    """Rows with every combination of the columns' values, or every pair of every two columns."""
    if np.prod([len(c) for c in columns], dtype=object) <= _ROWS:
        return [g.reshape(-1) for g in np.meshgrid(*columns, indexing="ij")]
    prime = _prime_from(max(len(columns) - 1, *(len(c) for c in columns)))
    i, j = (g.reshape(-1) for g in np.meshgrid(np.arange(prime), np.arange(prime), indexing="ij"))
    # Bush's array of strength 2: modulo a prime, any two of j, i, i + j, i + 2j, ... determine the row.
    places = [j, *((i + k * j) % prime for k in range(len(columns) - 1))]
    turns = [
        [np.resize(rng.permutation(c), prime)[indices] for _ in range(_TURNS)]
        for c, indices in zip(columns, places, strict=True)
    ]
    return [np.concatenate(turn) for turn in turns]


def _prime_from(least: int) -> int:
    """The smallest prime that is not below `least`."""
    number = max(least, 2)
    while any(number % divisor == 0 for divisor in range(2, number)):
        number += 1
    return number
