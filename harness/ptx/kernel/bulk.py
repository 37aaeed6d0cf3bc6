"""Bulk copies of boxes between tensors and shared memory (TMA): what is under way, and what makes it land.

A copy to shared memory reads the tensor when it is issued, and lands when nothing else can run or an mbarrier is
asked: it then tells its mbarrier how many bytes have come. Until then an access to its bytes is an error. A copy from
shared memory writes the tensor when it is issued; until its thread waits for its group nobody may write to its source.
That other threads read the tensor before then is not checked, nor are races on the tensor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.ptx.binding.program import Step
from harness.ptx.errors import ExecutionError, MemoryFault
from harness.ptx.kernel.copies import Reaching
from harness.ptx.kernel.memory import CHUNK, SHARED_BASE, Buffer, Place, tally
from harness.ptx.kernel.tensormaps import TensorMap, rows_of, swizzled
from harness.ptx.numeric.vectorise import Array


@dataclass
class Coming:
    """A box on its way to shared memory: who issued it, where its chunks of 16 bytes go, and the mbarrier to tell."""

    step: Step
    lane: int
    offsets: Array
    data: Array
    undefined: Array | None
    barrier: int
    swizzle: int


@dataclass
class Leaving:
    """A box whose chunks in shared memory are being read: who issued it, and in which of its groups."""

    step: Step
    lane: int
    offsets: Array
    group: int


class Bulk:
    """The bulk copies of a frame. `committed` counts the groups that each lane has closed."""

    def __init__(self, frame: Reaching) -> None:
        self.frame = frame
        self.flying: list[Coming] = []
        self.leaving: list[Leaving] = []
        self.committed = np.zeros(frame.lanes, np.int64)

    def _chunks(self, step: Step, found: TensorMap, lane: int, start: int) -> Array:
        """The bytes of shared memory, over all blocks, at which a box's chunks lie. start: an address in it."""
        frame, shared = self.frame, self.frame.shared
        if start % 128:
            text = f"{frame.who(lane)}: a box in shared memory begins at a multiple of 128 bytes, not at offset"
            raise frame.fault(MemoryFault, step, f"{text} {start - SHARED_BASE}")
        offsets = swizzled(found, start) - SHARED_BASE
        if offsets.min() < 0 or offsets.max() + 16 > shared.limit:
            text = (
                f"a box of {found.bytes} bytes at offset {start - SHARED_BASE} lies outside the {shared.limit} bytes of"
            )
            raise frame.fault(MemoryFault, step, f"{text} shared memory, in {frame.who(lane)}")
        return np.asarray(offsets + int(frame.block[lane]) * shared.size)

    def _line(self, step: Step) -> int:
        return int(self.frame.program.source.position(step.node.offset)[0])

    # to shared memory ------------------------------------------------------------------------------------

    def load(self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int, barrier: int) -> None:
        """Issue a copy of the box at a corner to an address of shared memory."""
        frame, shared = self.frame, self.frame.shared
        offsets = self._chunks(step, found, lane, start)
        units = shared.units(offsets, 16)
        if (shared.under_way[units] > 0).any():
            self.refuse(step, lane, offsets, units, "copies to")
        frame.refuse_write(step, CHUNK, np.full(len(offsets), lane), Place(shared, offsets))
        data, undefined = self._read(step, found, lane, corner)
        if frame.grid.races:
            lanes = np.full(len(offsets), lane)
            times = (frame.block_time[lanes], frame.warp_time[lanes])
            bad = shared.note_write(
                offsets, 16, frame.thread[lanes], frame.clock, times, np.ones(len(offsets), np.bool_)
            )
            if bad.any():
                offset = int(offsets[np.flatnonzero(bad)[0]]) % shared.size
                text = f"race: {frame.who(lane)} copies to shared memory at offset {offset}, which another thread"
                raise frame.fault(MemoryFault, step, f"{text} read or wrote, and it has not waited for that thread")
            shared.unfenced[units] = False
        tally(shared.under_way, units, 1)
        self.flying.append(Coming(step, lane, offsets, data, undefined, barrier, found.swizzle))

    def _read(self, step: Step, found: TensorMap, lane: int, corner: list[int]) -> tuple[Array, Array | None]:
        """The bytes of a box, and their undefined bits."""
        address, inside, low, high = rows_of(found, corner)
        row = found.box[0] * found.size
        fill = np.array([found.fill], f"u{found.size}").view(np.uint8)
        data = np.tile(fill, len(address) * found.box[0]).reshape(len(address), row)
        undefined = None
        if inside.any():
            buffer, where = self._where(step, found, lane, address[inside], low, high)
            part = slice(low * found.size, high * found.size)
            chosen = np.flatnonzero(inside)
            data[chosen, part] = buffer.bytes[where]
            if buffer.undefined is not None and buffer.undefined[where].any():
                undefined = np.zeros_like(data)
                undefined[chosen, part] = buffer.undefined[where]
        return data.reshape(-1, 16), None if undefined is None else undefined.reshape(-1, 16)

    def _where(
        self, step: Step, found: TensorMap, lane: int, address: Array, low: int, high: int
    ) -> tuple[Buffer, Array]:
        """The buffer of a tensor, and the place in it of each byte of some rows' elements low to high."""
        memory = self.frame.grid.memory
        first, last = int(address.min()) + low * found.size, int(address.max()) + high * found.size
        buffer = memory.find(first)
        if buffer is None or first < buffer.address or last > buffer.address + buffer.size:
            outside = first if buffer is None or first < buffer.address else last - 1
            text = f"out of bounds: the tensor map of {self.frame.who(lane)} leads to {memory.describe(outside, 1)}"
            raise self.frame.fault(MemoryFault, step, text)
        return buffer, address[:, None] - buffer.base + np.arange(low * found.size, high * found.size)

    def land(self) -> bool:
        """All copies to shared memory arrive; whether there were any."""
        frame, shared = self.frame, self.frame.shared
        coming, self.flying = self.flying, []
        for one in coming:
            units = shared.units(one.offsets, 16)
            tally(shared.under_way, units, -1)
            index = one.offsets // 16
            shared.bytes.reshape(-1, 16)[index] = one.data
            shared.undefined.reshape(-1, 16)[index] = 0 if one.undefined is None else one.undefined
            if shared.swizzles is None:
                shared.swizzles = np.zeros(len(shared.bytes) // 16, np.uint8)
            shared.swizzles[index] = one.swizzle
            if frame.grid.races:
                threads = frame.thread[np.full(len(one.offsets), one.lane)]
                shared.note_landing(one.offsets, 16, threads, frame.clock)
            frame.arrived(one.step, one.barrier, one.lane, one.data.size)
        return bool(coming)

    def refuse(self, step: Step, lane: int, offsets: Array, units: Array, verb: str) -> None:
        """Raise MemoryFault for an access to chunks to which a bulk copy is under way; return where none is."""
        for one in self.flying:
            hit = np.isin(self.frame.shared.units(one.offsets, 16), units)
            if hit.any():
                frame, size = self.frame, self.frame.shared.size
                at = np.flatnonzero((self.frame.shared.under_way[units] > 0).any(axis=1))
                text = (
                    f"{frame.who(lane)} {verb} shared memory at offset {int(offsets[at[0]]) % size}, to which the bulk "
                )
                text += f"copy in line {self._line(one.step)} is under way (issued by {frame.who(one.lane)})"
                rest = f"a wait for the mbarrier at offset {one.barrier % size} must come first"
                raise frame.fault(MemoryFault, step, f"{text}: {rest}")

    def refuse_bound_for(self, step: Step, barrier: int, lane: int) -> None:
        """Raise ExecutionError where a copy is still to tell an mbarrier that a thread takes away."""
        for one in self.flying:
            if one.barrier == barrier:
                text = (
                    f"{self.frame.who(lane)} takes away the mbarrier that the bulk copy in line {self._line(one.step)}"
                )
                raise self.frame.fault(ExecutionError, step, f"{text} is still to tell")

    # from shared memory ----------------------------------------------------------------------------------

    def store(self, step: Step, found: TensorMap, lane: int, corner: list[int], start: int) -> None:
        """Issue a copy of the box at an address of shared memory to a corner of the tensor."""
        frame, shared = self.frame, self.frame.shared
        offsets = self._chunks(step, found, lane, start)
        units = shared.units(offsets, 16)
        if (shared.under_way[units] > 0).any():
            self.refuse(step, lane, offsets, units, "copies from")
        lanes = np.full(len(offsets), lane)
        if frame.grid.races:
            if shared.unfenced[units].any():
                at = int(offsets[np.flatnonzero(shared.unfenced[units].any(axis=1))[0]]) % shared.size
                text = f"{frame.who(lane)} copies from shared memory at offset {at}, which a thread wrote, and no "
                raise frame.fault(MemoryFault, step, text + "fence.proxy.async lies between")
            times = (frame.block_time[lanes], frame.warp_time[lanes])
            bad = shared.note_read(offsets, 16, frame.thread[lanes], frame.clock, times)
            if bad.any():
                at = int(offsets[np.flatnonzero(bad)[0]]) % shared.size
                text = f"race: {frame.who(lane)} copies from shared memory at offset {at}, which another thread wrote"
                raise frame.fault(MemoryFault, step, text + ", and no barrier lies between")
        index = offsets // 16
        row = found.box[0] * found.size
        data = shared.bytes.reshape(-1, 16)[index].reshape(-1, row)
        doubt = shared.undefined.reshape(-1, 16)[index].reshape(-1, row)
        address, inside, low, high = rows_of(found, corner)
        if inside.any():
            buffer, where = self._where(step, found, lane, address[inside], low, high)
            part, chosen = slice(low * found.size, high * found.size), np.flatnonzero(inside)
            frame.refuse_read_only(step, buffer, lanes)
            if doubt[chosen, part].any():
                mask = np.ones(1, np.uint8)
                frame.refuse_undefined(step, mask, lanes[:1], f"a bulk copy to {buffer.name or 'global memory'}")
            buffer.bytes[where] = data[chosen, part]
            if buffer.undefined is not None:
                buffer.undefined[where] = 0
        tally(shared.taken, units, 1)
        self.leaving.append(Leaving(step, lane, offsets, int(self.committed[lane])))

    def commit(self, lanes: Array) -> None:
        """Close the group of each thread's copies from shared memory since its last one."""
        self.committed[lanes] += 1

    def wait(self, left: int, lanes: Array) -> None:
        """All groups of each thread but its last `left` have been read."""
        mine = set(lanes.tolist())
        staying = []
        for one in self.leaving:
            if one.lane in mine and one.group < self.committed[one.lane] - left:
                tally(self.frame.shared.taken, self.frame.shared.units(one.offsets, 16), -1)
            else:
                staying.append(one)
        self.leaving = staying

    def reader(self, units: Array) -> str:
        """Which copy from shared memory still reads some units, in words; "": none."""
        for one in self.leaving:
            if np.isin(self.frame.shared.units(one.offsets, 16), units).any():
                missing = "cp.async.bulk.commit_group and " if one.group >= self.committed[one.lane] else ""
                text = f"the bulk copy in line {self._line(one.step)} still reads"
                return f"{text}: {missing}cp.async.bulk.wait_group must come first"
        return ""
