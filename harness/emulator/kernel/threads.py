"""The lanes of a kernel as threads of its grid: their indices, their order, their special registers."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.binding.special_registers import OF_A_GRID
from ptxdiff.emulator.errors import ExecutionError, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.memory.grid_order import GridOrder, narrow_scopes
from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.kernel.memory.proxy_fences import ProxyFences
from ptxdiff.emulator.kernel.memory.space import AccessTable
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.machine.special_registers import lane_mask
from ptxdiff.emulator.numeric.vectorise import Array

E = TypeVar("E", bound=PtxError)


def run_starts(*columns: Array) -> Array:
    """Where runs of equal rows of some columns, all of one length and not empty, begin."""
    apart: Array = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        apart |= column[1:] != column[:-1]
    return np.append(0, np.flatnonzero(apart) + 1)


class ThreadFrame(Frame):
    """A frame whose lanes are the threads of consecutive blocks.

    `number`: each lane's thread number in the grid, with blocks in the order in which they run. `member`: its number
    among the threads of its block, or of its cluster. `order`: which accesses happen before which. `gone`: the lanes
    that have ended.
    """

    def __init__(self, grid: KernelGrid, first: int, blocks: int) -> None:
        threads = grid.threads
        super().__init__(grid.program, blocks * threads, grid.constants, grid.deadline)
        self.grid = grid
        self.first = first
        lane = np.arange(self.lanes, dtype=np.int64)
        self.every = lane
        self.thread = (lane % threads).astype(np.int32)
        self.block = lane // threads
        self.number = first * threads + lane
        team = threads * grid.cluster_size
        self.order = HappensBefore(self.lanes, threads, team, team, grid.orders_parts)
        if grid.judging == "ordered":
            self.order = GridOrder(self.lanes, threads, team, narrow_scopes(grid.program))
        self.member = self.order.member
        self.gone = np.zeros(self.lanes, np.bool_)
        self.tables: dict[int, AccessTable] = {}
        """The accesses to each buffer, by its identity, where threads may meet in part (see `races`)."""
        self.proxies: dict[int, ProxyFences] = {}
        """Of each buffer that threads wrote and a bulk copy may read."""

    # messages --------------------------------------------------------------------------------------------

    def who(self, lane: int) -> str:
        """A description of a lane as a thread of the grid."""
        return f"thread {int(self.thread[lane])} of block {self.grid.coordinates(self.first + int(self.block[lane]))}"

    def fault(self, kind: type[E], step: Step, message: str) -> E:
        """An error at a step, with the line of the user's program."""
        return self.grid.error(kind, step, message)

    def refuse_undefined(self, step: Step, mask: Array, lanes: Array, where: str) -> None:
        """Raise UndefinedBits if a mask over `lanes` has a bit."""
        if mask.any():
            lane = int(lanes[np.flatnonzero(mask)[0]])
            text = f"undefined bits reach {where} in {self.who(lane)}"
            error = self.fault(UndefinedBits, step, text)
            error.lane, error.reached = lane, text
            raise error

    def under_doubt(self, step: Step, lanes: Array) -> None:
        """Raise UndefinedBits if the predicate of an operation with effects is undefined; of others, the destination
        registers become undefined. So do those of loads, even of those that have an effect by one of their
        modifiers."""
        if step.facts.effects is True:
            self.refuse_undefined(step, lanes, self.every, "the predicate of a store")

    # threads ---------------------------------------------------------------------------------------------

    def need_whole_warps(self, step: Step, active: Array | None) -> None:
        """Raise ExecutionError if only part of a warp runs a warp-wide instruction."""
        if active is None:
            return
        count = active.reshape(-1, 32).sum(axis=1)
        torn = (count != 0) & (count != 32)
        if torn.any():
            lane = int(np.flatnonzero(torn)[0]) * 32
            text = (
                f"{step.bound.spelling} needs all 32 threads of a warp; some of that of {self.who(lane)} are elsewhere"
            )
            raise self.fault(ExecutionError, step, text)

    def warpgroups(self, step: Step, active: Array | None) -> Array:
        """The warpgroups that run a step: four warps each, the first one's number a multiple of four.

        Raises ExecutionError if only part of one runs it.
        """
        if self.grid.threads % 128:
            text = f"{step.bound.spelling} needs warpgroups of four warps; a block here has {self.grid.threads} threads"
            raise self.fault(ExecutionError, step, text)
        if active is None:
            return np.arange(self.lanes // 128)
        count = active.reshape(-1, 128).sum(axis=1)
        torn = (count != 0) & (count != 128)
        if torn.any():
            lane = int(np.flatnonzero(torn)[0]) * 128
            text = f"{step.bound.spelling} needs all 128 threads of a warpgroup; some of that of {self.who(lane)} are"
            raise self.fault(ExecutionError, step, text + " elsewhere")
        return np.flatnonzero(count)

    def special(self, name: str, component: str) -> Array:
        """The value of a special register in each lane."""
        grid = self.grid
        axis = "xyz".find(component) if component else 0
        if name == "%tid":
            return self._within_block(axis)
        if name == "%ntid":
            return self.constant(grid.block[axis] if 0 <= axis < 3 else 1, 32)
        if name == "%ctaid":
            return np.repeat(self._along(axis), grid.threads)
        if name == "%nctaid":
            return self.constant(grid.sizes[axis] if 0 <= axis < 3 else 1, 32)
        if "cluster" in name:
            return self._of_clusters(name, axis)
        if name == "%laneid":
            return self.thread & 31
        if name == "%warpid":
            return self.thread >> 5
        if name == "%nwarpid":
            return self.constant(-(-grid.threads // 32), 32)
        if name.startswith("%lanemask_"):
            return lane_mask(name[10:], (self.thread & 31).astype(np.uint64))
        if name in ("%dynamic_smem_size", "%total_smem_size"):
            return self.constant(grid.shared_bytes, 32)
        return self.constant(0, 64)

    def _within_block(self, axis: int) -> Array:
        """Each thread's index along an axis of its block."""
        x, y, z = self.grid.block
        if (axis == 0 and y == z == 1) or axis > 2:
            return self.thread if axis == 0 else self.constant(0, 32)
        below = (1, x, x * y)[axis]
        return self.thread // below % self.grid.block[axis]

    def knows(self, name: str, component: str) -> bool:
        """Whether the grid determines a special register. The bits of others, such as clocks, are undefined."""
        return name in OF_A_GRID

    def _along(self, axis: int) -> Array:
        """Each block's index along an axis of the grid."""
        block = np.arange(self.first, self.first + self.lanes // self.grid.threads, dtype=np.int64)
        return self.grid.places(block)[axis] if axis < 3 else block * 0

    def _of_clusters(self, name: str, axis: int) -> Array:
        """The special registers of the cluster of each thread's block."""
        grid = self.grid
        size = grid.cluster_size
        if name == "%cluster_ctarank":
            return (self.first + self.block) % size
        if name == "%cluster_nctarank":
            return self.constant(size, 32)
        if name == "%is_explicit_cluster":
            return self.constant(int(grid.in_clusters), 32)
        along = grid.cluster[axis] if 0 <= axis < 3 else 1
        if name == "%cluster_nctaid":
            return self.constant(along, 32)
        if name == "%nclusterid":
            return self.constant(grid.sizes[axis] // along if 0 <= axis < 3 else 1, 32)
        coordinate = np.repeat(self._along(axis), grid.threads)
        return coordinate // along if name == "%clusterid" else coordinate % along
