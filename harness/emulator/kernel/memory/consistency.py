"""Blocks that communicate through global memory: what orders their accesses, and which old values they may see.

PTX ISA 8, the memory consistency model. An access is strong if it is an atomic operation, or relaxed, acquiring,
releasing or volatile. Two accesses of the same bytes conflict if one of them writes. A weak one races with one of
another block that conflicts with it, if neither happens before the other. A release (a `.release` or `.acq_rel` access,
or a fence and then a strong write) synchronises with an acquire that sees its value (an `.acquire` or `.acq_rel`
access, or a strong read and then a fence), if the scope of each contains the thread of the other. `happens_before`
keeps that order.

It costs a vector clock for each thread, so a launch first runs with `Conflicts`, which only finds out whether accesses
of blocks conflict at all in such a way that their order matters. Those of a histogram in atomic operations do not. If
they do, the launch runs again with a `GridMemory`.

A strong load need not see the newest value at once. The first one of a block after another block's write, if nothing
orders the two, gives the value before. A loop that waits only takes one more turn; whoever trusts that a relaxed flag
also publishes data computes with old data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import MemoryFault, PtxError
from ptxdiff.emulator.kernel.memory import races
from ptxdiff.emulator.kernel.memory.grid_order import GridOrder
from ptxdiff.emulator.kernel.memory.space import Access, AccessTable, Buffer, Place
from ptxdiff.emulator.numeric.vectorise import Array

if TYPE_CHECKING:
    from ptxdiff.emulator.kernel.threads import ThreadFrame


class BlocksConflict(PtxError):
    """Accesses of blocks conflict so that their order matters: the launch has to run again with that order."""

    def __init__(self) -> None:
        super().__init__("accesses of blocks conflict")


@dataclass(frozen=True, slots=True)
class Strength:
    """An access in the memory model. sem: weak, relaxed, acquire, release or acq_rel. scope: one of `SCOPES`."""

    sem: str
    scope: str

    @property
    def strong(self) -> bool:
        """Whether it may synchronise with accesses of threads within its scope."""
        return self.sem != "weak"

    @property
    def reaches(self) -> bool:
        """Whether it may synchronise with accesses of other blocks."""
        return self.strong and self.scope in ("gpu", "sys")


_WEAK = Strength("weak", "sys")


def strength(step: Step) -> Strength:
    """The strength of a load, store or atomic operation (ISA 8.4, 8.5): atomics are .relaxed.gpu unless they say
    otherwise, and volatile accesses are as .relaxed.sys."""
    modifiers = step.bound.modifiers
    sem, scope = modifiers.get("sem"), modifiers.get("scope") or "gpu"
    if step.kind == "atom":
        return Strength(sem or "relaxed", scope)
    if step.kind not in ("ld", "st") or sem is None or sem == "weak":
        return _WEAK
    return Strength("relaxed", "sys") if sem == "volatile" else Strength(sem, scope)


class Between:
    """What a frame asks about accesses that blocks may share. orders: whether it keeps the order of accesses to global
    memory itself."""

    orders = False

    def read(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> list[Array]:
        """Record a load of `values`; returns what it gives. Raises MemoryFault for a race."""
        return values

    def write(self, step: Step, access: Access, lanes: Array, place: Place, changes: Array) -> None:
        """Record a store, before it changes memory. changes: the lanes that change bytes. Raises MemoryFault."""

    def check_update(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """Record an atomic operation. Raises MemoryFault."""

    def update(self, step: Step, lane: int, buffer: Buffer, offset: int, before: int, after: int) -> None:
        """One lane updates a value by an atomic operation, in the order in which they take effect."""


_BY_KIND = {"weak read": 1, "weak write": 2, "strong read": 4, "strong write": 8}
_ORDER_MATTERS = np.array([bool(k & 2) or bool(k & 8 and k & 5) for k in range(16)])
"""For a set of kinds of access to one unit by several blocks."""
_SEVERAL = -2


class Conflicts(Between):
    """Raises `BlocksConflict` if several blocks access the same bytes so that their order matters."""

    def __init__(self, frame: ThreadFrame) -> None:
        self.frame = frame
        self.unit = frame.grid.unit("global")
        self._held: dict[int, tuple[Array, Array]] = {}

    def read(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> list[Array]:
        """See `Between`."""
        self._note("strong read" if strength(step).reaches else "weak read", access, lanes, place)
        return values

    def write(self, step: Step, access: Access, lanes: Array, place: Place, changes: Array) -> None:
        """See `Between`."""
        self._note("strong write" if strength(step).reaches else "weak write", access, lanes, place)

    def check_update(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """See `Between`."""
        self._note("strong write" if strength(step).reaches else "weak write", access, lanes, place)

    def _note(self, kind: str, access: Access, lanes: Array, place: Place) -> None:
        buffer = place.region
        assert isinstance(buffer, Buffer)
        held = self._held.get(id(buffer))
        if held is None:
            count = len(buffer.bytes) // self.unit + 1
            held = self._held[id(buffer)] = np.full(count, -1, np.int32), np.zeros(count, np.uint8)
        blocks, kinds = held
        units = (place.offsets // self.unit)[:, None] + np.arange(max(access.size // self.unit, 1))
        mine = np.broadcast_to((self.frame.number[lanes] // self.frame.grid.threads)[:, None], units.shape)
        old = blocks[units]
        joined = np.where((old == -1) | (old == mine), mine, _SEVERAL).astype(np.int32)
        blocks[units] = joined
        torn = blocks[units] != joined  # lanes of several blocks at once
        if torn.any():
            blocks[units[torn]] = _SEVERAL
        kinds[units] |= np.uint8(_BY_KIND[kind])
        if ((blocks[units] == _SEVERAL) & _ORDER_MATTERS[kinds[units]]).any():
            raise BlocksConflict


@dataclass(slots=True)
class _LastWrite:
    """The last strong write of a value: its epoch (lane, time), what was there before, and who has read it.

    number: of all writes. shown: to which blocks the value before was shown since, and whether after a later write of
    the same block. seen: the first read of the new value by each lane.
    """

    before: int
    lane: int
    time: int
    number: int
    shown: dict[int, bool] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)


_SEEN = 64
"""How many readers of a value are remembered; after more, no old value is shown."""


class GridMemory(Between):
    """Judges the accesses of different blocks by their order, and shows old values where nothing forbids them.

    Accesses within a block are judged in `races`.
    """

    orders = True

    def __init__(self, frame: ThreadFrame, order: GridOrder) -> None:
        self.frame, self.order = frame, order
        self.unit = frame.grid.unit("global")
        self._tables: dict[int, AccessTable] = {}
        self._writes: dict[tuple[int, int, int], _LastWrite] = {}
        self._with_strong_writes: set[int] = set()
        """Buffers, by identity."""
        self._newest: dict[tuple[int, int], int] = {}
        """By reading and writing block, the number of the newest write that the one has seen of the other."""
        self._numbers = count()

    def read(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> list[Array]:
        """See `Between`."""
        how = strength(step)
        kind = races.STRONG_READ if how.reaches else races.PLAIN_READ
        self._judge(step, access, lanes, place, kind, None)
        if not how.strong:
            return values
        values = [value.copy() for value in values]
        late: list[tuple[_LastWrite, int]] = []
        size = access.width // 8
        for at, (lane, offset) in enumerate(zip(lanes.tolist(), place.offsets.tolist(), strict=True)):
            for number, value in enumerate(values):
                location = id(place.region), offset + number * size, size
                last = self._writes.get(location)
                if last is not None and self._may_be_late(last, lane):
                    value[at] = last.before
                    self.order.load_before(lane, location, how.sem, how.scope)
                    late.append((last, lane // self.order.threads))
                    continue
                if last is not None:
                    last.seen.setdefault(lane, self.order.clock)
                    self._see(last, lane)
                self.order.load(lane, location, how.sem, how.scope)
        for last, block in late:
            last.shown[block] = self._overtaken(last, block)
        self.frame.grid.changes += len(late)
        return values

    def _may_be_late(self, last: _LastWrite, lane: int) -> bool:
        """Whether a lane's strong load gives the value before the last write: once for each block, and once more when
        the block has seen a later write of the same writer, which a loop may need that reads a flag and data.

        It must not if the write, or a read that has seen it, happens before the load (coherence), nor after fence.sc
        of the block, which may be ordered after one of the writer (ISA 8.9.4).
        """
        block = lane // self.order.threads
        if block == last.lane // self.order.threads or len(last.seen) > _SEEN:
            return False
        if block in last.shown and (last.shown[block] or not self._overtaken(last, block)):
            return False
        if self.order.sc_fences[block] >= last.time:
            return False
        members = np.array([[last.lane, *last.seen]])
        times = np.array([[last.time, *last.seen.values()]])
        return not self.order.happens_before(np.array([lane]), members, times).any()

    def _overtaken(self, last: _LastWrite, block: int) -> bool:
        """Whether a block has seen a later write of the same block."""
        return self._newest.get((block, last.lane // self.order.threads), -1) > last.number

    def _see(self, last: _LastWrite, lane: int) -> None:
        blocks = lane // self.order.threads, last.lane // self.order.threads
        self._newest[blocks] = max(self._newest.get(blocks, -1), last.number)

    def write(self, step: Step, access: Access, lanes: Array, place: Place, changes: Array) -> None:
        """See `Between`."""
        how = strength(step)
        kind = races.STRONG_WRITE if how.reaches else races.PLAIN_WRITE
        self._judge(step, access, lanes, place, kind, changes)
        size = access.width // 8
        buffer = place.region
        if how.strong:
            self._with_strong_writes.add(id(buffer))
        elif id(buffer) not in self._with_strong_writes:
            return
        for at, (lane, offset) in enumerate(zip(lanes.tolist(), place.offsets.tolist(), strict=True)):
            for number in range(access.count):
                location = id(buffer), offset + number * size, size
                if how.strong:
                    if changes[at]:
                        before = int.from_bytes(buffer.bytes[location[1] : location[1] + size].tobytes(), "little")
                        self._writes[location] = _LastWrite(before, lane, self.order.clock, next(self._numbers))
                    self.order.store(lane, location, how.sem, how.scope)
                elif location in self._writes or self.order.has_release(location):
                    self._writes.pop(location, None)
                    self.order.store(lane, location, how.sem, how.scope)

    def check_update(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """See `Between`."""
        if strength(step).reaches:
            self._judge(step, access, lanes, place, races.STRONG_WRITE, None)
            return
        blocks = (
            lanes // self.order.threads
        )  # of several blocks in one instruction, each is judged against those before it
        for block in np.unique(blocks).tolist():
            mine = blocks == block
            part = Place(place.region, place.offsets[mine])
            self._judge(step, access, lanes[mine], part, races.PLAIN_WRITE, None)

    def update(self, step: Step, lane: int, buffer: Buffer, offset: int, before: int, after: int) -> None:
        """See `Between`. An atomic operation always sees the newest value."""
        how = strength(step)
        self._with_strong_writes.add(id(buffer))
        location = id(buffer), offset, step.detail[0].width // 8
        if before == after and step.bound.modifiers["op"] == "cas":
            self.order.load(lane, location, how.sem, how.scope)
            return
        if (last := self._writes.get(location)) is not None:
            self._see(last, lane)
        self._writes[location] = _LastWrite(before, lane, self.order.clock, next(self._numbers))
        sem = how.sem
        if step.node.offset not in self.frame.grid.acquiring:  # who does not look at the value may have come first
            sem = {"acq_rel": "release", "acquire": "relaxed"}.get(sem, sem)
        self.order.update(lane, location, sem, how.scope)

    # races -----------------------------------------------------------------------------------------------

    def _judge(self, step: Step, access: Access, lanes: Array, place: Place, kind: int, changes: Array | None) -> None:
        buffer = place.region
        assert isinstance(buffer, Buffer)
        table = self._tables.get(id(buffer))
        if table is None:
            table = self._tables[id(buffer)] = AccessTable(len(buffer.bytes), self.unit, self.order, True)
        before = table.rows_of(table.units(place.offsets, access.size))
        bad = table.note(kind, place.offsets, access.size, lanes)
        if changes is not None:
            bad &= changes
        for at in np.flatnonzero(bad).tolist():
            lane = int(lanes[at])
            for row in before[at]:
                other = table.unordered(row, lane, kind, partial(self._elsewhere, lane))
                if other is not None:
                    raise self._race(step, buffer, int(place.offsets[at]), lane, kind, *other)

    def _elsewhere(self, lane: int, other: int) -> bool:
        """Whether two lanes are of different blocks."""
        return lane // self.order.threads != other // self.order.threads

    def _race(self, step: Step, buffer: Buffer, offset: int, lane: int, kind: int, other: int, did: str) -> MemoryFault:
        frame = self.frame
        verb = {races.PLAIN_WRITE: "overwrites", races.STRONG_WRITE: "updates"}.get(kind, "reads")
        text = f"race: {frame.who(lane)} {verb} {buffer.name or 'global memory'} at offset {offset - buffer.residue}, "
        text += f"which {frame.who(other)} {did}, and nothing orders them: the first needs a release after it (or a "
        text += "fence and then a strong write), the other before it an acquire that sees this (or a strong read and "
        text += "then a fence), all of .gpu scope or wider, and a barrier between these and other threads of each block"
        return frame.fault(MemoryFault, step, text)


def between(frame: ThreadFrame, judging: str) -> Between | None:
    """What a frame asks about accesses of different blocks. judging: "", "conflicts", or "ordered"."""
    if judging == "ordered":
        assert isinstance(frame.order, GridOrder)
        return GridMemory(frame, frame.order)
    return Conflicts(frame) if judging == "conflicts" else None
