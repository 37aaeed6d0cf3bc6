"""Which bytes of a result depend on bits that were never written, for instructions with a row of the table.

Any bit of most results may depend on each bit of the sources. Some results depend on a source by bytes or halves: a
byte that a permutation moves, a half of a packed sum, a byte that a mask clears. Then a half that was never written
says nothing about the other one, which may be stored.

Parts are numbers below 16, one for each lane: bit k is set if byte k depends on bits that were never written.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array, ArrayFunction
from ptxdiff.sass.isa import convert, half, logic
from ptxdiff.sass.rows import RowMatch

Parts = Array | None
"""The parts of a source in each lane; None: no part in any lane."""
Spread = Callable[[Sequence[Parts], Sequence[Array]], Array]
"""The parts of a result, from those of each source and the sources' values."""

_BITS = np.array([sum(0xFF << 8 * k for k in range(4) if parts >> k & 1) for parts in range(16)], np.uint32)
_LOWER, _UPPER, _ALL = 0x3, 0xC, 0xF


def parts_of(kind: str, suffix: str) -> Callable[[Array], Array]:
    """From the parts of a register to those of a source's value, which may be one half or byte of the register.

    kind: of the source, see `ptxdiff.sass.rows.SOURCES`.
    """
    if kind in ("h", "g") and suffix in ("H0_H0", "H1_H1"):
        return partial(_twice, by=2 if suffix == "H1_H1" else 0)
    if kind in ("e", "k", "K", "t"):
        return partial(_cut, by=2 if suffix in ("H1_H1", "H1") else 0, most=_LOWER)
    if kind == "y":
        return partial(_cut, by=int(suffix[1:] or 0), most=1)
    return partial(_cut, by=3, most=1) if kind == "z" else partial(_cut, by=0, most=_ALL)


def _cut(parts: Array, by: int, most: int) -> Array:
    return np.asarray(parts >> by & most)


def _twice(parts: Array, by: int) -> Array:
    one = parts >> by & _LOWER
    return np.asarray(one | one << 2)


def spread_of(match: RowMatch, functions: Sequence[ArrayFunction]) -> Spread | None:
    """How the parts of an instruction's result follow from those of its sources; None: any part makes all doubtful.

    functions: the row's definition, by destination.
    """
    if match.shape.destinations != ("R",):
        return None
    definition = match.row.definition
    if definition in _MOVES:
        return partial(_moved, functions[0], _MOVES[definition])
    if definition in (logic.lop3, logic.lop3_alone):
        return partial(_by_bits, int(match.constants["lut"]))
    if definition in _HALVES:
        return _by_halves
    if definition in _PACKED:
        return _packed
    return _in_lower_half if definition in _LOWER_HALF else None


_MOVES: dict[Callable[..., Any], tuple[int, ...]] = {
    logic.mov: (), logic.prmt: (1,), logic.prmt_in_mode: (1,), logic.shf: (1,), logic.sel: (2,)
}  # fmt: skip
"""Definitions of which each bit of the result is one bit of a source, or a constant. Also the numbers of the sources
that say which bit: they are read as they are."""
_HALVES = {half.hadd2, half.hmul2, half.hfma2, half.hfma2_oob, half.hmnmx2, half.vhmnmx, half.hmnmx2_xorsign,
           half.hset2, half.hset2_mask}  # fmt: skip
"""Definitions of which a half of the result depends on the same half of the sources, and on predicates."""
_PACKED = {convert.f2fp_f16, convert.f2fp_bf16, convert.f2fp_f16_finite, convert.f2fp_bf16_finite}
"""Definitions of which the first source decides the upper half, and the second one the lower half."""
_LOWER_HALF = {convert.f2f_f16, convert.f2f_bf16, convert.f2f_bf16_f16, convert.f2fp_f16_one, convert.f2fp_bf16_one}
"""Definitions of which the upper half of the result is zero."""


def _collapsed(bits: Array) -> Array:
    """The parts with a set bit."""
    found = np.ascontiguousarray(bits).view(np.uint8).reshape(-1, 4) != 0
    return np.packbits(found, axis=1, bitorder="little")[:, 0]


def _moved(function: ArrayFunction, deciding: Sequence[int], parts: Sequence[Parts], values: Sequence[Array]) -> Array:
    """The definition moves the bits that say which bits are doubtful as it moves the bits themselves."""
    lanes = len(values[0])
    doubtful = [v if k in deciding else _BITS[p] if p is not None else np.zeros(lanes, np.uint32)
                for k, (p, v) in enumerate(zip(parts, values, strict=True))]  # fmt: skip
    found = _collapsed(function(lanes, *doubtful))
    for k in deciding:
        if (unknown := parts[k]) is not None:
            found = np.where(unknown != 0, np.uint8(_ALL), found)
    return found


def _by_bits(table: int, parts: Sequence[Parts], values: Sequence[Array]) -> Array:
    """A bit of the result depends on bits at its own place: it is doubtful if it changes with the doubtful ones."""
    masks = [_BITS[p] if p is not None else None for p in parts[:3]]
    choices: list[list[Array]] = [[v] if m is None else [v & ~m, v | m] for v, m in zip(values[:3], masks, strict=True)]
    results = [_by_table(table, *chosen) for chosen in itertools.product(*choices)]
    changed = results[0] ^ results[0]
    for other in results[1:]:
        changed |= results[0] ^ other
    return _collapsed(changed)


def _by_table(table: int, a: Array, b: Array, c: Array) -> Array:
    found = np.zeros(len(a), np.uint32)
    for k in range(8):
        if table >> k & 1:
            found |= (a if k & 4 else ~a) & (b if k & 2 else ~b) & (c if k & 1 else ~c)
    return found


def _by_halves(parts: Sequence[Parts], values: Sequence[Array]) -> Array:
    found = np.zeros(len(values[0]), np.uint8)
    for part, value in zip(parts, values, strict=True):
        if part is not None:
            whole = value.dtype == np.uint8  # a predicate
            found |= np.where(part & (_ALL if whole else _LOWER), np.uint8(_LOWER), np.uint8(0))
            found |= np.where(part & (_ALL if whole else _UPPER), np.uint8(_UPPER), np.uint8(0))
    return found


def _packed(parts: Sequence[Parts], values: Sequence[Array]) -> Array:
    found = np.zeros(len(values[0]), np.uint8)
    for part, where in zip(parts, (_UPPER, _LOWER), strict=True):
        if part is not None:
            found |= np.where(part, np.uint8(where), np.uint8(0))
    return found


def _in_lower_half(parts: Sequence[Parts], values: Sequence[Array]) -> Array:
    found = np.zeros(len(values[0]), np.uint8)
    for part in parts:
        if part is not None:
            found |= np.where(part, np.uint8(_LOWER), np.uint8(0))
    return found
