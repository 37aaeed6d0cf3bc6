"""Bulk copies of boxes between tensors and shared memory (TMA): copies under way, and when they complete ("land").

A copy to shared memory reads the tensor when it is issued. It lands when no thread can run or a thread tests an
mbarrier; it then reports its bytes to its mbarrier. Until then an access to its destination is an error. A copy from
shared memory writes the tensor when it is issued. Until its thread waits for its group, a write to its source is an
error, and so is an access to what it writes until a wait without `.read`. Then it counts as written by that thread.
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
from ptxdiff.emulator.kernel.memory.races import check_bulk_read, note_update, note_write
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


@dataclass
class Writing:
    """Bytes of global memory that a copy may still write: the lane that issued it, its group, whether it is a
    reduction, and the bytes as accesses of one unit each."""

    step: Step
    lane: int
    group: int
    reduces: bool
    access: Access
    place: Place


class Bulk:
    """The bulk copies of a frame, with groups of each lane's copies from shared memory."""

    def __init__(self, frame: MemoryFrame) -> None:
        self.frame = frame
        self.flying: list[Coming] = []
        self.leaving: list[Leaving] = []
        self.writing: list[Writing] = []
        self.groups = Groups(frame.lanes)

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
        if coming.update is None:
            frame.owned.refuse_access(step, lanes, offsets, size, "copies to")
        frame.owned.refuse_write(step, lanes, offsets, size)
        if frame.grid.races:
            changes = np.ones(len(offsets), np.bool_)
            unfenced = ~changes
            if step.facts.proxy == "async" and shared.awaits_fences(offsets, size):
                unfenced = shared.unfenced([lane], shared.units(offsets, size), addresses=False)
            bad = shared.note_write(offsets, size, lanes, changes)
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
            if self.frame.grid.races:
                self.check_read(step, lane, buffer, where.reshape(-1))
            data[chosen, part] = buffer.bytes[where]
            if buffer.undefined is not None and buffer.undefined[where].any():
                undefined = np.zeros_like(data)
                undefined[chosen, part] = buffer.undefined[where]
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

    def store(self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int) -> None:
        """Issue a copy of the box from an address of shared memory to a corner of the tensor."""
        frame, shared = self.frame, self.frame.shared
        offsets = self.chunks_at(step, found, lane, start)
        if frame.observer is not None:
            frame.observer.box_leaves(step, found, lane, corner, start)
        self.refuse_source(step, lane, offsets)
        lanes, index = np.full(len(offsets), lane), offsets // 16
        row = found.box[0] * found.size
        data = shared.bytes.reshape(-1, 16)[index].reshape(-1, row)
        doubt = shared.undefined.reshape(-1, 16)[index].reshape(-1, row)
        address, inside, low, high = rows_of(found, corner)
        if inside.any():
            buffer, where = self.where(step, found, lane, address[inside], low, high)
            part, chosen = slice(low * found.size, high * found.size), np.flatnonzero(inside)
            frame.refuse_read_only(step, buffer, lanes)
            if doubt[chosen, part].any():
                mask = np.ones(1, np.uint8)
                frame.refuse_undefined(step, mask, lanes[:1], f"a bulk copy to {buffer.name or 'global memory'}")
            self.write(step, lane, buffer, where.reshape(-1), data[chosen, part].reshape(-1))
            buffer.bytes[where] = data[chosen, part]
            frame.grid.changes += 1
            if buffer.undefined is not None:
                buffer.undefined[where] = 0
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

    def wait(self, left: int, lanes: Array, reads: bool) -> None:
        """Wait until at most the last `left` groups of each thread are under way; reads: are still being read."""
        frame, mine = self.frame, set(lanes.tolist())

        def over(one: Leaving | Writing) -> bool:
            return one.lane in mine and one.group < int(self.groups.closed[one.lane]) - left

        for read in filter(over, self.leaving):
            frame.owned.sources.add(read.offsets, 16, -1)
            if frame.grid.races:
                member = int(frame.member[read.lane])
                frame.shared.note_finished_read(read.offsets, 16, np.full(len(read.offsets), read.lane), member)
        self.leaving = [one for one in self.leaving if not over(one)]
        if reads:
            return
        written, self.writing = list(filter(over, self.writing)), [one for one in self.writing if not over(one)]
        for one in written:
            self._note_write(one, np.zeros(len(one.place.offsets), np.bool_))

    # to global memory ------------------------------------------------------------------------------------

    def write(self, step: Step, lane: int, buffer: Buffer, where: Array, data: Array, reduces: bool = False) -> None:
        """Record that a copy is about to write bytes of global memory, and may do so until its thread waits for it.

        where: their offsets in the buffer. Raises MemoryFault if another access to them is not ordered before it. Where
        the box covers a part of a unit, that unit is not judged.
        """
        if not self.frame.grid.races:
            return
        size = self.frame.grid.unit("global")
        units, covered = np.unique(where // size, return_counts=True)
        units = units[covered == size]
        changes = np.isin(units, where[buffer.bytes[where] != data] // size)
        access, place = Access("global", 0, 8 * size, 1), Place(buffer, units * size)
        other = place if reduces else Place(buffer, place.offsets[changes])
        lanes = np.full(len(other.offsets), lane)
        self.refuse_written(step, access, lanes, other, "reduces" if reduces else "copies to")
        one = Writing(step, lane, int(self.groups.closed[lane]), reduces, access, place)
        self._note_write(one, changes)
        self.writing.append(one)

    def _note_write(self, one: Writing, changes: Array) -> None:
        """Record the bytes of a copy as written by its thread now."""
        frame, buffer = self.frame, one.place.region
        assert isinstance(buffer, Buffer)
        lanes = np.full(len(one.place.offsets), one.lane)
        if one.reduces:
            note_update(frame, one.step, one.access, lanes, one.place, buffer)
        else:
            note_write(frame, one.step, one.access, lanes, one.place, buffer, changes)
            if frame.between is not None:
                frame.between.write(one.step, one.access, lanes, one.place, changes)
        if (proxy := frame.proxies.get(id(buffer))) is not None:
            proxy.clear(one.place.offsets // one.access.size)

    def check_read(self, step: Step, lane: int, buffer: Buffer, where: Array) -> None:
        """Raise MemoryFault if a lane's copy reads bytes of global memory that a thread or another copy wrote, and that
        is not ordered before it. where: the offset of each byte in the buffer, or of one in each unit."""
        if self.writing:
            access = Access("global", 0, 8, 1)
            self.refuse_written(step, access, np.full(len(where), lane), Place(buffer, where), "copies from")
        check_bulk_read(self.frame, step, lane, buffer, where)

    def refuse_written(self, step: Step, access: Access, lanes: Array, place: Place, verb: str) -> None:
        """Raise MemoryFault if lanes access bytes of global memory that a copy may still write."""
        for one in self.writing:
            if one.place.region is not place.region or (one.reduces and verb == "reduces"):
                continue
            unit = one.access.size
            theirs = place.offsets[:, None] // unit + np.arange(max(access.size // unit, 1))
            found = np.flatnonzero(np.isin(theirs, one.place.offsets // unit).any(axis=1))
            if len(found):
                buffer, offset = place.region, int(place.offsets[found[0]])
                assert isinstance(buffer, Buffer)
                text = (
                    f"race: {self.frame.who(int(lanes[found[0]]))} {verb} {buffer.name or 'global memory'} at offset "
                )
                text += f"{offset - buffer.residue}, which the bulk copy in line {line_of(self.frame, one.step)} still "
                text += f"writes{self.groups.missing(one.lane, one.group, 'cp.async.bulk')}, without .read"
                raise self.frame.fault(MemoryFault, step, text)

    # what others ask -------------------------------------------------------------------------------------

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


def _apart(data: Array, undefined: Array | None) -> tuple[Array, Array]:
    """Chunks of 8 bytes as the first halves of chunks of 16, and the undefined bits of these; the rest is padding."""
    eights = data.reshape(-1, 8)
    doubt = np.zeros_like(eights) if undefined is None else undefined.reshape(-1, 8)
    return np.concatenate([eights, np.zeros_like(eights)], 1), np.concatenate([doubt, np.full_like(eights, 0xFF)], 1)
