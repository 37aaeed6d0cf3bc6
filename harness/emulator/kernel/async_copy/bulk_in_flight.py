"""Bulk copies of boxes between tensors and shared memory (TMA): copies under way, and when they complete ("land").

A copy to shared memory reads the tensor when it is issued. It lands when no thread can run or a thread tests an
mbarrier; it then reports its bytes to its mbarrier. Until then an access to its destination is an error. A copy from
shared memory writes the tensor when it is issued; until its thread waits for its group, a write to its
source is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel import in_flight
from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap, rows_of, swizzled
from ptxdiff.emulator.kernel.in_flight import Groups, MemoryFrame, line_of
from ptxdiff.emulator.kernel.memory.global_races import (
    alone,
    check_bulk_read,
    note_bulk_read,
    note_update,
    note_write,
    refuse_unfenced,
    shadow_of,
    whole,
)
from ptxdiff.emulator.kernel.memory.races import UnitCounts
from ptxdiff.emulator.kernel.memory.space import SHARED_BASE, Access, Buffer, Place
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array


@dataclass
class Coming:
    """Bytes under way to shared memory: the issuing lane, the offset of each piece of `size` bytes, and the mbarrier.

    data, undefined: bytes, one row for each piece. `padded`: half of them are padding, which an mbarrier does not
    count. `source`: the 16-byte pieces of shared memory from which they are read. `update`: for a reduction, the
    function of an old and a new code of `width` bits.
    """

    step: Step
    lane: int
    offsets: Array
    data: Array
    undefined: Array | None
    barrier: int
    swizzle: int = 0
    size: int = 16
    padded: bool = False
    source: Array | None = None
    update: Callable[..., int] | None = None
    width: int = 32


@dataclass
class Leaving:
    """A box whose chunks in shared memory are still being read: the lane that issued the copy, and its group."""

    step: Step
    lane: int
    offsets: Array
    group: int


class Bulk:
    """The bulk copies of a frame, with groups of each lane's copies from shared memory."""

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        self.flying: list[Coming] = []
        self.leaving: list[Leaving] = []
        self.groups = Groups(frame.lanes)
        self.writes = BulkWrites(frame, self.groups)

    def _chunks(self, step: Step, found: TensorMap, lane: int, start: int, block: int) -> Array:
        """The offsets of a box's chunks in the shared memory of all blocks. start: the box's offset in its own
        block."""
        frame, shared = self.frame, self.frame.shared
        if start % 128:
            text = f"{frame.who(lane)}: a box in shared memory begins at a multiple of 128 bytes, not at offset"
            raise frame.fault(MemoryFault, step, f"{text} {start}")
        offsets = swizzled(found, start + SHARED_BASE) - SHARED_BASE
        if offsets.min() < 0 or offsets.max() + 16 > shared.limit:
            text = f"a box of {found.bytes} bytes at offset {start} lies outside the {shared.limit} bytes of"
            raise frame.fault(MemoryFault, step, f"{text} shared memory, in {frame.who(lane)}")
        return np.asarray(offsets + block * shared.size)

    def chunks_at(self, step: Step, found: TensorMap, lane: int, address: int) -> Array:
        """The offsets of the chunks of a box at an address of shared memory, in that of all blocks."""
        block, offset = self.frame.destination(step, lane, address)
        return self._chunks(step, found, lane, offset, block)

    # to shared memory ------------------------------------------------------------------------------------

    def load(
        self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int, barrier: int, ranks: int = 0,
        group: str = "",
    ) -> None:  # fmt: skip
        """Issue a copy of the box at a corner to an address of shared memory.

        ranks: a bit for each block of the cluster that receives the box, at the same offset; 0: the block of the
        address.
        group: the modifier .cta_group, which says in which blocks mbarriers may lie; empty, as .cta_group::1.
        """
        frame = self.frame
        block, offset = frame.destination(step, lane, start)
        data, undefined = self._read(step, found, lane, corner)
        for to in frame.receivers(step, lane, ranks) if ranks else [block]:
            offsets = self._chunks(step, found, lane, offset, to)
            arrives_at = self._receiving_mbarrier(step, lane, barrier, to, bool(ranks), group or "cta_group::1")
            self.issue(Coming(step, lane, offsets, data, undefined, arrives_at, found.swizzle, padded=found.padded))

    def _receiving_mbarrier(self, step: Step, lane: int, barrier: int, to: int, several: bool, group: str) -> int:
        """The mbarrier at which a copy to block `to` arrives. Raises ExecutionError if it lies in a wrong block.

        In a pair (blocks whose ranks differ in the lowest bit) it may lie in either block. For each block that gets the
        box, a multicast arrives at the mbarrier in one block of that block's pair: in the block whose rank has the same
        lowest bit as the rank of the given mbarrier's block.
        """
        frame, size = self.frame, self.frame.shared.size
        block, cluster = barrier // size, frame.grid.cluster_size
        first = to - to % cluster
        if group == "cta_group::1" and several:
            block = to
        elif group == "cta_group::2":
            of_pair = first + ((to - first) & ~1 | (block % cluster) & 1)
            if several:
                block = of_pair
            if block != of_pair or block >= first + cluster:
                text = (
                    f"{frame.who(lane)} copies to rank {to - first} of its cluster of {cluster}, and the mbarrier lies "
                )
                text += f"in rank {block - first}: with .cta_group::2 it lies in either block of the same pair"
                raise frame.fault(ExecutionError, step, text)
            return barrier % size + block * size
        if block != to:
            text = (
                f"{frame.who(lane)} copies to rank {to - first} of its cluster of {cluster}, and the mbarrier lies in "
            )
            text += f"rank {block - first}: with .cta_group::1 it lies in the same block; use .cta_group::2 for a pair"
            raise frame.fault(ExecutionError, step, text)
        return barrier % size + block * size

    def issue(self, coming: Coming) -> None:
        """Start a copy of bytes to shared memory.

        Raises MemoryFault if another access to the destination is not ordered before it, or if a thread wrote there and
        no proxy fence lies between. (PTX ISA 8.9, proxy-preserved base causality order: accesses by two proxies are
        ordered only through a proxy fence. That holds for reads of the generic proxy before the copy as well, but
        pipelines release a buffer after reads by an mbarrier alone, and no value is known to change by it, so these are
        not reported.)
        """
        frame, shared, step, lane = self.frame, self.frame.shared, coming.step, coming.lane
        offsets, size = coming.offsets, coming.size
        frame.refuse_unmade(step, [coming.barrier], np.array([lane]))
        lanes = np.full(len(offsets), lane)
        beside = None if coming.update is None else self
        frame.owned.refuse_access(step, lanes, offsets, size, "copies to", beside=beside)
        frame.owned.refuse_write(step, lanes, offsets, size)
        if frame.grid.races:
            changes = np.ones(len(offsets), np.bool_)
            unfenced = ~changes
            if step.facts.proxy == "async" and shared.awaits_fences(offsets, size):
                unfenced = shared.unfenced([lane], shared.units(offsets, size), addresses=False)
            bad = shared.note_write(offsets, size, lanes, changes, landing=True)
            if bad.any() and coming.update is None:
                offset = int(offsets[np.flatnonzero(bad)[0]]) % shared.size
                text = f"race: {frame.who(lane)} copies to shared memory at offset {offset}, which another thread"
                raise frame.fault(MemoryFault, step, f"{text} read or wrote, and it has not waited for that thread")
            if unfenced.any():
                offset = int(offsets[np.flatnonzero(unfenced)[0]]) % shared.size
                text = f"{frame.who(lane)} copies to shared memory at offset {offset}, which a thread wrote, and no "
                raise frame.fault(MemoryFault, step, text + "fence.proxy.async lies between")
            shared.note_proxy_write(offsets, size)
        frame.owned.destinations.add(offsets, size, 1)
        if coming.source is not None:
            frame.owned.sources.add(coming.source, 16, 1)
        self.flying.append(coming)
        if frame.observer is not None:
            frame.observer.bulk_issued(coming)

    def _read(self, step: Step, found: TensorMap, lane: int, corner: list[int]) -> tuple[Array, Array | None]:
        """The bytes of a box, and their undefined bits."""
        address, inside, low, high = rows_of(found, corner)
        row = found.box[0] * found.size
        fill = np.array([found.fill], f"u{found.size}").view(np.uint8)
        data = np.tile(fill, len(address) * found.box[0]).reshape(len(address), row)
        undefined = None
        if inside.any():
            buffer, where = self.where(step, found, lane, address[inside], low, high)
            part = slice(low * found.size, high * found.size)
            chosen = np.flatnonzero(inside)
            self.writes.read(step, lane, buffer, np.ascontiguousarray(where[:, 0]), where.shape[1])
            data[chosen, part] = found.rounded(buffer.bytes[where])
            if buffer.undefined is not None and buffer.undefined[where].any():
                undefined = np.zeros_like(data)
                undefined[chosen, part] = found.rounded_doubt(buffer.undefined[where])
        if self.frame.observer is not None:
            self.frame.observer.box_read(step, found, lane, corner)
        if found.padded:
            return _apart(data, undefined)
        return data.reshape(-1, 16), None if undefined is None else undefined.reshape(-1, 16)

    def where(
        self, step: Step, found: TensorMap, lane: int, address: Array, low: int, high: int
    ) -> tuple[Buffer, Array]:
        """The buffer of a tensor, and the offset in it of each byte of some rows' elements `low` to `high`."""
        memory = self.frame.grid.memory
        first, last = int(address.min()) + low * found.size, int(address.max()) + high * found.size
        buffer = memory.find(first)
        if buffer is None or first < buffer.address or last > buffer.address + buffer.size:
            outside = first if buffer is None or first < buffer.address else last - 1
            text = f"out of bounds: the tensor map of {self.frame.who(lane)} leads to {memory.describe(outside, 1)}"
            raise self.frame.fault(MemoryFault, step, text)
        return buffer, address[:, None] - buffer.base + np.arange(low * found.size, high * found.size)

    def land(self) -> bool:
        """Complete all copies to shared memory; returns whether there were any."""
        frame, shared = self.frame, self.frame.shared
        coming, self.flying = self.flying, []
        for one in coming:
            frame.owned.destinations.add(one.offsets, one.size, -1)
            if frame.observer is not None:
                frame.observer.bulk_lands(one)
            self._write(one)
            if frame.observer is not None:
                frame.observer.landed(shared, one.offsets[:, None] + np.arange(one.size))
            if one.source is not None:
                frame.owned.sources.add(one.source, 16, -1)
            if shared.swizzles is None:
                shared.swizzles = np.zeros(len(shared.bytes) // 16, np.uint8)
            shared.swizzles[one.offsets // 16] = one.swizzle
            if frame.grid.races:
                # Only threads that see the phase of the mbarrier complete are ordered after the bytes.
                barrier = frame.barriers.get(one.barrier)
                agent = -1 if barrier is None else barrier.agent
                shared.note_landing(one.offsets, one.size, np.full(len(one.offsets), one.lane), agent)
            frame.arrived(one.step, one.barrier, one.lane, one.data.size // (2 if one.padded else 1))
        return bool(coming)

    def _write(self, one: Coming) -> None:
        """Write the bytes of a copy, or their reduction with the bytes there.

        Raises UndefinedBits if a reduction has any.
        """
        shared, index = self.frame.shared, one.offsets // one.size
        bytes_there = shared.bytes.reshape(-1, one.size)
        undefined_there = shared.undefined.reshape(-1, one.size)
        if one.update is None:
            bytes_there[index] = one.data
            undefined_there[index] = 0 if one.undefined is None else one.undefined
            return
        doubt = undefined_there[index].any(axis=1)
        self.frame.refuse_undefined(one.step, doubt, np.full(len(index), one.lane), "a reduction in shared memory")
        kind = UNSIGNED[one.width]
        for at, row in zip(index.tolist(), one.data, strict=True):
            cells = bytes_there[at].view(kind)
            cells[:] = [
                one.update(int(o), int(n)) for o, n in zip(cells, np.ascontiguousarray(row).view(kind), strict=True)
            ]

    def writer(self, units: Array) -> str:
        """See `Owner`."""
        frame = self.frame
        for one in self.flying:
            if np.isin(frame.shared.units(one.offsets, one.size), units).any():
                text = (
                    f"the bulk copy in line {line_of(frame, one.step)} is under way (issued by {frame.who(one.lane)})"
                )
                at = one.barrier % frame.shared.size
                return f"{text}: a wait for the mbarrier at offset {at} must come first"
        return ""

    def refuse_bound_for(self, step: Step, barrier: int, lane: int) -> None:
        """Raise ExecutionError if a thread invalidates an mbarrier to which a copy under way will report."""
        work = ((one.barrier, one.step) for one in self.flying)
        in_flight.refuse_bound_for(self.frame, step, barrier, lane, work, "bulk copy")

    def refuse_ended(self, block: int, name: str) -> None:
        """Raise MemoryFault if a block of this frame has ended while a copy from another block to it is under way."""
        for one in self.flying:
            if int(one.offsets[0]) // self.frame.shared.size == block != int(self.frame.block[one.lane]):
                text = (
                    f"block {name} ends while the copy of {self.frame.who(one.lane)} to its shared memory is under way"
                )
                raise self.frame.fault(MemoryFault, one.step, f"{text}: it has to wait for its mbarrier")

    # from shared memory ----------------------------------------------------------------------------------

    def store(
        self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int,
        update: Callable[..., int] | None = None,
    ) -> None:  # fmt: skip
        """Issue a copy of the box from an address of shared memory to a corner of the tensor.

        update: for a reduction, the function of an old and a new code of an element.
        """
        frame, shared = self.frame, self.frame.shared
        offsets = self.chunks_at(step, found, lane, start)
        if frame.observer is not None:
            frame.observer.box_leaves(step, found, lane, corner, start)
        self.refuse_source(step, lane, offsets)
        lanes, index = np.full(len(offsets), lane), offsets // 16
        row = found.box[0] * found.size
        data = shared.bytes.reshape(-1, 16)[index].reshape(-1, row)
        doubt = shared.undefined.reshape(-1, 16)[index].reshape(-1, row)
        address, inside, low, high = rows_of(found, corner, stores=True)
        if inside.any():
            buffer, where = self.where(step, found, lane, address[inside], low, high)
            part, chosen = slice(low * found.size, high * found.size), np.flatnonzero(inside)
            frame.refuse_read_only(step, buffer, lanes)
            if doubt[chosen, part].any():
                mask = np.ones(1, np.uint8)
                frame.refuse_undefined(step, mask, lanes[:1], f"a bulk copy to {buffer.name or 'global memory'}")
            written = data[chosen, part]
            if update is not None:
                written = reduced(frame, step, lane, buffer, where, written, update, 8 * found.size)
            offsets_of = np.ascontiguousarray(where[:, 0])
            self.writes.begin(step, lane, buffer, offsets_of, written, update is not None)
        self.leave(step, lane, offsets)

    def leave(self, step: Step, lane: int, offsets: Array) -> None:
        """Record that chunks of shared memory are being read until their thread has waited for its group."""
        self.frame.owned.sources.add(offsets, 16, 1)
        self.leaving.append(Leaving(step, lane, offsets, int(self.groups.closed[lane])))

    def refuse_source(self, step: Step, lane: int, offsets: Array) -> None:
        """Record that a copy reads chunks of shared memory, before it writes anything.

        Raises MemoryFault if earlier writes to them are not ordered before it.
        """
        self._read_in_order(step, lane, offsets)
        if self.frame.observer is not None:
            self.frame.observer.bytes_leave(step, lane, offsets)

    def _read_in_order(self, step: Step, lane: int, offsets: Array) -> None:
        frame, shared = self.frame, self.frame.shared
        lanes = np.full(len(offsets), lane)
        frame.owned.refuse_access(step, lanes, offsets, 16, "copies from")
        if not frame.grid.races:
            return
        if shared.awaits_fences(offsets, 16) and (unfenced := shared.unfenced([lane], shared.units(offsets, 16))).any():
            at = int(offsets[np.flatnonzero(unfenced)[0]]) % shared.size
            text = f"{frame.who(lane)} copies from shared memory at offset {at}, which a thread wrote, and no "
            raise frame.fault(MemoryFault, step, text + "fence.proxy.async lies between")
        bad = shared.note_read(offsets, 16, lanes)
        if bad.any():
            at = int(offsets[np.flatnonzero(bad)[0]]) % shared.size
            text = f"race: {frame.who(lane)} copies from shared memory at offset {at}, which another thread wrote"
            raise frame.fault(MemoryFault, step, text + ", and no barrier lies between")

    def commit(self, lanes: Array) -> None:
        """Close the group of each thread's copies from shared memory since its last one."""
        self.groups.commit(lanes)

    def wait(self, left: int, lanes: Array, *, reads: bool) -> None:
        """Wait until at most the last `left` groups of each thread are in flight. reads: until they have read."""
        if not reads:
            self.writes.finish(left, lanes)
        mine = set(lanes.tolist())
        staying = []
        for one in self.leaving:
            if one.lane in mine and one.group < self.groups.closed[one.lane] - left:
                shared, frame = self.frame.shared, self.frame
                frame.owned.sources.add(one.offsets, 16, -1)
                if frame.grid.races:
                    member = int(frame.member[one.lane])
                    shared.note_finished_read(one.offsets, 16, np.full(len(one.offsets), one.lane), member)
            else:
                staying.append(one)
        self.leaving = staying

    def reader(self, units: Array) -> str:
        """See `Owner`."""
        for one in self.leaving:
            if np.isin(self.frame.shared.units(one.offsets, 16), units).any():
                text = f"the bulk copy in line {line_of(self.frame, one.step)} still reads"
                return text + self.groups.missing(one.lane, one.group, "cp.async.bulk")
        for coming in self.flying:
            if coming.source is not None and np.isin(self.frame.shared.units(coming.source, 16), units).any():
                text = f"the bulk copy in line {line_of(self.frame, coming.step)} still reads"
                return f"{text}: a wait for its mbarrier must come first"
        return ""


def reduced(
    frame: MemoryFrame, step: Step, lane: int, buffer: Buffer, where: Array, data: Array, update: Callable[..., int],
    width: int,
) -> Array:  # fmt: skip
    """The bytes that a reduction writes at offsets of a buffer, from those there and from data, both of one shape.

    Raises UndefinedBits if some there are undefined.
    """
    if buffer.undefined is not None and buffer.undefined[where].any():
        name = f"a reduction in {buffer.name or 'global memory'}"
        frame.refuse_undefined(step, np.ones(1, np.uint8), np.array([lane]), name)
    kind = UNSIGNED[width]
    old, new = (np.ascontiguousarray(x).reshape(-1).view(kind).tolist() for x in (buffer.bytes[where], data))
    codes = np.array([update(*pair) for pair in zip(old, new, strict=True)], kind)
    return codes.view(np.uint8).reshape(data.shape)


def _apart(data: Array, undefined: Array | None) -> tuple[Array, Array]:
    """Chunks of 8 bytes as the first halves of chunks of 16, and the undefined bits of these; the rest is padding."""
    eights = data.reshape(-1, 8)
    doubt = np.zeros_like(eights) if undefined is None else undefined.reshape(-1, 8)
    return np.concatenate([eights, np.zeros_like(eights)], 1), np.concatenate([doubt, np.full_like(eights, 0xFF)], 1)


# ---- What bulk copies write to global memory -------------------------------------------------------------------------
#
# A copy writes when it is issued, because what it reads must not change any more. Its bytes are there for its own
# thread after `cp.async.bulk.wait_group` without `.read`, which waits for reads of shared memory alone, and for
# others if something orders them behind that wait (PTX ISA 9.7.9.25.6). So until the wait, an access of threads of
# the same frame to these bytes is an error; an access of another block is a race, whenever it is made. Of a row of a
# box whose ends lie within a unit of memory that the program accesses, the whole units are judged.


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
            lanes, verb = np.full(len(first), lane), "reduces" if reduces else "copies to"
            self.refuse(step, lanes, buffer, first, size, verb, reduces=reduces)
            units = shadow_of(frame, buffer).units(first, size).reshape(-1)
            refuse_unfenced(frame, step, lane, buffer, units, verb, own=True)
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
