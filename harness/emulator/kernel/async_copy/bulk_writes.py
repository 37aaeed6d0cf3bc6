"""What bulk copies write to global memory: in flight from their issue until their thread has waited for their group.

A copy writes when it is issued, because what it reads must not change any more. Its bytes are there for its own thread
after `cp.async.bulk.wait_group` without `.read`, which waits for reads of shared memory alone, and for others if
something orders them behind that wait (PTX ISA 9.7.9.25.6). So until the wait, an access of threads of the same frame
to these bytes is an error; an access of another block is a race, whenever it is made. Of a row of a box whose ends lie
within a unit of memory that the program accesses, the whole units are judged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.emulator.kernel.in_flight import Groups, MemoryFrame, line_of
from ptxdiff.emulator.kernel.memory.races import (
    alone,
    check_bulk_read,
    note_bulk_read,
    note_update,
    note_write,
    shadow_of,
    whole,
)
from ptxdiff.emulator.kernel.memory.space import Access, Buffer, Place
from ptxdiff.emulator.kernel.memory.unit_marks import UnitCounts
from ptxdiff.emulator.numeric.vectorise import Array


@dataclass
class Writing:
    """Rows of `size` bytes at offsets of a buffer, which the copy of a lane writes, and the group of the copy."""

    step: Step
    lane: int
    group: int
    buffer: Buffer
    offsets: Array
    size: int
    reduces: bool

    def meets(self, buffer: Buffer, offset: int, size: int) -> bool:
        """Whether some bytes of a buffer are among them."""
        return buffer is self.buffer and bool(
            ((self.offsets < offset + size) & (offset < self.offsets + self.size)).any()
        )


class BulkWrites:
    """The writes of a frame's bulk copies to global memory, until they are waited for."""

    def __init__(self, frame: MemoryFrame, groups: Groups) -> None:
        self.frame, self.groups = frame, groups
        self.writing: list[Writing] = []
        self._counts: dict[int, UnitCounts] = {}

    def begin(
        self, step: Step, lane: int, buffer: Buffer, offsets: Array, data: Array, reduces: bool = False,
        written: Array | None = None,
    ) -> None:  # fmt: skip
        """Write rows of bytes at offsets of a buffer. Raises MemoryFault for a race.

        reduces: the data are results of atomic operations on what is there. written: which bytes of a row are written,
        if not all; such a copy is not judged.
        """
        where = offsets[:, None] + np.arange(data.shape[1])
        with alone(self.frame, buffer):
            if self.frame.grid.races and written is None:
                self._judge(step, lane, buffer, offsets, data, reduces)
            if written is not None:
                where, data = where[:, written], data[:, written]
            buffer.bytes[where] = data
            if buffer.undefined is not None:
                buffer.undefined[where] = 0
        self.frame.grid.changes += 1

    def _judge(self, step: Step, lane: int, buffer: Buffer, offsets: Array, data: Array, reduces: bool) -> None:
        frame = self.frame
        first, size = whole(offsets, data.shape[1], frame.grid.unit("global"))
        if not size:
            return
        changes = (buffer.bytes[offsets[:, None] + np.arange(data.shape[1])] != data).any(axis=1)
        one = Writing(step, lane, int(self.groups.closed[lane]), buffer, first, size, reduces)
        if reduces or changes.any():
            lanes = np.full(len(first), lane)
            self.refuse(step, lanes, buffer, first, size, "reduces" if reduces else "copies to", reduces=reduces)
        self._note(one, changes)
        self._count(buffer).add(first, size, 1)
        self.writing.append(one)

    def _count(self, buffer: Buffer) -> UnitCounts:
        if id(buffer) not in self._counts:
            self._counts[id(buffer)] = UnitCounts(len(buffer.bytes), self.frame.grid.unit("global"))
        return self._counts[id(buffer)]

    def refuse(
        self, step: Step, lanes: Array, buffer: Buffer, offsets: Array, size: int, verb: str, *, reduces: bool = False
    ) -> None:  # fmt: skip
        """Raise MemoryFault if lanes access `size` bytes at offsets of a buffer to which a bulk copy is under way.

        reduces: the access is a reduction, which others may accompany.
        """
        if not self.writing or id(buffer) not in self._counts:
            return
        at = self._counts[id(buffer)].first(np.ascontiguousarray(offsets, np.int64), size)
        if at < 0:
            return
        under_way = [one for one in self.writing if not (reduces and one.reduces)]
        pairs = ((n, one) for n in range(at, len(offsets)) for one in under_way if one.meets(buffer, offsets[n], size))
        at, one = next(pairs, (-1, None))
        if one is None:
            return
        offset = int(offsets[at])
        frame, name = self.frame, buffer.name or "global memory"
        text = (
            f"{frame.who(int(lanes[at]))} {verb} {name} at offset {offset - buffer.residue}, to which the bulk copy in "
        )
        text += f"line {line_of(frame, one.step)} is under way (issued by {frame.who(one.lane)})"
        cluster = frame.grid.threads * frame.grid.cluster_size
        if frame.number[lanes[at]] // cluster != frame.number[one.lane] // cluster:
            raise frame.fault(MemoryFault, step, f"race: {text}, and nothing orders them")
        missing = self.groups.missing(one.lane, one.group, "cp.async.bulk")
        raise frame.fault(MemoryFault, step, f"{text}{missing}, without .read")

    def read(self, step: Step, lane: int, buffer: Buffer, offsets: Array, size: int) -> None:
        """Record that a bulk copy reads rows of `size` bytes at offsets. Raises MemoryFault for a race."""
        if not self.frame.grid.races:
            return
        self.refuse(step, np.full(len(offsets), lane), buffer, offsets, size, "copies from")
        with alone(self.frame, buffer):
            check_bulk_read(self.frame, step, lane, buffer, (offsets[:, None] + np.arange(size)).reshape(-1))
            note_bulk_read(self.frame, lane, buffer, offsets, size)

    def finish(self, left: int, lanes: Array) -> None:
        """Complete writes: each lane has waited until at most its last `left` groups are in flight."""
        mine, writing = set(lanes.tolist()), self.writing
        self.writing = []
        for one in writing:
            if one.lane not in mine or one.group >= self.groups.closed[one.lane] - left:
                self.writing.append(one)
                continue
            self._count(one.buffer).add(one.offsets, one.size, -1)
            with alone(self.frame, one.buffer):  # others have to be ordered behind this moment
                self._note(one, np.zeros(len(one.offsets), np.bool_))

    def _note(self, one: Writing, changes: Array) -> None:
        """Record rows as written by their thread now."""
        frame, buffer = self.frame, one.buffer
        lanes, access = np.full(len(one.offsets), one.lane), Access("global", 0, 8, one.size)
        place = Place(buffer, one.offsets)
        if one.reduces:
            note_update(frame, one.step, access, lanes, place, buffer)
        else:
            note_write(frame, one.step, access, lanes, place, buffer, changes)
            if frame.between is not None:
                frame.between.write(one.step, access, lanes, place, changes)
        if (proxy := frame.proxies.get(id(buffer))) is not None:  # what threads wrote before is gone
            proxy.clear(shadow_of(frame, buffer).units(one.offsets, one.size).reshape(-1))
