"""Work that threads begin and that is done later: what cp.async, bulk copies, wgmma and tcgen05 have in common.

Such work is in flight from its issue until it is waited for. It owns what it reads and writes meanwhile, and an access
to these is an error (`Owned`, of the bytes of shared memory). A wait is for groups of work that `commit_group` has
closed, or for the phase of an mbarrier at which the work arrives.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np

from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier
from ptxdiff.emulator.kernel.memory.consistency import Between
from ptxdiff.emulator.kernel.memory.races import UnitCounts
from ptxdiff.emulator.kernel.memory.space import Access, Buffer, Place, Shared
from ptxdiff.emulator.kernel.observer import KernelObserver
from ptxdiff.emulator.kernel.threads import ThreadFrame
from ptxdiff.emulator.numeric.vectorise import Array


class MemoryFrame(ThreadFrame, ABC):
    """A frame as asynchronous work sees it: how it reaches memory and mbarriers, and who observes it."""

    observer: KernelObserver | None = None
    between: Between | None
    shared: Shared
    owned: Owned
    barriers: dict[int, Barrier]

    @abstractmethod
    def locate_lanes(self, step: Step, base: ReadSlot, access: Access, lanes: Array) -> tuple[Array, list[Place]]:
        """The places that lanes access. Raises MemoryFault and UndefinedBits."""

    @abstractmethod
    def load(
        self, step: Step, access: Access, lanes: Array, places: list[Place]
    ) -> tuple[list[Array], list[Array | None]]:
        """The values and masks of undefined bits of each element of the access."""

    @abstractmethod
    def check_write(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        """Record a write. Raises MemoryFault if it races with another thread's access."""

    @abstractmethod
    def refuse_read_only(self, step: Step, region: Buffer, lanes: Array) -> None:
        """Raise MemoryFault for a store to an array that cannot be written."""

    @abstractmethod
    def refuse_unmade(self, step: Step, offsets: Sequence[int] | Array, lanes: Array) -> None:
        """Raise ExecutionError if a lane uses an mbarrier at its offset whose mbarrier.init is not ordered before
        it."""

    @abstractmethod
    def destination(self, step: Step, lane: int, address: int) -> tuple[int, int]:
        """The destination of a lane's bulk copy: the block of this frame, and the offset in its shared memory."""

    @abstractmethod
    def receivers(self, step: Step, lane: int, ranks: int) -> list[int]:
        """The blocks of this frame in a mask of ranks."""

    @abstractmethod
    def arrived(self, step: Step, barrier: int, lane: int, size: int) -> None:
        """Report to an mbarrier that the bytes of a bulk copy have arrived."""

    @abstractmethod
    def land(
        self, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None],
        agent: int = -1,
    ) -> None:  # fmt: skip
        """Write the data of an asynchronous copy to shared memory; other threads see it after the next barrier, or
        after the phase of an mbarrier for which `agent` stands."""


class Owner(Protocol):
    """A kind of work in flight: cp.async, bulk copies, wgmma or tcgen05."""

    def writer(self, units: Array) -> str:
        """A description of the work that is under way to some units of shared memory, and of the wait that must come
        before an access to them; "" if there is none."""

    def reader(self, units: Array) -> str:
        """A description of the work that still reads some units of shared memory, and of the wait that must come before
        a write to them; "" if there is none."""


class Owned:
    """The bytes of shared memory that work in flight owns, of every kind, from its issue until it is waited for.

    `destinations`: those to which copies are under way; nobody accesses them. `sources`: those that copies or products
    still read; nobody writes to them. `owners`: asked by name in messages, in this order.
    """

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        # Work owns 4 bytes or a multiple, so smaller accesses of threads need no smaller units.
        self.destinations, self.sources = (
            UnitCounts(len(frame.shared.bytes), max(frame.shared.unit, 4)) for _ in range(2)
        )
        self.owners: tuple[Owner, ...] = ()

    def refuse_access(
        self, step: Step, lanes: Array, offsets: Array, size: int, verb: str, beside: Owner | None = None
    ) -> None:  # fmt: skip
        """Raise MemoryFault if lanes access bytes of shared memory to which a copy is under way.

        offsets: over all blocks, one for each lane. size: bytes of each access. beside: an owner whose copies do not
        count.
        """
        at = self.destinations.first(offsets, size)
        if at >= 0 and beside is not None:
            others = [one for one in self.owners if one is not beside]
            some = (number for number in range(at, len(offsets)) if self._written(offsets, size, number, others))
            at = next(some, -1) if self._written(offsets, size, slice(None), others) else -1
        if at >= 0:
            unit, who = self._named(offsets, size, at), self.frame.who(int(lanes[at]))
            writer = next(filter(None, (one.writer(unit) for one in self.owners)), "work in flight writes")
            text = (
                f"{who} {verb} shared memory at offset {int(offsets[at]) % self.frame.shared.size}, to which {writer}"
            )
            raise self.frame.fault(MemoryFault, step, text)

    def refuse_write(self, step: Step, lanes: Array, offsets: Array, size: int) -> None:
        """Raise MemoryFault if lanes write to bytes of shared memory that a product or a copy may still read.

        offsets, size: as in `refuse_access`.
        """
        at = self.sources.first(offsets, size)
        if at >= 0:
            unit, who = self._named(offsets, size, at), self.frame.who(int(lanes[at]))
            reader = next(filter(None, (one.reader(unit) for one in self.owners)), "work in flight still reads")
            text = f"race: {who} writes to shared memory at offset {int(offsets[at]) % self.frame.shared.size}, which "
            raise self.frame.fault(MemoryFault, step, text + reader)

    def _named(self, offsets: Array, size: int, at: int | slice) -> Array:
        """The units of one access, or of several."""
        some = offsets[at] if isinstance(at, slice) else offsets[at : at + 1]
        return self.frame.shared.units(some, size).reshape(-1)

    def _written(self, offsets: Array, size: int, at: int | slice, owners: Iterable[Owner]) -> bool:
        """Whether copies of some owners are under way to an access, or to one of several."""
        units = self._named(offsets, size, at)
        return any(one.writer(units) for one in owners)


class Groups:
    """Groups of work of each thread, or of each warpgroup: `commit_group` closes one, `wait_group` waits for them.

    closed: how many each member has closed. The work that a member issues belongs to its open group, of that number.
    """

    def __init__(self, members: int) -> None:
        self.closed = np.zeros(members, np.int64)

    def open(self, members: Array) -> Array:
        """The numbers of the open groups."""
        return np.asarray(self.closed[members])

    def commit(self, members: Array | slice) -> None:
        """Close the open groups of some members."""
        self.closed[members] += 1

    def over(self, members: Array, groups: Array, left: int) -> Array:
        """Which groups are over when each member waits until at most its last `left` closed ones are in flight."""
        return np.asarray(groups < self.closed[members] - left)

    def missing(self, member: int, group: int, name: str) -> str:
        """The instructions that have to come before work of a group is over. name: `cp.async.bulk`, `wgmma`."""
        behind = int(self.closed[member]) - int(group) - 1
        if behind < 0:
            return f": {name}.commit_group and {name}.wait_group must come first"
        return f": {name}.wait_group {behind} (or less) must come first"


def line_of(frame: MemoryFrame, step: Step) -> int:
    """The line of a step in the user's program."""
    return int(frame.program.source.position(step.node.offset)[0])


def barrier_of(frame: MemoryFrame, step: Step, offset: int, who: str) -> Barrier:
    """The mbarrier at which work arrives. who: subject and verb. Raises ExecutionError if there is none."""
    barrier = frame.barriers.get(offset)
    if barrier is None:
        text = f"{who} at an mbarrier at offset {offset % frame.shared.size}, where none is"
        raise frame.fault(ExecutionError, step, text)
    return barrier


def count_arrival(frame: MemoryFrame, step: Step, barrier: Barrier, offset: int, who: str) -> None:
    """Count an arrival of work. Raises ExecutionError if the phase takes no more."""
    if barrier.pending <= 0:
        text = f"{who} at the mbarrier at offset {offset % frame.shared.size}, whose phase takes no more arrivals"
        raise frame.fault(ExecutionError, step, text)
    barrier.pending -= 1


def refuse_bound_for(
    frame: MemoryFrame, step: Step, barrier: int, lane: int, work: Iterable[tuple[int, Step]], name: str
) -> None:
    """Raise ExecutionError if a thread invalidates an mbarrier to which work in flight will report.

    work: the mbarrier of each, and the step that issued it. name: of the work, for the message.
    """
    for reports_to, issued in work:
        if reports_to == barrier:
            text = f"{frame.who(lane)} invalidates the mbarrier to which the {name} in line {line_of(frame, issued)} "
            raise frame.fault(ExecutionError, step, f"{text}has yet to report")
