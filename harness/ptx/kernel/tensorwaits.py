"""Loads and stores of tensor memory before the wait of their warps (tcgen05.wait::ld, ::st).

Before the wait for a store, any access to its cells is an error. Before the wait for a load, writing or freeing its
cells is an error. Reading a loaded register before the wait is allowed: in Triton 3.9, LLVM moves waits after the first
uses, and ptxas inserts waits for registers itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.ptx.kernel.copies import Reaching
from ptxdiff.ptx.kernel.tensorwork import TensorWork
from ptxdiff.ptx.numeric.vectorise import Array


@dataclass
class Unwaited:
    """A load or store of a warp (numbered over all blocks) before its wait, and its cells."""

    warp: int
    cells: Array
    stores: bool


class TensorWaits:
    """The loads and stores of a frame's warps before their waits."""

    def __init__(self, frame: Reaching, work: TensorWork) -> None:
        self.frame = frame
        self.work = work
        self.unwaited: list[Unwaited] = []

    def accessed(self, lane: int, cells: Array, stores: bool) -> None:
        """Record a load or store of cells as under way. lane: the first lane of its warp."""
        frame, memory = self.frame, self.work.memory
        who = int(frame.thread[lane]) // 32
        if stores:
            memory.storing[cells] = who + 1
            memory.note_write(cells, who, frame.order.clock)
        else:
            memory.loading[cells] += 1
            memory.note_read(cells, who, frame.order.clock, int(frame.order.block_time[lane : lane + 32].max()))
        self.unwaited.append(Unwaited(lane // 32, cells, stores))
        self.work.touch(lane, cells)

    def waited(self, warps: Array, stores: bool) -> None:
        """Complete all stores, or all loads, of warps that wait. From now on barriers order them."""
        memory, frame = self.work.memory, self.frame
        mine = set(warps.tolist())
        for one in self.unwaited:
            if one.stores == stores and one.warp in mine:
                who = int(frame.thread[one.warp * 32]) // 32
                if stores:
                    memory.storing[one.cells] = 0
                    memory.note_write(one.cells, who, frame.order.clock)
                else:
                    np.subtract.at(memory.loading, one.cells, 1)
                    since = int(frame.order.block_time[one.warp * 32 : one.warp * 32 + 32].max())
                    memory.note_read(one.cells, who, frame.order.clock, since)
        self.unwaited = [u for u in self.unwaited if not (u.stores == stores and u.warp in mine)]
