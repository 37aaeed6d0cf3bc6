"""Pairs of blocks that work together in tensor memory (.cta_group::2; ISA 9.7.16.5).

A pair is two blocks of a cluster whose ranks differ only in the lowest bit. The block of even rank holds the first half
of each matrix, the other block the second half, at the same addresses. The halves are rows of a and d, and columns of
b. Either block may issue. Either all instructions of a kernel work on one block, or all on pairs.
"""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import ExecutionError, OperandError
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.text.nodes import Instruction


def of_a_pair(builder: KernelBuilder, node: Instruction, bound: Bound) -> bool:
    """Whether an instruction works on a pair. Raises OperandError if earlier ones of the kernel differ."""
    group = bound.modifiers.get("group") or "cta_group::1"
    other = builder.tensor_group
    if other and other != group:
        text = f"{node.spelling}: all tcgen05 instructions of a kernel have the same .cta_group, and one before has "
        raise builder.error(OperandError, f"{text}.{other}", node.offset)
    builder.tensor_group = group
    return group == "cta_group::2"


def peer(frame: KernelFrame, step: Step, lane: int) -> int:
    """The other block of a lane's pair. Raises ExecutionError if there is none."""
    size, block = frame.grid.cluster_size, int(frame.block[lane])
    rank = block % size
    if rank ^ 1 >= size:
        text = (
            f"{frame.who(lane)} works on a pair of blocks (.cta_group::2), and its block, of rank {rank} in a cluster "
        )
        raise frame.fault(ExecutionError, step, f"{text}of {size}, has no other: that is the one of rank {rank ^ 1}")
    return block - rank + (rank ^ 1)


def members(frame: KernelFrame, step: Step, lane: int, pair: bool) -> list[int]:
    """The blocks on which an instruction works, the one of even rank first.

    Raises MemoryFault if the other block may not have begun, or has ended.
    """
    block = int(frame.block[lane])
    if not pair:
        return [block]
    other = peer(frame, step, lane)
    frame.reach(step, np.array([lane]), np.array([other % frame.grid.cluster_size]), waits=False)
    return sorted([block, other])
