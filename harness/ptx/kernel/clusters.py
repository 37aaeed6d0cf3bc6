"""Blocks of a cluster: they run together, access each other's shared memory, and synchronise at cluster barriers.

The order between blocks is a time for each pair of a thread and another block of its cluster: everything that the block
did before this time happens before the thread's next instruction. In this module a thread "hears" of the block up to
this time. The time advances at barriers of the cluster, at mbarriers on which the block's threads arrived, and at
barriers of the thread's own block. An access is a race if it conflicts with an access of another block after that time.
It is also a race if the accessed block may not have begun, or may have ended.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from harness.ptx.binding.program import ReadSlot, Step
from harness.ptx.errors import ExecutionError, MemoryFault
from harness.ptx.kernel.frame import KernelFrame
from harness.ptx.kernel.grid import KernelGrid
from harness.ptx.kernel.memory import RANK_BITS, SHARED_BASE, Access, Place, Shared, Times
from harness.ptx.kernel.phases import Barrier
from harness.ptx.numeric.vectorise import UNSIGNED, Array

_BELOW = (1 << RANK_BITS) - 1
_SEVERAL = 1 << 20
"""The number -(this + rank) as a reader stands for several warps of the block of that rank."""
_SEVERAL_BLOCKS = -(1 << 21)
NOTHING = -1
"""The time for a block of which a thread has not heard."""


class ClusterShared(Shared):
    """The shared memory of the blocks of clusters. Threads have numbers within the cluster."""

    compiled = False

    def __init__(self, grid: KernelGrid, blocks: int) -> None:
        super().__init__(blocks, grid.shared_bytes, grid.unit("shared"), grid.races)
        self.ranks = grid.cluster_size
        self.warps = grid.threads // 32

    def rank_of(self, who: Array) -> Array:
        """The rank of the block of a thread, or of a number that stands for several threads of a warp or block."""
        rank = np.where(who >= 0, (who >> 5) // self.warps, (-2 - who) // self.warps)
        return np.clip(np.where(who <= -_SEVERAL, -_SEVERAL - who, rank), 0, self.ranks - 1)

    def _since(self, who: Array, times: Times) -> Array:
        heard = times[2]
        found: Array = heard[np.arange(len(heard))[:, None], self.rank_of(who)]
        found = np.where(who == _SEVERAL_BLOCKS, heard.min(axis=1)[:, None], found)
        return np.maximum(found, 0)

    def _joined(self, one: Array, other: Array) -> Array:
        warp, warp_of_other = _warp(one), _warp(other)
        rank = self.rank_of(one)
        block = np.where((rank == self.rank_of(other)) & (one != _SEVERAL_BLOCKS), -_SEVERAL - rank, _SEVERAL_BLOCKS)
        return np.where((warp == warp_of_other) & (warp >= 0), -2 - warp, block)

    def note_group_read(self, units: Array, now: int, block: int | None = None) -> None:
        """See `Shared`."""
        ranks = (units * self.unit // self.size if block is None else block) % self.ranks
        self.reader[units] = -_SEVERAL - ranks
        self.read[units] = now

    def fence(self, threads: Array, block: Array, since: Array) -> None:
        """See `Shared`. The fence also covers what the thread wrote to other blocks of its cluster."""
        super().fence(threads, block, since)
        each = self.ranks * self.size // self.unit
        for number in np.unique(block // self.ranks).tolist():
            some = slice(number * each, (number + 1) * each)
            self.unfenced[some] &= ~np.isin(self.writer[some], threads[block // self.ranks == number])


def _warp(who: Array) -> Array:
    """The warp of a thread, or of a number for several threads of a warp; below zero for several warps."""
    return np.where(who >= 0, who >> 5, np.where(who <= -_SEVERAL, who, -2 - who))


class ClusterFrame(KernelFrame):
    """Threads of consecutive clusters.

    `rank`: the rank of each lane's block in its cluster. `heard[lane, rank]`: the time up to which the lane has heard
    of a block. `met`: when the lane's cluster last passed a barrier, relaxed ones included. For each cluster's barrier:
    its `phase`. For each lane: whether, when and for which phase it has arrived.
    """

    def __init__(self, grid: KernelGrid, first: int, blocks: int) -> None:
        super().__init__(grid, first, blocks)
        self.size = grid.cluster_size
        self.shared = ClusterShared(grid, blocks)
        self.rank = self.block % self.size
        self.member = (self.rank * grid.threads + self.thread).astype(np.int32)
        self.heard = np.full((self.lanes, self.size), NOTHING, np.int32)
        self.heard[self.every, self.rank] = 0
        self.met = np.full(self.lanes, NOTHING, np.int32)
        self.alive = np.ones(self.lanes, np.bool_)
        self.phase = np.zeros(blocks // self.size, np.int64)
        self.phase_heard = np.full((blocks // self.size, self.size), NOTHING, np.int32)
        self.phase_met = np.full(blocks // self.size, NOTHING, np.int32)
        self.arrived_for = np.full(self.lanes, -1, np.int64)
        self.arrived_at = np.zeros(self.lanes, np.int32)
        self.relaxed = np.zeros(self.lanes, np.bool_)
        self._reached: dict[tuple[int, int], tuple[int, Step, int]] = {}

    # registers and addresses -----------------------------------------------------------------------------

    def read(self, reader: ReadSlot) -> tuple[Array, Array | None]:
        """See `Frame`; an address in the block's own shared memory contains the block's rank."""
        if reader.shared:
            kind = UNSIGNED[reader.width]
            return (reader.pattern + (self.rank << RANK_BITS)).astype(kind), None
        return super().read(reader)

    def _in_shared(self, step: Step, access: Access, address: Array, lanes: Array) -> Place:
        rank = address >> RANK_BITS
        offset = (address & _BELOW) - SHARED_BASE
        own = self.rank[lanes]
        elsewhere = rank != own
        if elsewhere.any():
            named = step.bound.modifiers.get("space") or step.bound.modifiers.get("to")
            self._refuse_ranks(step, lanes, rank, access.space == "shared" and named != "shared::cluster")
            self.reach(step, lanes[elsewhere], rank[elsewhere], waits=not step.kind.startswith("bulk"))
        self._bounded(step, access, offset, self.shared.limit, "shared", lanes)
        return Place(self.shared, offset + (self.block[lanes] - own + rank) * self.shared.size)

    def _refuse_ranks(self, step: Step, lanes: Array, rank: Array, own_only: bool) -> None:
        wrong = (rank < 0) | (rank >= self.size)
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            text = f"{self.who(int(lanes[at]))} names shared memory of rank {int(rank[at])} in a cluster of {self.size}"
            raise self.fault(MemoryFault, step, f"{text} blocks")
        if own_only:
            at = int(np.flatnonzero(rank != self.rank[lanes])[0])
            text = f"{self.who(int(lanes[at]))} names the shared memory of the block of rank {int(rank[at])}, and "
            text += f"{step.bound.spelling} accesses only its own block's: use .shared::cluster for other blocks"
            raise self.fault(MemoryFault, step, text)

    def reach(self, step: Step, lanes: Array, rank: Array, *, waits: bool = True) -> None:
        """Record that lanes access memory of other blocks. Raises MemoryFault if those may not have begun, or may have
        ended.

        waits: whether the other block must wait for this access before it ends.
        """
        if not self.grid.races:
            return
        target = self.block[lanes] - self.rank[lanes] + rank
        alive = self.alive.reshape(-1, self.grid.threads)
        ended: Array = ~np.asarray(alive.any(axis=1))[target]
        unheard: Array = (self.heard[lanes, rank] < 0) & (self.met[lanes] < 0)
        before = "which may not have begun: no barrier of the cluster lies before this access"
        behind = "which has ended: a barrier of the cluster has to come first"
        for bad, words in ((ended, behind), (unheard, before)):
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                block = self.grid.coordinates(self.first + int(target[at]))
                text = f"{self.who(int(lanes[at]))} reaches the shared memory of block {block}, {words}"
                raise self.fault(MemoryFault, step, text)
        if waits:
            pairs, first = np.unique(target * self.size + self.rank[lanes], return_index=True)
            for pair, at in zip(pairs.tolist(), first.tolist(), strict=True):
                self._reached[divmod(pair, self.size)] = (self.clock, step, int(lanes[at]))

    # what is known ---------------------------------------------------------------------------------------

    def times(self, lanes: Array) -> Times:
        """See `ThreadFrame`; the third item is the time up to which lanes have heard of each block."""
        heard = self.heard[lanes]
        heard[np.arange(len(lanes)), self.rank[lanes]] = self.block_time[lanes]
        return self.block_time[lanes], self.warp_time[lanes], heard

    def has_heard(self, lanes: Array) -> Array:
        """See `KernelFrame`."""
        return np.asarray(self.times(lanes)[2].max(axis=0))

    def advance_heard(self, lanes: Array, heard: Array) -> None:
        """Advance the times up to which lanes have heard of each block."""
        self.heard[lanes] = np.maximum(self.heard[lanes], heard)
        own = heard[self.rank[lanes]] if heard.ndim == 1 else heard[np.arange(len(lanes)), self.rank[lanes]]
        self.block_time[lanes] = np.maximum(self.block_time[lanes], own)
        self.warp_time[lanes] = np.maximum(self.warp_time[lanes], own)

    def share(self, lanes: Array, group: int) -> None:
        """Merge the `heard` times of the lanes in each group of `group` consecutive lanes."""
        masked = np.where(lanes[:, None], self.heard, NOTHING).reshape(-1, group, self.size).max(axis=1)
        self.heard = np.where(lanes[:, None], np.repeat(masked, group, axis=0), self.heard)

    def note_arrival(self, barrier: Barrier, lane: int) -> None:
        """Record in an mbarrier what the arriving lane has heard."""
        self.clock += 1
        heard = self.heard[lane].copy()
        heard[self.rank[lane]] = self.clock
        barrier.heard = heard if barrier.heard is None else np.maximum(barrier.heard, heard)

    def landed(self, barrier: Barrier, block: int) -> None:
        """Record in an mbarrier that a copy to a block has landed."""
        self.clock += 1
        heard = np.full(self.size, NOTHING, np.int32)
        heard[block % self.size] = self.clock
        barrier.heard = heard if barrier.heard is None else np.maximum(barrier.heard, heard)

    def order_after(self, lanes: Array, offsets: Sequence[int]) -> None:
        """See `KernelFrame`; the lanes also hear of other blocks what the arriving threads had heard."""
        wanted = np.array(offsets)
        for offset in np.unique(wanted).tolist():
            heard = self.barriers[offset].previous_heard
            if heard is not None:
                self.advance_heard(lanes[wanted == offset], heard)

    def destination(self, step: Step, lane: int, address: int) -> tuple[int, int]:
        """See `KernelFrame`."""
        rank, own = address >> RANK_BITS, int(self.rank[lane])
        if rank != own:
            space = step.bound.modifiers.get("to")
            self._refuse_ranks(step, np.array([lane]), np.array([rank]), space == "shared::cta")
            self.reach(step, np.array([lane]), np.array([rank]), waits=False)
        return int(self.block[lane]) - own + rank, (address & _BELOW) - SHARED_BASE

    def receivers(self, step: Step, lane: int, ranks: int) -> list[int]:
        """See `KernelFrame`."""
        found = super().receivers(step, lane, ranks)
        others = np.array([block for block in found if block != self.block[lane]], np.int64)
        self.reach(step, np.full(len(others), lane), others % self.size, waits=False)
        return found

    def receiver(self, lane: int, offsets: Array) -> Array:
        """See `KernelFrame`: a thread of the block whose mbarriers, at these offsets, get the arrivals."""
        return np.asarray(offsets // self.shared.size % self.size * self.grid.threads).astype(np.int32)

    def refuse_unmade(self, step: Step, offset: int, lane: int) -> None:
        """Raise ExecutionError if a lane uses another block's mbarrier whose initialisation is not ordered before
        it."""
        barrier, block = self.barriers.get(offset), offset // self.shared.size
        if barrier is None or block == self.block[lane] or not self.grid.races:
            return
        fenced = barrier.fenced and self.met[lane] > barrier.made
        if self.heard[lane, block % self.size] <= barrier.made and not fenced:
            place = self.grid.coordinates(self.first + block)
            text = f"{self.who(lane)} uses an mbarrier of block {place} at offset {offset % self.shared.size}, and no "
            text += "barrier of the cluster lies between its mbarrier.init and this; one that is .relaxed needs "
            raise self.fault(ExecutionError, step, text + "fence.mbarrier_init before it")

    # the barrier of a cluster ----------------------------------------------------------------------------

    def arrive(self, step: Step, lanes: Array) -> None:
        """barrier.cluster.arrive. Raises ExecutionError for a thread that has arrived and not waited."""
        again = self.arrived_for[lanes] >= 0
        if again.any():
            who = self.who(int(lanes[np.flatnonzero(again)[0]]))
            text = f"{who} arrives at the cluster's barrier twice, and no barrier.cluster.wait lies between"
            raise self.fault(ExecutionError, step, text)
        self.clock += 1
        self.arrived_for[lanes] = self.phase[self.block[lanes] // self.size]
        self.arrived_at[lanes] = self.clock
        self.relaxed[lanes] = "relaxed" in step.node.modifiers
        self._complete(np.unique(self.block[lanes] // self.size))

    def _complete(self, clusters: Array) -> None:
        """Begin the next phase of barriers at which all threads of the cluster that have not ended have arrived."""
        threads = self.size * self.grid.threads
        for number in clusters.tolist():
            mine = slice(number * threads, (number + 1) * threads)
            alive = self.alive[mine]
            here = self.arrived_for[mine] == self.phase[number]
            if not here[alive].all() or not here.any():
                continue
            self.phase[number] += 1
            # Only what a block did before its first thread arrived is ordered; of an ended block, everything.
            when = np.where(here & alive, self.arrived_at[mine], self.clock)
            self.phase_met[number] = when.min()
            heard = np.where(here & alive & self.relaxed[mine], 0, when).reshape(self.size, -1).min(axis=1)
            releasing = here & ~self.relaxed[mine]
            if releasing.any():
                heard = np.maximum(heard, self.heard[mine][releasing].max(axis=0))
            self.phase_heard[number] = heard

    def ready(self, step: Step, lanes: Array) -> Array:
        """For each lane at barrier.cluster.wait, whether all others have arrived."""
        if (self.arrived_for[lanes] < 0).any():
            who = self.who(int(lanes[np.flatnonzero(self.arrived_for[lanes] < 0)[0]]))
            text = (
                f"{who} waits at the cluster's barrier, at which it has not arrived: barrier.cluster.arrive comes first"
            )
            raise self.fault(ExecutionError, step, text)
        return np.asarray(self.arrived_for[lanes] < self.phase[self.block[lanes] // self.size])

    def passed(self, lanes: Array) -> None:
        """Let lanes go on after barrier.cluster.wait, ordered after everything before the barrier."""
        self.arrived_for[lanes] = -1
        clusters = self.block[lanes] // self.size
        self.met[lanes] = self.phase_met[clusters]
        self.advance_heard(lanes, self.phase_heard[clusters])

    def missing(self, lane: int) -> str:
        """A description of a thread for which a lane waits at the cluster's barrier."""
        number = int(self.block[lane]) // self.size
        threads = self.size * self.grid.threads
        mine = slice(number * threads, (number + 1) * threads)
        lacks = np.flatnonzero(self.alive[mine] & (self.arrived_for[mine] != self.phase[number]))
        return f"{self.who(number * threads + int(lacks[0]))} never arrives" if len(lacks) else "others never arrive"

    # the end of blocks -----------------------------------------------------------------------------------

    def ended(self, lanes: Array) -> None:
        """End threads. Raises MemoryFault if their block's memory may be accessed after that."""
        self.alive = self.alive & ~lanes
        threads = self.grid.threads
        gone = ~self.alive.reshape(-1, threads).any(axis=1) & lanes.reshape(-1, threads).any(axis=1)
        for block in np.flatnonzero(gone).tolist():
            known = self.heard[block * threads : (block + 1) * threads].max(axis=0)
            where = self.grid.coordinates(self.first + block)
            for (target, rank), (when, step, lane) in self._reached.items():
                if target == block and when >= known[rank] and self.grid.races:
                    text = f"{self.who(lane)} reaches the shared memory of block {where}, which may have ended: no "
                    raise self.fault(
                        MemoryFault, step, text + "barrier of the cluster lies between this access and its end"
                    )
            self.bulk.refuse_ended(block, where)
        self._complete(np.unique(np.flatnonzero(lanes) // threads // self.size))


def frame_of(grid: KernelGrid, first: int, blocks: int) -> KernelFrame:
    """The frame for some blocks: a ClusterFrame if they form clusters or the program names clusters, else a
    KernelFrame."""
    return (ClusterFrame if in_clusters(grid) else KernelFrame)(grid, first, blocks)


def in_clusters(grid: KernelGrid) -> bool:
    """Whether the blocks form clusters, or the program names clusters."""
    return grid.in_clusters or any(s.kind.startswith("cluster") for s in grid.program.steps)
