"""Which tensor core operations of one thread run in order without a wait between them (ISA 9.7.16.6.2).

The ISA lists pairs of operations that access tensor memory in the order in which they were issued. Other pairs may run
in any order, so their accesses to one cell are a race unless a wait for a commit lies between. For each cell the role
of the last access is recorded. This is enough: an access is accepted only if it is ordered after the last one, so it is
ordered after all earlier ones.

The list names reads of a and of metadata. Here reads of scales count as these, as CUTLASS copies scales and multiplies
without a wait. The list asks that a product read the address that a copy wrote. Here it may read any part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ptxdiff.ptx.binding.program import Step
from ptxdiff.ptx.numeric.vectorise import Array

if TYPE_CHECKING:
    from ptxdiff.ptx.kernel.tensormemory import TensorMemory

D, COPY, SMALL_COPY, SHIFT, INPUT, SHIFTED = range(1, 7)
"""Roles: a product writes d; a copy writes, or one of 4 rows; a shift writes; a product, or a shift, reads."""
WRITES = (D, COPY, SMALL_COPY, SHIFT)
Accumulators = dict[tuple[int, ...], int]
"""Numbers of accumulators, by address and shape."""

ORDERED = {
    D: {D, INPUT},
    COPY: {INPUT},
    SMALL_COPY: {INPUT, SHIFT, SHIFTED},
    SHIFT: {INPUT},
    INPUT: {COPY, SMALL_COPY, SHIFT, INPUT, SHIFTED},
    SHIFTED: {INPUT, SHIFTED},
}
"""For each role, after which roles it is ordered; D after D only with the same accumulator."""
_AFTER = np.array([[last in ORDERED.get(role, ()) for last in range(7)] for role in range(7)])


def roles_of(step: Step) -> tuple[int, int]:
    """The roles of the cells that an operation writes and reads."""
    if step.kind == "tcgen05_mma":
        return D, INPUT
    if step.kind == "tcgen05_shift":
        return SHIFT, SHIFTED
    return (SMALL_COPY if step.bound.modifiers.get("shape") == "4x256b" else COPY), INPUT


def unordered(memory: TensorMemory, cells: Array, role: int, accumulator: int) -> Array:
    """Which cells an operation accesses although an earlier one, under way, may access them later.

    role: what the operation does with the cells. accumulator: the number of its accumulator.
    """
    pending = memory.busy[cells] > 0
    if role in WRITES:
        pending |= memory.being_read[cells] > 0
    if not pending.any():
        return pending
    last = memory.role[cells]
    good = _AFTER[role][last]
    if role == D:
        good &= (last != D) | (memory.accumulator[cells] == accumulator)
    return np.asarray(pending & ~good)
