"""tcgen05.commit: report the completion of tensor core operations to mbarriers (ISA 9.7.16.10.10).

A multicast reports to the mbarrier at the same offset in each block of the cluster in a mask.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ptxdiff.emulator.binding.builder import binds, expect
from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.isa.forms import Bound
from ptxdiff.emulator.kernel.async_copy.mbarrier import barrier_at, places
from ptxdiff.emulator.kernel.builder import KernelBuilder
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.memory.access import address
from ptxdiff.emulator.kernel.memory.space import Access
from ptxdiff.emulator.kernel.tcgen05.operands import values
from ptxdiff.emulator.kernel.tcgen05.pairs import of_a_pair
from ptxdiff.emulator.machine.operations import runs
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.nodes import Instruction
from ptxdiff.emulator.text.types import TYPES


@binds("tcgen05_commit")
def _bind_commit(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    of_a_pair(builder, node, bound)
    several = "multicast::cluster" in node.modifiers
    expect(builder, node, 2 if several else 1)
    space = (bound.modifiers["space"] or "").partition("::")[0]
    base, displacement = address(builder, node.operands[0], space or "shared")
    ranks = [builder.read(o, TYPES["u16"], False, "the mask of a multicast") for o in node.operands[1:]]
    return Step("tcgen05_commit", node, bound, (base, *ranks), detail=Access(space, displacement, 64, 1))


@runs("tcgen05_commit")
def _run_commit(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = frame.every if active is None else np.flatnonzero(active)
    if len(lanes):
        offsets = places(frame, step, step.sources[0], _access(frame, step, lanes), lanes).tolist()
        masks = values(frame, step, step.sources[1:], lanes) if len(step.sources) > 1 else [[]] * len(lanes)
        for lane, offset, mask in zip(lanes.tolist(), offsets, masks, strict=True):
            barriers = [offset]
            if mask:
                within = offset % frame.shared.size
                barriers = [block * frame.shared.size + within for block in frame.receivers(step, lane, mask[0])]
            for one in barriers:
                frame.refuse_unmade(step, [one], np.array([lane]))
                barrier_at(frame, step, one, lane)
            frame.tensor.commit(step, lane, barriers)


def _access(frame: KernelFrame, step: Step, lanes: Array) -> Access:
    """The address. Without a state space the ISA requires a generic address; an offset in shared memory is accepted
    too.

    ptxas 12.8 and 12.9 pass the low word of the register to UTCBAR in both cases, and Triton 3.6 writes offsets.
    """
    access: Access = step.detail
    value, _ = frame.read(step.sources[0])
    words = np.broadcast_to(value, (frame.lanes,))[lanes].astype(np.uint64) + np.uint64(access.displacement % (1 << 64))
    return replace(access, space="shared") if not access.space and (words < 1 << 32).all() else access
