"""Inputs chosen by the bits of their formats alone, where neither edges nor random bits are enough.

Wide integers: every code of one or two bits, all bits but one, or a run of ones at either end. A function that moves
bits gives its extreme results on these. Packed formats: every edge code in every slot; the edges have a choice of them
there. Three or more floats: all of them in one binade and of one sign, for each binade, so that the largest and the
smallest of them lie there too.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_codes, edge_units
from ptxdiff.inputs.positions import in_slots
from ptxdiff.references.formats import Format

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
