"""How an mbarrier is told of what the tensor cores have done (tcgen05.commit; ISA 9.7.16.10.10)."""

from __future__ import annotations

import numpy as np

from harness.ptx.binding.builder import binds, expect
from harness.ptx.binding.program import Step
from harness.ptx.errors import NotElementwise
from harness.ptx.isa.forms import Bound
from harness.ptx.kernel.accesses import address
from harness.ptx.kernel.builder import KernelBuilder
from harness.ptx.kernel.frame import KernelFrame
from harness.ptx.kernel.mbarriers import barrier_at, places
from harness.ptx.kernel.memory import Access
from harness.ptx.kernel.tensorcolumns import of_one_block
from harness.ptx.machine.operations import runs
from harness.ptx.numeric.vectorise import Array
from harness.ptx.text.nodes import Instruction


@binds("tcgen05_commit")
def _bind_commit(builder: KernelBuilder, node: Instruction, bound: Bound) -> Step:
    of_one_block(builder, node, bound)
    if "multicast::cluster" in node.modifiers:
        text = f"{node.spelling}: the emulator runs blocks without a cluster, where there is nobody else to tell"
        raise builder.error(NotElementwise, text, node.offset)
    expect(builder, node, 1)
    space = (bound.modifiers["space"] or "").partition("::")[0]
    base, displacement = address(builder, node.operands[0], space)
    return Step("tcgen05_commit", node, bound, (base,), detail=Access(space, displacement, 64, 1))


@runs("tcgen05_commit")
def _run_commit(frame: KernelFrame, step: Step, active: Array | None) -> None:
    lanes = frame.every if active is None else np.flatnonzero(active)
    if len(lanes):
        offsets = places(frame, step, step.sources[0], step.detail, lanes).tolist()
        for lane, offset in zip(lanes.tolist(), offsets, strict=True):
            barrier_at(frame, step, offset, lane)
            frame.tensor.commit(step, lane, offset)
