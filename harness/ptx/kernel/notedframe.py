"""Frames that report every access to an observer: loads, stores, atomics, and the issue and completion of copies.

The run is the same as in a plain frame; observers only read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.ptx.binding.program import Program, ReadSlot, Step
from ptxdiff.ptx.kernel.bulk import Bulk, Coming
from ptxdiff.ptx.kernel.clusters import ClusterFrame
from ptxdiff.ptx.kernel.copies import Copies
from ptxdiff.ptx.kernel.copyorigins import CopyTaken
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.kernel.grid import KernelGrid
from ptxdiff.ptx.kernel.memory import Access, Buffer, Place
from ptxdiff.ptx.kernel.noting import Notes, Watching
from ptxdiff.ptx.kernel.schedule import KernelScheduler
from ptxdiff.ptx.kernel.tensormaps import TensorMap, rows_of
from ptxdiff.ptx.kernel.tensorwaits import TensorWaits
from ptxdiff.ptx.kernel.tensorwork import NONE, TensorWork, Work
from ptxdiff.ptx.numeric.vectorise import Array


class NotedFrame(KernelFrame):
    """A frame that reports its accesses to `notes`."""

    notes: Watching

    def __init__(self, grid: KernelGrid, first: int, blocks: int) -> None:
        super().__init__(grid, first, blocks)
        self.copies, self.bulk = _NotedCopies(self), _NotedBulk(self)
        self.tensor = _NotedTensorWork(self, blocks)
        self.tensor_waits = TensorWaits(self, self.tensor)

    @property
    def noting(self) -> Notes | None:
        """The notes on a thread; None if only executed steps are recorded."""
        return self.notes if isinstance(self.notes, Notes) else None

    def value(self, reader: ReadSlot, lane: int) -> int:
        """The value of an operand in a lane."""
        found, _ = self.read(reader)
        return int(np.broadcast_to(found, (self.lanes,))[lane])

    def _load(self, step: Step, access: Access, lanes: Array, place: Place) -> tuple[list[Array], list[Array | None]]:
        found = super()._load(step, access, lanes, place)
        self.notes.loads(access, lanes, place)
        return found

    def _store(
        self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None]
    ) -> None:
        super()._store(step, access, lanes, place, values, masks)
        self.notes.stores(step, access.size, lanes, place)

    def atomic(
        self, step: Step, access: Access, lanes: Array, places: list[Place], columns: Any, update: Any, element: int = 0
    ) -> list[int]:
        """See `KernelFrame`."""
        old = super().atomic(step, access, lanes, places, columns, update, element)
        if self.noting is not None:
            for place in places:
                part = np.arange(len(lanes)) if place.part is None else place.part
                found = [old[k] for k in part.tolist()]
                self.noting.updates(step, access, lanes[part], place, element, found)
        return old

    def land(
        self, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None],
        agent: int = -1,
    ) -> None:  # fmt: skip
        """See `KernelFrame`."""
        super().land(access, lanes, place, values, masks, agent)
        if self.noting is not None:
            self.noting.origins.arrive(self.shared, place.offsets[:, None] + np.arange(access.size))

    def bytes_of_lane(self, address: int, size: int) -> tuple[Buffer, Array] | None:
        """The places of some bytes in global memory; None if no buffer contains them."""
        buffer = self.grid.memory.find(address)
        return None if buffer is None else (buffer, address - buffer.base + np.arange(size))


class NotedClusterFrame(NotedFrame, ClusterFrame):
    """A `NotedFrame` for a cluster of blocks."""


class _NotedCopies(Copies):
    """cp.async: its bytes belong to the thread that issued it, when the copy completes."""

    frame: NotedFrame

    def issue(self, step: Step, active: Array | None) -> None:
        """See `Copies`."""
        before = len(self.flying)
        super().issue(step, active)
        notes = self.frame.noting
        for flying in self.flying[before:] if notes is not None else ():
            assert notes is not None
            size, shared = flying.access.size, self.frame.shared
            places = flying.place.offsets[:, None] + np.arange(size)
            notes.origins.expect(shared, places, notes.numbers(flying.lanes)[:, None], notes.time)
            own = np.flatnonzero(flying.lanes == notes.lane)
            if len(own):
                self._note(notes, step, int(own[0]), places, np.stack(flying.values, 1))

    def _note(self, notes: Notes, step: Step, at: int, places: Array, values: Array) -> None:
        frame, lane, (_, what) = self.frame, notes.lane, step.detail
        copied = what.size
        if len(step.sources) > 2:
            said = frame.value(step.sources[2], lane)
            copied = (0 if said else what.size) if step.sources[2].width == 1 else said
        found = frame.bytes_of_lane(frame.value(step.sources[1], lane) + what.displacement, what.size)
        sources = np.full(what.size, -1) if found is None else np.where(np.arange(what.size) < copied, found[1], -1)
        region = frame.shared if found is None else found[0]
        data = np.ascontiguousarray(values[at]).view(np.uint8)
        notes.copied(step, lane, frame.shared, places[at], region, sources, data)


class _NotedBulk(Bulk):
    """Bulk copies: their bytes belong to the thread that issued them, when the copies complete."""

    frame: NotedFrame

    def __init__(self, frame: NotedFrame) -> None:
        super().__init__(frame)
        self._box: tuple[Any, Array] | None = None
        self._reduced: dict[int, CopyTaken] = {}

    # to shared memory: a box of a tensor, bytes of global or shared memory, or registers

    def _read(self, step: Step, found: TensorMap, lane: int, corner: list[int]) -> tuple[Array, Array | None]:
        self._box = None
        data = super()._read(step, found, lane, corner)
        if self.frame.noting is not None and self.frame.noting.step_of(lane) is not None:
            region, sources = self._sources(step, found, lane, corner)
            self._box = (region, sources)
        return data

    def _sources(self, step: Step, found: TensorMap, lane: int, corner: list[int]) -> tuple[Any, Array]:
        """The place in the tensor's buffer of each byte of a box; -1 if it lies outside."""
        address, inside, low, high = rows_of(found, corner)
        sources = np.full((len(address), found.box[0] * found.size), -1)
        if not inside.any():
            return self.frame.shared, sources.reshape(-1)
        buffer, where = self._where(step, found, lane, address[inside], low, high)
        sources[np.flatnonzero(inside), low * found.size : high * found.size] = where
        return buffer, sources.reshape(-1)

    def issue(self, coming: Coming) -> None:
        """See `Bulk`."""
        super().issue(coming)
        notes, frame, step, lane = self.frame.noting, self.frame, coming.step, coming.lane
        if notes is None:
            return
        places = (coming.offsets[:, None] + np.arange(coming.size)).reshape(-1)
        notes.origins.expect(frame.shared, places, notes.numbers(lane), notes.time)
        current = notes.step_of(lane)
        if current is None or step.kind in ("bulk_st", "bulk_red"):  # for these, the registers are the source
            return
        region, sources = self._box or (frame.shared, np.full(len(places), -1))
        if coming.source is not None:
            sources = (coming.source[:, None] + np.arange(16)).reshape(-1)
        elif step.kind == "bulk_load":
            first = frame.value(step.sources[1], lane) + step.detail.what
            found = frame.bytes_of_lane(first, len(places))
            region, sources = found or (region, sources)
        data = np.ascontiguousarray(coming.data).reshape(-1).view(np.uint8)
        notes.copied(step, lane, frame.shared, places, region, sources, data.copy())
        if coming.update is not None:
            taken = current.takes[-1]
            assert isinstance(taken, CopyTaken)
            self._reduced[id(coming)] = taken

    def _write(self, one: Coming) -> None:
        notes, shared = self.frame.noting, self.frame.shared
        places = (one.offsets[:, None] + np.arange(one.size)).reshape(-1)
        if notes is not None and (taken := self._reduced.pop(id(one), None)) is not None:
            taken.old, taken.before = notes.origins.of(shared, places), shared.bytes[places]
        super()._write(one)
        if notes is not None:
            notes.origins.arrive(shared, places)

    # from shared memory

    def store(self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int) -> None:
        """See `Bulk`."""
        frame, notes = self.frame, self.frame.noting
        if notes is not None:
            block, offset = frame.destination(step, lane, start)
            chunks = self._chunks(step, found, lane, offset, block)
            from_shared = (chunks[:, None] + np.arange(16)).reshape(-1)
            buffer, to = self._sources(step, found, lane, corner)
            inside = to >= 0
            _leaves(notes, step, lane, (buffer, to[inside]), (frame.shared, from_shared[inside]))
        super().store(step, found, lane, corner, start)

    def refuse_source(self, step: Step, lane: int, offsets: Array) -> None:
        """See `Bulk`. A copy of bytes calls it first, before it writes anything."""
        super().refuse_source(step, lane, offsets)
        notes, frame = self.frame.noting, self.frame
        if notes is None or step.kind != "bulk_store":
            return
        size = 16 * len(offsets)
        found = frame.bytes_of_lane(frame.value(step.sources[0], lane) + step.detail.to, size)
        if found is None:
            return  # the run will stop at this step
        mask = frame.value(step.sources[3], lane) if step.detail.masked else 0xFFFF
        chosen = np.tile((mask >> np.arange(16)) & 1, size // 16) != 0
        from_shared = (offsets[:, None] + np.arange(16)).reshape(-1)
        reduces = step.detail.update is not None
        _leaves(notes, step, lane, (found[0], found[1][chosen]), (frame.shared, from_shared[chosen]), reduces)


def _leaves(
    notes: Notes, step: Step, lane: int, to: tuple[Any, Array], found: tuple[Any, Array], reduces: bool = False
) -> None:
    """Record a bulk copy from shared memory to places of a buffer, before it is made."""
    buffer, places = to
    notes.copied(step, lane, buffer, places, *found, found[0].bytes[found[1]])
    if reduces and (current := notes.step_of(lane)) is not None:
        taken = current.takes[-1]
        assert isinstance(taken, CopyTaken)
        taken.old, taken.before = notes.origins.of(buffer, places), buffer.bytes[places]
    notes.origins.note(buffer, places, notes.numbers(lane), notes.time)


class _NotedTensorWork(TensorWork):
    """Tensor cores: the cells that they write belong to the thread that issued the work."""

    frame: NotedFrame

    def issue(
        self, step: Step, lane: int, written: Array, read: Array = NONE, accumulator: tuple[int, ...] = ()
    ) -> Work:
        """See `TensorWork`."""
        found = super().issue(step, lane, written, read, accumulator)
        if self.frame.noting is not None:
            self.frame.noting.issued(step, lane, written, read)
        return found

    def read_shared(self, work: Work, offsets: Array) -> None:
        """See `TensorWork`."""
        super().read_shared(work, offsets)
        if self.frame.noting is not None:
            self.frame.noting.read_shared(work.step, work.lane, work.written, offsets)


class NotedScheduler(KernelScheduler):
    """A scheduler whose observer knows which lanes run a step."""

    def __init__(self, program: Program, frame: NotedFrame, notes: Watching) -> None:
        super().__init__(program, frame)
        frame.notes = self.observer = notes
        notes.begin(frame)
        promised = self.watch

        def watch(step: Step, active: Array) -> None:
            notes.active = active
            if promised is not None:
                promised(step, active)

        self.watch = watch
