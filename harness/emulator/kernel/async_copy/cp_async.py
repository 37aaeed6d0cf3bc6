"""Asynchronous copies of threads to shared memory (cp.async): copies under way, and the waits that complete them.

Every thread has its own groups. A copy completes ("lands") when its thread waits for its group, and no earlier. Until
then any access to its destination is an error, also by the issuing thread. Its source is read when it is issued, and
a write to its source before it lands is an error, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.in_flight import Groups, MemoryFrame, barrier_of, count_arrival, line_of
from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.kernel.memory.global_races import note_finished_read
from ptxdiff.emulator.kernel.memory.space import Access, Buffer, Place
from ptxdiff.emulator.machine.large_arrays import zeros
from ptxdiff.emulator.numeric.vectorise import Array


@dataclass
class CopySource:
    """Bytes of one buffer that some lanes' copies read."""

    access: Access
    lanes: Array
    place: Place

    def part(self, lanes: Array) -> CopySource:
        """The bytes that some of the lanes read."""
        some = np.isin(self.lanes, lanes)
        return CopySource(self.access, self.lanes[some], Place(self.place.region, self.place.offsets[some]))


def _sources(access: Access, lanes: Array, places: list[Place]) -> list[CopySource]:
    return [
        CopySource(access, lanes if one.part is None else lanes[one.part], Place(one.region, one.offsets))
        for one in places
        if isinstance(one.region, Buffer)
    ]


@dataclass
class Flying:
    """Copies of one step that have not landed: lanes, places, data, each lane's group, and what they read. number: in
    the order of issue."""

    step: Step
    access: Access
    lanes: Array
    place: Place
    values: list[Array]
    masks: list[Array | None]
    group: Array
    sources: list[CopySource] = field(default_factory=list)
    number: int = 0

    def part(self, chosen: Array) -> Flying:
        """The copies of some of the lanes."""
        return replace(
            self,
            lanes=self.lanes[chosen],
            place=Place(self.place.region, self.place.offsets[chosen]),
            values=[v[chosen] for v in self.values],
            masks=[None if m is None else m[chosen] for m in self.masks],
            group=self.group[chosen],
            sources=[source.part(self.lanes[chosen]) for source in self.sources],
        )


@dataclass
class Arrival:
    """Arrivals at mbarriers, one of each lane, as soon as the lane's copies before number `before` are complete."""

    step: Step
    lanes: Array
    offsets: Array
    before: int


def _note_coming(counts: Array, offsets: Array, unit: Any, values: Array, coming: Array, found: Array) -> None:
    """Record the words of copies in `coming`, and set found[0] to the first that meets others (see `_refuse_meeting`).

    counts: how many copies are under way to each unit. offsets: bytes. values: a row of words for each. coming: the
    words of the copies that were issued last.
    """
    for i in range(len(offsets)):
        at, first = offsets[i] // 4, offsets[i] // unit
        taken = False
        for number in range(first, first + max(4 * values.shape[1] // unit, 1)):
            taken |= counts[number] > 0
        for k in range(values.shape[1]):
            if taken and coming[at + k] != values[i, k] and (found[0] < 0 or i < found[0]):
                found[0] = i
    for i in range(len(offsets)):
        for k in range(values.shape[1]):
            coming[offsets[i] // 4 + k] = values[i, k]
    for i in range(len(offsets)):  # lanes of one instruction that write to the same bytes
        for k in range(values.shape[1]):
            if coming[offsets[i] // 4 + k] != values[i, k] and (found[0] < 0 or i < found[0]):
                found[0] = i


def _kinds_of_meet(t: Any) -> tuple[Any, ...]:
    words, rows = t.Array(t.uint32, 1, "C"), t.Array(t.uint32, 2, "C", readonly=True)
    counts, wide = (t.Array(kind, 1, "C", readonly=True) for kind in (t.int32, t.int64))
    return counts, wide, t.int64, rows, words, t.Array(t.int64, 1, "C")


_meet = ArrayCode(_note_coming, _kinds_of_meet)


class Copies:
    """The copies of a frame's threads, with groups of each lane."""

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        self.flying: list[Flying] = []
        self.arrivals: list[Arrival] = []
        self._issued = 0
        self.groups = Groups(frame.lanes)
        self._read: list[CopySource] = []
        self._coming = zeros(len(frame.shared.bytes), np.uint8)

    def issue(self, step: Step, active: Array | None) -> None:
        """Read the source, and mark the destination as under way. Raises MemoryFault or a subclass."""
        frame = self.frame
        to, what = step.detail
        lanes = frame.every if active is None else np.flatnonzero(active)
        if len(lanes) == 0:
            return
        if len(step.sources) == 2:
            _, source = frame.locate_lanes(step, step.sources[1], what, lanes)
            values, masks = frame.load(step, what, lanes, source)
            self._read = _sources(what, lanes, source)
        else:
            self._read = []
            values, masks = self._read_partial(step, lanes)
        _, places = frame.locate_lanes(step, step.sources[0], to, lanes)
        frame.owned.refuse_write(step, lanes, places[0].offsets, to.size)
        frame.owned.refuse_access(step, lanes, places[0].offsets, to.size, "copies to", beside=self)
        self._refuse_meeting(step, to, lanes, places[0], values)
        if frame.grid.races:
            # The data may arrive from now on, so it must not conflict with accesses of other threads since the last
            # barrier.
            frame.check_write(step, to, lanes, places[0], values)
        frame.owned.destinations.add(places[0].offsets, to.size, 1)
        group, self._issued = self.groups.open(lanes), self._issued + 1
        self.flying.append(Flying(step, to, lanes, places[0], values, masks, group, self._read, self._issued))
        if frame.observer is not None:
            frame.observer.copies_issued(self.flying[-1])

    def _refuse_meeting(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        """Raise MemoryFault if another copy writes different data to the same bytes, and nothing orders the two."""
        shared, meeting, under_way = self.frame.shared, np.full(1, -1), self.frame.owned.destinations
        words = np.empty((len(lanes), len(values)), np.uint32)
        for number, value in enumerate(values):
            words[:, number] = value
        _meet(
            under_way.marks, np.ascontiguousarray(place.offsets), under_way.unit, words, self._coming.view(np.uint32),
            meeting,
        )  # fmt: skip
        at = int(meeting[0])
        if at >= 0:
            offset = int(place.offsets[at]) % shared.size
            text = (
                f"race: {self.frame.who(int(lanes[at]))} copies to shared memory at offset {offset}, to which another "
            )
            text += "asynchronous copy is under way"
            origin = self._origin(shared.units(place.offsets[at : at + 1], access.size))
            raise self.frame.fault(MemoryFault, step, text + (origin or " by the same instruction"))

    def refuse_source(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """Raise MemoryFault if lanes write to bytes of global memory that a copy under way may still read."""
        first, last = place.offsets.min(), place.offsets.max() + access.size
        for flying in self.flying:
            for source in flying.sources:
                offsets, size = source.place.offsets, source.access.size
                if source.place.region is not place.region or not len(offsets):
                    continue
                if offsets.min() >= last or offsets.max() + size <= first:
                    continue
                taken = np.isin(place.offsets[:, None] + np.arange(access.size), offsets[:, None] + np.arange(size))
                if taken.any():
                    at = int(np.flatnonzero(taken.any(axis=1))[0])
                    line = line_of(self.frame, flying.step)
                    assert isinstance(place.region, Buffer)
                    where = f"{place.region.name or 'global memory'} at offset "
                    where += f"{int(place.offsets[at]) - place.region.residue}"
                    text = f"race: {self.frame.who(int(lanes[at]))} writes to {where}, which the cp.async in line "
                    text += f"{line} may still read: its thread must wait (cp.async.wait_group or wait_all) before"
                    raise self.frame.fault(MemoryFault, step, text)

    def writer(self, units: Array) -> str:
        """See `Owner`."""
        origin, wait = self._origin(units), "cp.async.wait_group or wait_all must come first"
        return f"an asynchronous copy is under way{origin}: {wait}" if origin else ""

    def reader(self, units: Array) -> str:
        """See `Owner`: copies read global memory (`refuse_source`)."""
        return ""

    def _origin(self, units: Array) -> str:
        """A description of where a copy under way to some units was issued."""
        for flying in self.flying:
            mine = self.frame.shared.units(flying.place.offsets, flying.access.size)
            hit = np.isin(mine, units).any(axis=1)
            if hit.any():
                lane = int(flying.lanes[np.flatnonzero(hit)[0]])
                line = line_of(self.frame, flying.step)
                return f" (issued by {self.frame.who(lane)} in line {line})"
        return ""

    def _read_partial(self, step: Step, lanes: Array) -> tuple[list[Array], list[Array | None]]:
        """Copies of fewer bytes than the destination has; the rest is zero. A predicate may make it zero bytes."""
        frame = self.frame
        _, what = step.detail
        given, mask = frame.read(step.sources[2])
        if mask is not None:
            frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "the size of a copy")
        size = np.broadcast_to(given, (frame.lanes,))[lanes].astype(np.int64)
        if step.sources[2].width == 1:
            size = np.where(size, 0, what.size)  # ignore-src
        if (size > what.size).any():
            lane = int(lanes[np.flatnonzero(size > what.size)[0]])
            text = f"{frame.who(lane)} copies {int(size.max())} bytes to {what.size}: the source has no more than those"
            raise frame.fault(ExecutionError, step, text)
        takes_all = size == what.size
        if takes_all.all():
            return self._read_whole(step, lanes, None)
        if (takes_all | (size == 0)).all():
            return self._read_whole(step, lanes, np.flatnonzero(takes_all))
        values = np.zeros((len(lanes), what.size), np.uint8)
        masks = np.zeros((len(lanes), what.size), np.uint8)
        for number in range(int(size.max(initial=0))):
            some = np.flatnonzero(size > number)
            one = Access("global", what.displacement + number, 8, 1)
            _, place = frame.locate_lanes(step, step.sources[1], one, lanes[some])
            elements, doubt = frame.load(step, one, lanes[some], place)
            self._read += _sources(one, lanes[some], place)
            values[some, number] = elements[0]
            if doubt[0] is not None:
                masks[some, number] = doubt[0]
        words = values.view(np.uint32)
        doubts = masks.view(np.uint32)
        columns = range(what.count)
        return [np.ascontiguousarray(words[:, i]) for i in columns], [
            np.ascontiguousarray(doubts[:, i]) if doubts[:, i].any() else None for i in columns
        ]

    def _read_whole(self, step: Step, lanes: Array, whole: Array | None) -> tuple[list[Array], list[Array | None]]:
        """Copies of all bytes for some lanes, by index, and of no bytes for the others; None: of all bytes for all."""
        frame = self.frame
        _, what = step.detail
        some = lanes if whole is None else lanes[whole]
        _, places = frame.locate_lanes(step, step.sources[1], what, some)
        if not places:
            return [np.zeros(len(lanes), np.uint32) for _ in range(what.count)], [None] * what.count
        elements, doubts = frame.load(step, what, some, places)
        self._read += _sources(what, some, places)
        if whole is None:
            return elements, doubts
        values = [np.zeros(len(lanes), np.uint32) for _ in range(what.count)]
        masks: list[Array | None] = [None if d is None else np.zeros(len(lanes), np.uint32) for d in doubts]
        for number, (value, doubt) in enumerate(zip(elements, doubts, strict=True)):
            values[number][whole] = value
            mask = masks[number]
            if mask is not None and doubt is not None:
                mask[whole] = doubt
        return values, masks

    def commit(self, active: Array | None) -> None:
        """Close the group of each thread's copies since its last one."""
        self.groups.commit(slice(None) if active is None else active)

    def arrive_later(self, step: Step, lanes: Array, offsets: Array) -> None:
        """Let each lane arrive at the mbarrier at its offset when the copies that it has issued are complete."""
        self.arrivals.append(Arrival(step, lanes, offsets, self._issued + 1))

    def arrive(self) -> bool:
        """Complete the copies for which mbarriers wait, and arrive there; returns whether there were any."""
        arrivals, self.arrivals = self.arrivals, []
        for one in arrivals:
            for offset in np.unique(one.offsets).tolist():
                self._arrive(one, offset, one.lanes[one.offsets == offset])
        return bool(arrivals)

    def _arrive(self, one: Arrival, offset: int, lanes: Array) -> None:
        """Only threads that see the phase complete are ordered after the bytes, not those that issued the copies."""
        frame = self.frame
        barrier = barrier_of(frame, one.step, offset, f"the copies of {frame.who(int(lanes[0]))} arrive")
        self._complete(lambda flying: np.isin(flying.lanes, lanes) & (flying.number < one.before), barrier.agent)
        for lane in lanes.tolist():
            count_arrival(frame, one.step, barrier, offset, f"the copies of {frame.who(lane)} arrive")
            barrier.owed, barrier.copies = barrier.owed - 1, True
            barrier.settle(frame.order)

    def wait(self, left: int, active: Array | None) -> None:
        """Complete all groups of each active thread except its last `left`; -1: all copies, in groups or not."""

        def ready(flying: Flying) -> Array:
            waiting = np.ones(len(flying.lanes), np.bool_) if active is None else active[flying.lanes]
            return waiting & self.groups.over(flying.lanes, flying.group, left) if left >= 0 else waiting

        self._complete(ready)

    def _complete(self, ready_of: Callable[[Flying], Array], agent: int = -1) -> None:
        """Complete the copies of some lanes. ready_of: which of a step's copies."""
        staying = []
        for flying in self.flying:
            ready = ready_of(flying)
            if ready.any():
                self._land(flying if ready.all() else flying.part(ready), agent)
            if not ready.all():
                staying.append(flying.part(~ready) if ready.any() else flying)
        self.flying = staying

    def _land(self, flying: Flying, agent: int = -1) -> None:
        self.frame.owned.destinations.add(flying.place.offsets, flying.access.size, -1)
        if self.frame.grid.races:
            for source in flying.sources:
                assert isinstance(source.place.region, Buffer)
                note_finished_read(self.frame, source.access, source.lanes, source.place.offsets, source.place.region)
        self.frame.land(flying.access, flying.lanes, flying.place, flying.values, flying.masks, agent)
