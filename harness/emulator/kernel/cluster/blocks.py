"""Blocks of a cluster: they run together, access each other's shared memory, and synchronise at cluster barriers.

They are one team of `happens_before`: a thread's vector clock has a time for each thread of its cluster. Threads
synchronise at barriers of the cluster, at mbarriers, and at barriers of their own block. An access is a race if
it conflicts with one that nothing orders before it. It is also a race if the accessed block may not have begun, or may
have ended.
"""

from __future__ import annotations

import numpy as np

from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.memory.space import RANK_BITS, SHARED_BASE, Access, Place
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

_BELOW = (1 << RANK_BITS) - 1


class ClusterFrame(KernelFrame):
    """Threads of consecutive clusters.

    `rank`: the rank of each lane's block in its cluster. `cluster_time`: when the lane's cluster last passed a barrier,
    relaxed ones included; 0: not yet. For each cluster's barrier: its `phase`, and the vector clocks that the arrivals
    of this phase and of the last one released. For each lane: when and for which phase it has arrived.
    """

    def __init__(self, grid: KernelGrid, first: int, blocks: int) -> None:
        super().__init__(grid, first, blocks)
        self.size = grid.cluster_size
        self.rank = self.block % self.size
        self.cluster_time = np.zeros(self.lanes, np.int64)
        self.alive = np.ones(self.lanes, np.bool_)
        self.phase = np.zeros(blocks // self.size, np.int64)
        self.phase_time = np.zeros(blocks // self.size, np.int64)
        self.phase_released: list[Array | None] = [None] * (blocks // self.size)
        self.arriving: list[Array | None] = [None] * (blocks // self.size)
        self.arrived_for = np.full(self.lanes, -1, np.int64)
        self.arrived_at = np.zeros(self.lanes, np.int64)
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
            self.reach(step, lanes[elsewhere], rank[elsewhere], waits=not step.facts.asynchronous)
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
        unordered: Array = self.cluster_time[lanes] == 0
        if unordered.any():
            everyone = rank[:, None] * self.grid.threads + np.arange(self.grid.threads)
            unordered &= ~(self.order.components(lanes, everyone) > 0).any(axis=1)
        before = "which may not have begun: no barrier of the cluster lies before this access"
        behind = "which has ended: a barrier of the cluster has to come first"
        for bad, problem in ((ended, behind), (unordered, before)):
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                block = self.grid.coordinates(self.first + int(target[at]))
                text = f"{self.who(int(lanes[at]))} reaches the shared memory of block {block}, {problem}"
                raise self.fault(MemoryFault, step, text)
        if waits:
            pairs, first = np.unique(target * self.size + self.rank[lanes], return_index=True)
            for pair, at in zip(pairs.tolist(), first.tolist(), strict=True):
                self._reached[divmod(pair, self.size)] = (self.order.clock, step, int(lanes[at]))

    # what is ordered -------------------------------------------------------------------------------------

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
        blocks = super().receivers(step, lane, ranks)
        others = np.array([block for block in blocks if block != self.block[lane]], np.int64)
        self.reach(step, np.full(len(others), lane), others % self.size, waits=False)
        return blocks

    def refuse_unordered_init(self, step: Step, offset: int, lane: int) -> None:
        """See `KernelFrame`. A relaxed barrier of the cluster after fence.mbarrier_init is enough."""
        barrier, block = self.barriers[offset], offset // self.shared.size
        if barrier.fenced and self.cluster_time[lane] > barrier.init_time:
            return
        if block == self.block[lane]:
            super().refuse_unordered_init(step, offset, lane)
        coordinates = self.grid.coordinates(self.first + block)
        text = (
            f"{self.who(lane)} uses an mbarrier of block {coordinates} at offset {offset % self.shared.size}, and no "
        )
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
        order = self.order
        clusters = self.block[lanes] // self.size
        self.arrived_for[lanes] = self.phase[clusters]
        self.arrived_at[lanes] = order.tick()
        for number in np.unique(clusters).tolist():
            some = lanes[clusters == number]
            if "relaxed" not in step.node.modifiers:
                self.arriving[number] = order.join(self.arriving[number], order.release(some))
                continue
            for lane in some.tolist():
                for one in order.released_by(lane, "relaxed", "cluster"):
                    self.arriving[number] = order.join(self.arriving[number], one.vector)
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
            # Nobody waits for threads that have ended, and nothing orders what they did after they last arrived.
            self.phase_time[number] = np.where(here, self.arrived_at[mine], self.order.clock).min()
            self.phase_released[number], self.arriving[number] = self.arriving[number], None

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
        self.cluster_time[lanes] = self.phase_time[clusters]
        for number in np.unique(clusters).tolist():
            released = self.phase_released[number]
            if released is not None:
                self.order.acquire(lanes[clusters == number], released)

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
            vector = self.order.join_of(np.arange(block * threads, (block + 1) * threads))
            where = self.grid.coordinates(self.first + block)
            for (target, _), (time, step, lane) in self._reached.items():
                if target == block and time >= vector[self.member[lane]] and self.grid.races:
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
    return grid.in_clusters or any(s.facts.reaches == "cluster" for s in grid.program.steps)
