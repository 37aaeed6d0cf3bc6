"""Find the instruction of inline asm that left the bits undefined which a kernel stores, by running its blocks again.

The store itself is in code that Triton or the harness generated, which the author of the asm cannot change.
"""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import PtxError, UndefinedBits
from ptxdiff.emulator.kernel.cluster.blocks import frame_of
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.schedule import KernelScheduler
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.text.llvmtext import in_asm


class _Origins:
    """Observes one thread and records, for each register with undefined bits, the instruction that introduced them.

    This is an instruction with defined sources and an undefined result (as after a false predicate), or one that reads
    a register never written. doubtful: the registers with undefined bits that the current step reads.
    """

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.doubtful: list[int] = []
        self._of: dict[int, Step] = {}

    def enter(self, frame: Frame, step: Step) -> None:
        """Record which sources have undefined bits."""
        slots = [r.slot for r in step.sources if r.slot >= 0] + ([step.guard] if step.guard >= 0 else [])
        self.doubtful = [s for s in slots if self._undefined(frame, s)]

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Record where the result's undefined bits come from."""
        for written in step.destinations:
            if written.slot < 0:
                continue
            if self._undefined(frame, written.slot):
                self._of[written.slot] = self._of.get(self.doubtful[0], step) if self.doubtful else step
            else:
                self._of.pop(written.slot, None)

    @property
    def blamed(self) -> Step | None:
        """The step that introduced the undefined bits which the last step reads."""
        return next((self._of[s] for s in self.doubtful if s in self._of), None)

    def _undefined(self, frame: Frame, slot: int) -> bool:
        mask = frame.undefined[slot]
        if frame.values[slot] is None:
            return True
        return mask is not None and bool(np.broadcast_to(mask, (frame.lanes,))[self.lane])


def at_the_asm(error: UndefinedBits, grid: KernelGrid, first: int, blocks: int) -> UndefinedBits:
    """The error, moved to the instruction of asm that introduced the bits; unchanged if other code introduced them.

    first, blocks: the first of the blocks that ran together, and their number. A kernel that prints is not run again.
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
    except PtxError:  # memory has changed since, so the second run may fail differently
        pass
    return error
