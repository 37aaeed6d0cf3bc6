"""Loads and stores of tensor memory that their warps have not waited for (tcgen05.wait::ld, ::st).

Until a store is waited for nobody may touch its cells, until a load is nobody may write to them, or free them. That a
thread reads a register before it waits for the load is not refused: Triton 3.9 has LLVM move waits behind the first
uses, as ptxas waits for registers by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.ptx.kernel.copies import Reaching
from harness.ptx.kernel.tensorwork import TensorWork
from harness.ptx.numeric.vectorise import Array


@dataclass
class Unwaited:
    """A load or a store of a warp, counted over all blocks, that it has not waited for, and its cells."""

    warp: int
    cells: Array
    stores: bool


class TensorWaits:
    """What the warps of a frame have not waited for."""

    def __init__(self, frame: Reaching, work: TensorWork) -> None:
        self.frame = frame
        self.work = work
        self.unwaited: list[Unwaited] = []

    def accessed(self, lane: int, cells: Array, stores: bool) -> None:
        """The load or store of cells of a warp, whose first lane this is, is under way."""
        frame, memory = self.frame, self.work.memory
        who = int(frame.thread[lane]) // 32
        if stores:
            memory.storing[cells] = who + 1
            memory.note_write(cells, who, frame.clock)
        else:
            memory.loading[cells] += 1
            memory.note_read(cells, who, frame.clock, int(frame.block_time[lane : lane + 32].max()))
        self.unwaited.append(Unwaited(lane // 32, cells, stores))
        self.work.touch(lane, cells)

    def waited(self, warps: Array, stores: bool) -> None:
        """Warps wait for all their stores, or all their loads: from now on barriers order these."""
        memory, frame = self.work.memory, self.frame
        mine = set(warps.tolist())
        for one in self.unwaited:
            if one.stores == stores and one.warp in mine:
                who = int(frame.thread[one.warp * 32]) // 32
                if stores:
                    memory.storing[one.cells] = 0
                    memory.note_write(one.cells, who, frame.clock)
                else:
                    np.subtract.at(memory.loading, one.cells, 1)
                    since = int(frame.block_time[one.warp * 32 : one.warp * 32 + 32].max())
                    memory.note_read(one.cells, who, frame.clock, since)
        self.unwaited = [u for u in self.unwaited if not (u.stores == stores and u.warp in mine)]
