"""The lanes of a kernel: threads of some blocks of the grid, and how they reach memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .errors import ExecutionError, MemoryFault, PtxError, UndefinedBits
from .machine import Frame
from .memory import LOCAL_WINDOW, SHARED_BASE, SHARED_WINDOW, Buffer, Shared, gather, rows, scatter
from .program import Reader, Step, Writer
from .races import note_read, note_write
from .special import OF_A_GRID
from .standins import lane_mask
from .vectorise import UNSIGNED, Array

if TYPE_CHECKING:
    from .kernel import Launch

E = TypeVar("E", bound=PtxError)


@dataclass(frozen=True, slots=True)
class Access:
    """What a memory instruction touches: `count` neighbouring values of `width` bits."""

    space: str
    displacement: int
    width: int
    count: int

    @property
    def size(self) -> int:
        """Bytes of one access."""
        return self.width // 8 * self.count


@dataclass(slots=True)
class Place:
    """Where the accesses of some lanes go: byte offsets into one region. `part` picks them among the lanes."""

    region: Buffer | Shared | LocalMemory
    offsets: Array
    part: Array | None = None


class LocalMemory:
    """Each thread's own memory, one after the other."""

    def __init__(self, lanes: int, size: int) -> None:
        self.limit = size
        self.size = -(-max(size, 16) // 16) * 16
        self.bytes = np.zeros(lanes * self.size, np.uint8)
        self.undefined = np.full(lanes * self.size, 0xFF, np.uint8)


class KernelFrame(Frame):
    """A frame whose lanes are the threads of consecutive blocks.

    `number` is each lane's thread in the grid. `clock` counts barriers; `block_time` and `warp_time` have for each lane
    when its block and its warp last met.
    """

    def __init__(self, launch: Launch, first: int, blocks: int) -> None:
        threads = launch.threads
        super().__init__(launch.program, blocks * threads, launch.constants, launch.deadline)
        self.launch = launch
        self.first = first
        lane = np.arange(self.lanes, dtype=np.int64)
        self.every = lane
        self.thread = (lane % threads).astype(np.int32)
        self.block = lane // threads
        self.number = first * threads + lane
        self.shared = Shared(blocks, launch.shared_bytes, launch.unit("shared"), launch.races)
        self.local = LocalMemory(self.lanes, launch.local_bytes) if launch.local_bytes else None
        self.clock = 0
        self.block_time = np.zeros(self.lanes, np.int32)
        self.warp_time = np.zeros(self.lanes, np.int32)
        self.copies = Copies(self)

    # messages --------------------------------------------------------------------------------------------

    def who(self, lane: int) -> str:
        """A lane as a thread of the grid."""
        return f"thread {int(self.thread[lane])} of block {self.launch.coordinates(self.first + int(self.block[lane]))}"

    def fault(self, kind: type[E], step: Step, message: str) -> E:
        """An error at a step, with the line of the user's program that it came from."""
        return self.launch.error(kind, step, message)

    def refuse_undefined(self, step: Step, mask: Array, lanes: Array, where: str) -> None:
        """Raise UndefinedBits if a mask over `lanes` has a bit."""
        if mask.any():
            lane = int(lanes[np.flatnonzero(mask)[0]])
            text = f"bits that nobody defined reach {where} in {self.who(lane)}"
            raise self.fault(UndefinedBits, step, text)

    def under_doubt(self, step: Step, lanes: Array) -> None:
        """A store or an exchange that may or may not happen is an error; a register is undefined afterwards."""
        if step.kind in ("st", "atom", "cp_async", "stmatrix", "barrier"):
            self.refuse_undefined(step, lanes, self.every, "the predicate of a store")

    # addresses -------------------------------------------------------------------------------------------

    def locate(self, step: Step, base: Reader, access: Access, active: Array | None) -> tuple[Array, list[Place]]:
        """The active lanes and where their accesses go. Raises MemoryFault and UndefinedBits."""
        return self.locate_lanes(step, base, access, self.every if active is None else np.flatnonzero(active))

    def locate_lanes(self, step: Step, base: Reader, access: Access, lanes: Array) -> tuple[Array, list[Place]]:
        """As `locate`, for given lanes."""
        value, mask = self.read(base)
        if mask is not None:
            self.refuse_undefined(step, np.broadcast_to(mask, (self.lanes,))[lanes], lanes, "an address")
        if len(lanes) == 0:
            return lanes, []
        address = (value if lanes is self.every else value[lanes]).astype(np.int64) + access.displacement
        size = access.size
        if size > 1 and (address & (size - 1)).any():
            at = int(np.flatnonzero(address & (size - 1))[0])
            message = f"misaligned access of {size} bytes at {self._where(access, int(address[at]))}"
            raise self.fault(MemoryFault, step, f"{message}, by {self.who(int(lanes[at]))}")
        if access.space == "shared":
            return lanes, [self._in_shared(step, access, address, lanes)]
        if access.space == "local":
            return lanes, [self._in_local(step, access, address, lanes)]
        if access.space == "" and int(address.max()) >= SHARED_WINDOW:
            return lanes, self._generic(step, access, address, lanes)
        return lanes, self._in_global(step, access, address, lanes)

    def _where(self, access: Access, address: int) -> str:
        if access.space in ("shared", "local"):
            return f"offset {address - SHARED_BASE} of {access.space} memory"
        return self.launch.memory.describe(address, access.size)

    def _bounded(self, step: Step, access: Access, offset: Array, limit: int, space: str, lanes: Array) -> None:
        outside = (offset < 0) | (offset + access.size > limit)
        if outside.any():
            at = int(np.flatnonzero(outside)[0])
            text = f"{access.size} bytes at offset {int(offset[at])} lie outside the {limit} bytes of {space} memory"
            raise self.fault(MemoryFault, step, f"{text}, accessed by {self.who(int(lanes[at]))}")

    def _in_shared(self, step: Step, access: Access, address: Array, lanes: Array) -> Place:
        offset = address - SHARED_BASE
        self._bounded(step, access, offset, self.shared.limit, "shared", lanes)
        return Place(self.shared, offset + self.block[lanes] * self.shared.size)

    def _in_local(self, step: Step, access: Access, address: Array, lanes: Array) -> Place:
        offset = address - SHARED_BASE
        if self.local is None:
            raise self.fault(MemoryFault, step, "the kernel declares no local memory")
        self._bounded(step, access, offset, self.local.limit, "local", lanes)
        return Place(self.local, offset + lanes * self.local.size)

    def _generic(self, step: Step, access: Access, address: Array, lanes: Array) -> list[Place]:
        """Generic addresses, of which some lie in the windows of shared or local memory."""
        places = []
        window = np.where(address >= LOCAL_WINDOW, 2, np.where(address >= SHARED_WINDOW, 1, 0))
        for number in range(3):
            part = np.flatnonzero(window == number)
            if len(part) == 0:
                continue
            inside, some = address[part], lanes[part]
            if number == 0:
                found = self._in_global(step, access, inside, some)
            elif number == 1:
                found = [self._in_shared(step, access, inside - SHARED_WINDOW, some)]
            else:
                found = [self._in_local(step, access, inside - LOCAL_WINDOW, some)]
            for place in found:
                place.part = part if place.part is None else part[place.part]
                places.append(place)
        return places

    def _in_global(self, step: Step, access: Access, address: Array, lanes: Array) -> list[Place]:
        low, high = int(address.min()), int(address.max())
        buffer = self.launch.memory.find(low)
        if buffer is not None and buffer.address <= low and high + access.size <= buffer.address + buffer.size:
            return [Place(buffer, address - buffer.base)]
        places = []
        left = np.ones(len(address), np.bool_)
        for buffer in self.launch.memory.buffers:
            inside = (address >= buffer.address) & (address + access.size <= buffer.address + buffer.size)
            if inside.any():
                part = np.flatnonzero(inside)
                places.append(Place(buffer, address[part] - buffer.base, part))
                left &= ~inside
        if left.any():
            at = int(np.flatnonzero(left)[0])
            text = f"out of bounds: {self._where(access, int(address[at]))}, accessed by {self.who(int(lanes[at]))}"
            raise self.fault(MemoryFault, step, text)
        return places

    # access ----------------------------------------------------------------------------------------------

    def load(
        self, step: Step, access: Access, lanes: Array, places: list[Place]
    ) -> tuple[list[Array], list[Array | None]]:
        """The values (and masks of undefined bits) of each element of the access, over `lanes`."""
        if len(places) == 1 and places[0].part is None:
            return self._load(step, access, lanes, places[0])
        values = [np.zeros(len(lanes), UNSIGNED[access.width]) for _ in range(access.count)]
        masks = [np.zeros(len(lanes), UNSIGNED[access.width]) for _ in range(access.count)]
        for place in places:
            found, doubt = self._load(step, access, lanes[place.part], place)
            for i in range(access.count):
                values[i][place.part] = found[i]
                one = doubt[i]
                if one is not None:
                    masks[i][place.part] = one
        return values, [m if m.any() else None for m in masks]

    def _load(self, step: Step, access: Access, lanes: Array, place: Place) -> tuple[list[Array], list[Array | None]]:
        region = place.region
        values = gather(region.bytes, place.offsets, access.width, access.count)
        masks: list[Array | None] = [None] * access.count
        if region.undefined is not None:
            masks = [
                m if m.any() else None for m in gather(region.undefined, place.offsets, access.width, access.count)
            ]
        if self.launch.races:
            self._check_read(step, access, lanes, place)
        return values, masks

    def store(
        self,
        step: Step,
        access: Access,
        lanes: Array,
        places: list[Place],
        values: Sequence[Array],
        masks: Sequence[Array | None],
    ) -> None:
        """Write the elements of the access; undefined bits may go to shared and local memory only."""
        for place in places:
            part = place.part
            some = [v if part is None else v[part] for v in values]
            doubt = [m if part is None or m is None else m[part] for m in masks]
            self._store(step, access, lanes if part is None else lanes[part], place, some, doubt)

    def _store(
        self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None]
    ) -> None:
        region = place.region
        if isinstance(region, Buffer):
            self._refuse_read_only(step, region, lanes)
            for mask in masks:
                if mask is not None:
                    self.refuse_undefined(step, mask, lanes, f"a store to {region.name or 'global memory'}")
        if self.launch.races and not isinstance(region, LocalMemory):
            self._check_write(step, access, lanes, place, values)
        scatter(region.bytes, place.offsets, values, access.width)
        if region.undefined is not None:
            zero = UNSIGNED[access.width](0)
            scatter(region.undefined, place.offsets, [zero if m is None else m for m in masks], access.width)
        if not isinstance(region, LocalMemory):
            self._same_place(step, access, lanes, place, values)

    def _refuse_read_only(self, step: Step, region: Buffer, lanes: Array) -> None:
        """Raise MemoryFault for a store to an array that cannot be written."""
        if not region.writable:
            text = f"{self.who(int(lanes[0]))} stores to {region.name or 'a buffer'}, whose array is read-only"
            raise self.fault(MemoryFault, step, f"{text}: pass a copy that can be written")

    def _same_place(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        """Two lanes of one instruction that write different values to one place: which wins is open."""
        table = rows(place.region.bytes, access.width, access.count)
        index = place.offsets // access.size
        for number, value in enumerate(values):
            lost = table[index, number] != value
            if lost.any():
                lane = int(lanes[np.flatnonzero(lost)[0]])
                raise self.fault(
                    MemoryFault,
                    step,
                    f"race: {self.who(lane)} and another thread store different values to one address at once",
                )

    def atomic(
        self,
        step: Step,
        access: Access,
        lanes: Array,
        places: list[Place],
        columns: list[list[int]],
        update: Callable[..., int],
        element: int = 0,
    ) -> list[int]:
        """Update one element of each access, lane by lane in the order of lanes; the values found before."""
        old = [0] * len(lanes)
        for place in places:
            region = place.region
            if isinstance(region, Buffer):
                self._refuse_read_only(step, region, lanes)
            table = rows(region.bytes, access.width, 1)[:, 0]
            index = (place.offsets // (access.width // 8) + element).tolist()
            if region.undefined is not None:
                doubt = rows(region.undefined, access.width, 1)[:, 0][index]
                self.refuse_undefined(step, doubt, lanes if place.part is None else lanes[place.part], "an atomic")
            part = range(len(lanes)) if place.part is None else place.part.tolist()
            cells = {cell: int(table[cell]) for cell in set(index)}
            for position, cell in zip(part, index, strict=True):
                before = cells[cell]
                old[position] = before
                cells[cell] = update(before, *(c[position] for c in columns))
            table[list(cells)] = np.array(list(cells.values()), table.dtype)
        return old

    def write_lanes(
        self, writer: Writer, values: Array, mask: Array | None, lanes: Array, active: Array | None
    ) -> None:
        """Write a register in the lanes that `values` is for (all of the active ones)."""
        if active is None:
            self.write(writer, values, mask, None)
            return
        full = np.zeros(self.lanes, values.dtype)
        full[lanes] = values
        doubt = None
        if mask is not None:
            doubt = np.zeros(self.lanes, mask.dtype)
            doubt[lanes] = mask
        self.write(writer, full, doubt, active)

    # races -----------------------------------------------------------------------------------------------

    def _check_read(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        region = place.region
        if isinstance(region, Shared):
            times = (self.block_time[lanes], self.warp_time[lanes])
            bad = region.note_read(place.offsets, access.size, self.thread[lanes], self.clock, times)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                offset = int(place.offsets[at]) % region.size
                text = f"race: {self.who(int(lanes[at]))} reads shared memory at offset {offset}, which another thread"
                raise self.fault(MemoryFault, step, f"{text} wrote, and no barrier lies between")
        elif isinstance(region, Buffer):
            note_read(self, step, access, lanes, place, region)

    def _check_write(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        region = place.region
        changes = np.zeros(len(lanes), np.bool_)
        for before, value in zip(gather(region.bytes, place.offsets, access.width, access.count), values, strict=True):
            changes |= before != value
        if isinstance(region, Shared):
            times = (self.block_time[lanes], self.warp_time[lanes])
            bad = region.note_write(place.offsets, access.size, self.thread[lanes], self.clock, times, changes)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                offset = int(place.offsets[at]) % region.size
                text = f"race: {self.who(int(lanes[at]))} overwrites shared memory at offset {offset}, which another"
                raise self.fault(MemoryFault, step, f"{text} thread read or wrote, and no barrier lies between")
        elif isinstance(region, Buffer):
            note_write(self, step, access, lanes, place, region, changes)

    # threads ---------------------------------------------------------------------------------------------

    def need_whole_warps(self, step: Step, active: Array | None) -> None:
        """Raise ExecutionError where a warp-wide instruction runs in part of a warp."""
        if active is None:
            return
        count = active.reshape(-1, 32).sum(axis=1)
        torn = (count != 0) & (count != 32)
        if torn.any():
            lane = int(np.flatnonzero(torn)[0]) * 32
            text = (
                f"{step.bound.spelling} needs all 32 threads of a warp; some of that of {self.who(lane)} are elsewhere"
            )
            raise self.fault(ExecutionError, step, text)

    def special(self, name: str, component: str) -> Array:
        """The value of a special register in each lane."""
        launch = self.launch
        axis = "xyz".find(component) if component else 0
        if name == "%tid":
            return self._within_block(axis)
        if name == "%ntid":
            return self.constant(launch.block[axis] if 0 <= axis < 3 else 1, 32)
        if name in ("%ctaid", "%clusterid"):
            return np.repeat(self._along(axis), launch.threads)
        if name in ("%nctaid", "%nclusterid"):
            return self.constant(launch.grid[axis] if 0 <= axis < 3 else 1, 32)
        if name in ("%cluster_nctaid", "%cluster_nctarank"):
            return self.constant(1, 32)
        if name == "%laneid":
            return self.thread & 31
        if name == "%warpid":
            return self.thread >> 5
        if name == "%nwarpid":
            return self.constant(-(-launch.threads // 32), 32)
        if name.startswith("%lanemask_"):
            return lane_mask(name[10:], (self.thread & 31).astype(np.uint64))
        if name in ("%dynamic_smem_size", "%total_smem_size"):
            return self.constant(launch.shared_bytes, 32)
        return self.constant(0, 64)

    def _within_block(self, axis: int) -> Array:
        """Each thread's place along an axis of its block."""
        x, y, z = self.launch.block
        if (axis == 0 and y == z == 1) or axis > 2:
            return self.thread if axis == 0 else self.constant(0, 32)
        below = (1, x, x * y)[axis]
        return self.thread // below % self.launch.block[axis]

    def knows(self, name: str, component: str) -> bool:
        """Whether the grid decides a special register; a clock's bits, say, are undefined."""
        return name in OF_A_GRID

    def _along(self, axis: int) -> Array:
        """Each block's place along an axis of the grid."""
        block = np.arange(self.first, self.first + self.lanes // self.launch.threads, dtype=np.int64)
        x, y, _ = self.launch.grid
        if axis == 0:
            return block % x
        if axis == 1:
            return block // x % y
        return block // (x * y) if axis == 2 else block * 0


class Copies:
    """Asynchronous copies to shared memory: they land when their thread waits for their group, not before."""

    def __init__(self, frame: KernelFrame) -> None:
        self.frame = frame
        self.open: list[Any] = []
        self.groups: list[list[Any]] = []

    def issue(self, step: Step, active: Array | None) -> None:
        """Read the source now, remember the destination."""
        frame = self.frame
        to, what = step.detail
        lanes, source = (
            frame.locate(step, step.sources[1], what, active) if len(step.sources) == 2 else self._partial(step, active)
        )
        if len(lanes) == 0:
            return
        values, masks = (
            frame.load(step, what, lanes, source) if len(step.sources) == 2 else self._read_partial(step, lanes)
        )
        _, place = frame.locate_lanes(step, step.sources[0], to, lanes)
        self.open.append((step, to, lanes, place, values, masks))

    def _partial(self, step: Step, active: Array | None) -> tuple[Array, list[Place]]:
        lanes = self.frame.every if active is None else np.flatnonzero(active)
        return lanes, []

    def _read_partial(self, step: Step, lanes: Array) -> tuple[list[Array], list[Array | None]]:
        """Copies of fewer bytes than the destination has; the rest is zero."""
        frame = self.frame
        _, what = step.detail
        sizes, mask = frame.read(step.sources[2])
        if mask is not None:
            frame.refuse_undefined(step, np.broadcast_to(mask, (frame.lanes,))[lanes], lanes, "the size of a copy")
        size = sizes[lanes]
        values = [np.zeros(len(lanes), np.uint32) for _ in range(what.count)]
        for number in range(what.count):
            some = np.flatnonzero(size >= 4 * number + 4)
            if len(some):
                one = Access("global", what.displacement + 4 * number, 32, 1)
                _, place = frame.locate_lanes(step, step.sources[1], one, lanes[some])
                found, _ = frame.load(step, one, lanes[some], place)
                values[number][some] = found[0]
        if (size % 4).any():
            raise frame.fault(ExecutionError, step, "cp.async with a source size that is no multiple of 4")
        return values, [None] * what.count

    def commit(self, active: Array | None) -> None:
        """Close the group of copies issued so far."""
        self.groups.append(self.open)
        self.open = []

    def wait(self, left: int, active: Array | None) -> None:
        """Let all groups but the last `left` land; -1: everything."""
        if left < 0:
            self.groups.append(self.open)
            self.open = []
            left = 0
        while len(self.groups) > left:
            for step, access, lanes, place, values, masks in self.groups.pop(0):
                self.frame.store(step, access, lanes, place, values, masks)
