"""Which instruction of inline asm left the bits undefined that a kernel stores, found by running its blocks again.

The store stands in Triton's code, or in the harness's own; its author can do nothing about it.
"""

from __future__ import annotations

import numpy as np

from harness.ptx.binding.program import Step
from harness.ptx.errors import PtxError, UndefinedBits
from harness.ptx.kernel.clusters import frame_of
from harness.ptx.kernel.grid import KernelGrid
from harness.ptx.kernel.schedule import KernelScheduler
from harness.ptx.machine.frame import Frame
from harness.ptx.text.llvmtext import in_asm


class _Origins:
    """Observes one thread: for each register with undefined bits, the instruction that first had them.

    That is the one whose sources are defined and whose result is not, as a predicate that is false leaves it, or the
    one that reads a register which nobody wrote. doubtful: the registers with undefined bits that the step reads.
    """

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.doubtful: list[int] = []
        self._of: dict[int, Step] = {}

    def enter(self, frame: Frame, step: Step) -> None:
        """Note which sources have undefined bits."""
        slots = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        self.doubtful = [s for s in slots if self._undefined(frame, s)]

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Note where the result's undefined bits come from."""
        for written in step.destinations:
            if written.slot < 0:
                continue
            if self._undefined(frame, written.slot):
                self._of[written.slot] = self._of.get(self.doubtful[0], step) if self.doubtful else step
            else:
                self._of.pop(written.slot, None)

    @property
    def blamed(self) -> Step | None:
        """Where the undefined bits that the last step reads come from."""
        return next((self._of[s] for s in self.doubtful if s in self._of), None)

    def _undefined(self, frame: Frame, slot: int) -> bool:
        mask = frame.undefined[slot]
        if frame.values[slot] is None:
            return True
        return mask is not None and bool(np.broadcast_to(mask, (frame.lanes,))[self.lane])


def at_the_asm(error: UndefinedBits, grid: KernelGrid, first: int, blocks: int) -> UndefinedBits:
    """The error at the asm's instruction that its bits come from; as it is where they come from elsewhere.

    first, blocks: the blocks that ran together. A kernel that prints does not run again.
    """
    steps = grid.program.steps
    if error.lane is None or not any(in_asm(grid.program.source, s.node.offset) for s in steps):
        return error
    if any(s.kind == "call" for s in steps):
        return error
    frame, origins = frame_of(grid, first, blocks), _Origins(error.lane)
    scheduler = KernelScheduler(grid.program, frame)
    scheduler.observer = origins
    try:
        scheduler.run()
    except UndefinedBits as again:
        step = origins.blamed
        if again.reached == error.reached and step is not None and in_asm(grid.program.source, step.node.offset):
            return grid.error(
                UndefinedBits,
                step,
                f"{error.reached} at line {error.line}; this instruction leaves them undefined, or reads a register "
                "that holds nothing, as elements that fill up a pack do",
            )
    except PtxError:  # what other threads stored meanwhile lets it end in another way
        pass
    return error
