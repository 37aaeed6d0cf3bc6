"""Bit goldens: what is kept of a block of outputs so that a later run can say not only that it changed but where.

Beside its digest a block keeps three power sums of its elements modulo a prime, weighted by 1, by the element's
position and by the position squared. Where exactly one input's output changed, their differences are d, i*d and i*i*d:
the position is a quotient, and the third sum confirms it (a wrong answer passes with a chance of 1 in 2^31). Where
several changed they do not fit, and only the block is named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.records import Block

PRIME = (1 << 31) - 1  # products of two residues fit in 64 bits
_MIX = 1_103_515_245  # keeps equal changes in two outputs from cancelling


def sums(outputs: Mapping[str, NDArray[Any]]) -> tuple[int, ...]:
    """The three sums of a block's outputs, storage units in order; an empty tuple for an empty block.

    Outputs of fewer units than the longest (packed formats) count at the position of their first input.
    """
    flat = {name: np.ascontiguousarray(a).reshape(-1) for name, a in outputs.items()}
    count = max((len(a) for a in flat.values()), default=0)
    if not count:
        return ()
    found = [0, 0, 0]
    for n, name in enumerate(sorted(flat)):
        values = _residues(flat[name]) * np.uint64(pow(_MIX, n + 1, PRIME)) % np.uint64(PRIME)
        place = (np.arange(len(values), dtype=np.uint64) * np.uint64(count)) // np.uint64(max(1, len(values)))
        place = (place + np.uint64(1)) % np.uint64(PRIME)
        for power in range(3):
            found[power] = (found[power] + int((values % np.uint64(PRIME)).sum(dtype=np.uint64))) % PRIME
            values = values * place % np.uint64(PRIME)
    return tuple(found)


def _residues(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Storage units of 1 to 8 bytes as integers modulo the prime."""
    units = array.view(f"u{array.dtype.itemsize}") if array.dtype.itemsize in (1, 2, 4, 8) else array
    residues: NDArray[np.uint64] = units.astype(np.uint64) % np.uint64(PRIME)
    return residues


def locate(before: Block, after: Block) -> int | None:
    """The one input whose output changed between two blocks, as its number in the set; None where it is not one."""
    if len(before.sums) != 3 or len(after.sums) != 3 or (before.first, before.count) != (after.first, after.count):
        return None
    d0, d1, d2 = ((b - a) % PRIME for a, b in zip(before.sums, after.sums, strict=True))
    if not d0:
        return None
    place = d1 * pow(d0, -1, PRIME) % PRIME
    if d0 * place * place % PRIME != d2 or not 1 <= place <= before.count:
        return None
    return before.first + place - 1


def changed(before: Sequence[Block], after: Sequence[Block]) -> list[tuple[Block, int | None]]:
    """The blocks that changed, each with the one input that did, if it is one.

    Blocks that only one side has count as changed: the same inputs gave another number of outputs.
    """
    old = {b.first: b for b in before}
    new = {b.first: b for b in after}
    found: list[tuple[Block, int | None]] = []
    for first in sorted(old.keys() | new.keys()):
        a, b = old.get(first), new.get(first)
        if a is None or b is None:
            found.append((a or b, None))  # type: ignore[arg-type]
        elif (a.count, a.digest) != (b.count, b.digest):
            found.append((b, locate(a, b)))
    return found
