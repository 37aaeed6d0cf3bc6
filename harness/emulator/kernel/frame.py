"""How the threads of a kernel access memory: addresses, loads, stores, atomics and asynchronous copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ptxdiff.emulator.binding.program import ReadSlot, Step, WriteSlot
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Bulk
from ptxdiff.emulator.kernel.async_copy.cp_async import Copies
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.in_flight import MemoryFrame, Owned, barrier_of
from ptxdiff.emulator.kernel.memory.consistency import between
from ptxdiff.emulator.kernel.memory.global_races import alone, is_strong, note_read, note_update, note_write
from ptxdiff.emulator.kernel.memory.space import (
    LOCAL_WINDOW,
    PARAMETER_WINDOW,
    SHARED_BASE,
    SHARED_WINDOW,
    Access,
    Buffer,
    LocalMemory,
    Place,
    Shared,
    gather,
    rows,
    scatter,
    taken_rows,
)
from ptxdiff.emulator.kernel.tcgen05.in_flight import TensorWaits, TensorWork
from ptxdiff.emulator.kernel.threads import run_starts
from ptxdiff.emulator.kernel.warp.laid_out import Fragments
from ptxdiff.emulator.kernel.warp.owed import Owed
from ptxdiff.emulator.kernel.wgmma.in_flight import Promises
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array


def changed(access: Access, place: Place, values: Sequence[Array]) -> Array:
    """Which lanes would change the bytes at their places by storing values."""
    before = taken_rows(place.region.bytes, place.offsets, access.width, access.count)
    changes: Array = before[:, 0] != values[0]
    for number in range(1, access.count):
        changes |= before[:, number] != values[number]
    return changes


_WRITES = ("st", "atom")
"""The kinds of steps that write through generic addresses."""


class KernelFrame(MemoryFrame):
    """Threads of consecutive blocks and the memory that they access.

    `refused`: the blocks that know from a response that a request to cancel a launch has failed (`grid.Launches`).
    `owed`: the lanes for which others of their warps wait in an exchange, and those exchanges, by instruction and mask.
    `tested`: of each mbarrier.test_wait, by its place in the text, the lanes that got a no although the phase was
    complete. `at_barriers`: which lanes wait at a barrier now. `at_warp_barriers`: the masks of those that wait at
    bar.warp.sync, and 0 of other lanes.
    """

    def __init__(self, grid: KernelGrid, first: int, blocks: int) -> None:
        super().__init__(grid, first, blocks)
        self.shared = Shared(blocks, grid.shared_bytes, grid.unit("shared"), grid.races, self.order)
        self.local = LocalMemory(self.lanes, grid.local_bytes) if grid.local_bytes else None
        self.owned = Owned(self)
        self.fragments = Fragments()
        self.copies = Copies(self)
        self.promises = Promises(self)
        self.bulk = Bulk(self)
        self.tensor = TensorWork(self, blocks)
        self.owned.owners = self.bulk, self.copies, self.promises, self.tensor
        self.tensor_waits = TensorWaits(self, self.tensor)
        self.barriers = {}
        self.refused: set[int] = set()
        self.between = between(self, grid.judging)
        self.tested: dict[int, Array] = {}
        self.owed: dict[int, dict[str, Owed]] = {}
        self.at_barriers: Callable[[], Array] = lambda: np.zeros(self.lanes, np.bool_)
        self.at_warp_barriers: Callable[[], Array] = lambda: np.zeros(self.lanes, np.uint32)

    @property
    def team_bytes(self) -> int:
        """The bytes of shared memory of a block, or of all blocks of a cluster."""
        return self.shared.size * self.grid.cluster_size

    # blocks of a cluster, where there are any: see ClusterFrame ------------------------------------------

    def reach(self, step: Step, lanes: Array, rank: Array, *, waits: bool = True) -> None:
        """Record that lanes access memory of other blocks.

        Raises MemoryFault if those may not have begun, or may have ended.
        """

    def refuse_unmade(self, step: Step, offsets: Sequence[int] | Array, lanes: Array) -> None:
        """Raise ExecutionError if a lane uses an mbarrier at its offset whose mbarrier.init is not ordered before
        it."""
        if not self.grid.races:
            return
        if not len(lanes):
            return
        offsets = np.asarray(offsets)
        starts = run_starts(offsets)  # the threads of a block mostly name the same one
        barriers = [self.barriers.get(offset) for offset in offsets[starts].tolist()]
        lengths = np.diff(starts, append=len(offsets))
        maker = np.repeat([-1 if one is None else one.init_lane for one in barriers], lengths)
        time = np.repeat([-1 if one is None else one.init_time for one in barriers], lengths)
        threads = self.order.threads
        ordered = (maker < 0) | ((maker // threads == lanes // threads) & (self.order.block_time[lanes] > time))
        if ordered.all():
            return
        some = np.flatnonzero(~ordered)
        members, times = self.order.members(maker[some])[:, None], time[some][:, None]
        for i in some[~self.order.happens_before(lanes[some], members, times)[:, 0]].tolist():
            self.refuse_unordered_init(step, int(offsets[i]), int(lanes[i]))

    def refuse_unordered_init(self, step: Step, offset: int, lane: int) -> None:
        """Raise ExecutionError for a use of an mbarrier whose mbarrier.init may come later."""
        maker = int(self.thread[self.barriers[offset].init_lane])
        text = f"race: {self.who(lane)} uses the mbarrier at offset {offset % self.shared.size}, and no barrier lies "
        text += f"between this and the mbarrier.init of thread {maker}, which may come later"
        raise self.fault(ExecutionError, step, text)

    def destination(self, step: Step, lane: int, address: int) -> tuple[int, int]:
        """The destination of a lane's bulk copy: the block of this frame, and the offset in its shared memory."""
        return int(self.block[lane]), address - SHARED_BASE

    def receivers(self, step: Step, lane: int, ranks: int) -> list[int]:
        """The blocks of this frame in a mask of ranks. Raises ExecutionError for other ranks."""
        size, block = self.grid.cluster_size, int(self.block[lane])
        if ranks >> size or not ranks:
            text = f"{self.who(lane)} copies to the blocks of mask 0x{ranks:x}, and its cluster has {size}"
            raise self.fault(ExecutionError, step, text)
        return [block // size * size + rank for rank in range(size) if ranks >> rank & 1]

    # addresses -------------------------------------------------------------------------------------------

    def locate(self, step: Step, base: ReadSlot, access: Access, active: Array | None) -> tuple[Array, list[Place]]:
        """The active lanes and the places that they access. Raises MemoryFault and UndefinedBits."""
        return self.locate_lanes(step, base, access, self.every if active is None else np.flatnonzero(active))

    def locate_lanes(self, step: Step, base: ReadSlot, access: Access, lanes: Array) -> tuple[Array, list[Place]]:
        """Like `locate`, for given lanes."""
        value, mask = self.read(base)
        if mask is not None:
            self.refuse_undefined(step, np.broadcast_to(mask, (self.lanes,))[lanes], lanes, "an address")
        if len(lanes) == 0:
            return lanes, []
        address = (value if lanes is self.every else value[lanes]).astype(np.int64) + access.displacement
        size = access.size
        if size > 1 and int(np.bitwise_or.reduce(address)) & (size - 1):
            at = int(np.flatnonzero(address & (size - 1))[0])
            message = f"misaligned access of {size} bytes at {self._where(access, int(address[at]))}"
            raise self.fault(MemoryFault, step, f"{message}, by {self.who(int(lanes[at]))}")
        if access.space == "shared":
            return lanes, [self._in_shared(step, access, address, lanes)]
        if access.space == "local":
            return lanes, [self._in_local(step, access, address, lanes)]
        if access.space == "param":
            return lanes, [self._in_parameters(step, access, address, lanes)]
        if access.space == "" and int(address.max()) >= PARAMETER_WINDOW:
            return lanes, self._generic(step, access, address, lanes)
        return lanes, self._in_global(step, access, address, lanes)

    def _where(self, access: Access, address: int) -> str:
        if access.space in ("shared", "local"):
            return f"offset {address - SHARED_BASE} of {access.space} memory"
        if access.space == "param":
            return f"offset {address} of the kernel's parameters"
        return self.grid.memory.describe(address, access.size)

    def _bounded(self, step: Step, access: Access, offset: Array, limit: int, space: str, lanes: Array) -> None:
        if len(offset) and (int(offset.min()) < 0 or int(offset.max()) > limit - access.size):
            at = int(np.flatnonzero((offset < 0) | (offset + access.size > limit))[0])
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
        """The places for generic addresses, some of which lie in the windows of shared or local memory."""
        places = []
        window = np.searchsorted(np.array([PARAMETER_WINDOW, SHARED_WINDOW, LOCAL_WINDOW]), address, "right")
        for number in range(4):
            part = np.flatnonzero(window == number)
            if len(part) == 0:
                continue
            inside, some = address[part], lanes[part]
            if number == 0:
                placed_parts = self._in_global(step, access, inside, some)
            elif number == 1:
                placed_parts = [self._in_parameters(step, access, inside - PARAMETER_WINDOW, some)]
            elif number == 2:
                placed_parts = [self._in_shared(step, access, inside - SHARED_WINDOW, some)]
            else:
                placed_parts = [self._in_local(step, access, inside - LOCAL_WINDOW, some)]
            for place in placed_parts:
                place.part = part if place.part is None else part[place.part]
                places.append(place)
        return places

    def _in_parameters(self, step: Step, access: Access, address: Array, lanes: Array) -> Place:
        """The place of an access through a register that holds an address in the kernel's parameters."""
        within = self.grid.within_parameters(address, access.size)
        if not within.all():
            at = int(np.flatnonzero(~within)[0])
            text = f"{access.size} bytes at offset {int(address[at])} of the kernel's parameters lie in none of them"
            raise self.fault(MemoryFault, step, f"{text}, accessed by {self.who(int(lanes[at]))}")
        if step.kind in _WRITES:
            text = f"{self.who(int(lanes[0]))} writes to the kernel's parameters, which a kernel can only read"
            raise self.fault(MemoryFault, step, text)
        return Place(self.grid.parameter_memory, address)

    def _in_global(self, step: Step, access: Access, address: Array, lanes: Array) -> list[Place]:
        places = self._in_buffers(step, access, address, lanes)
        for place in places:
            if isinstance(place.region, Buffer) and (place.region.const_spans or access.space == "const"):
                self._refuse_other_space(step, access, lanes if place.part is None else lanes[place.part], place)
        return places

    def _refuse_other_space(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """Raise MemoryFault for a write to a variable in constant memory, and for an access to it as to `.global`
        memory or the reverse, which is undefined (ISA 5.1.3, 6.4.1)."""
        assert isinstance(place.region, Buffer)
        const = np.zeros(len(lanes), np.bool_)
        for first, end in place.region.const_spans:
            const |= (place.offsets < end) & (place.offsets + access.size > first)
        own = place.region is self.grid.memory.buffers[0]
        for wrong, text in (
            (const & (step.kind in _WRITES), "writes to a variable in .const memory, which a kernel can only read"),
            (const & (access.space == "global"), "accesses a variable in .const memory as .global memory"),
            (~const & (access.space == "const") & own, "accesses a variable in .global memory as .const memory"),
        ):
            if wrong.any():
                raise self.fault(MemoryFault, step, f"{self.who(int(lanes[np.flatnonzero(wrong)[0]]))} {text}")

    def _in_buffers(self, step: Step, access: Access, address: Array, lanes: Array) -> list[Place]:
        low, high = int(address.min()), int(address.max())
        buffer = self.grid.memory.find(low)
        if buffer is not None and buffer.address <= low and high + access.size <= buffer.address + buffer.size:
            return [Place(buffer, address - buffer.base)]
        places = []
        left = np.ones(len(address), np.bool_)
        for buffer in self.grid.memory.buffers:
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
        """The values and masks of undefined bits of each element of the access, over `lanes`."""
        if len(places) == 1 and places[0].part is None:
            return self._load(step, access, lanes, places[0])
        values = [np.zeros(len(lanes), UNSIGNED[access.width]) for _ in range(access.count)]
        masks = [np.zeros(len(lanes), UNSIGNED[access.width]) for _ in range(access.count)]
        for place in places:
            elements, doubt = self._load(step, access, lanes[place.part], place)
            for i in range(access.count):
                values[i][place.part] = elements[i]
                one = doubt[i]
                if one is not None:
                    masks[i][place.part] = one
        return values, [m if m.any() else None for m in masks]

    def _load(self, step: Step, access: Access, lanes: Array, place: Place) -> tuple[list[Array], list[Array | None]]:
        region = place.region
        self._refuse_owned(step, access, lanes, place, "reads", writes=False)
        values = gather(region.bytes, place.offsets, access.width, access.count)
        masks: list[Array | None] = [None] * access.count
        if region.undefined is not None:
            taken = taken_rows(region.undefined, place.offsets, access.width, access.count)
            if taken.any():
                masks = [m if m.any() else None for m in np.ascontiguousarray(taken.T)]
        if self.grid.races:
            if self.between is not None and isinstance(region, Buffer):
                values = self.between.read(step, access, lanes, place, values)
            if step.kind == "ld":
                self._synchronise(step, lanes, place, "load")
            with alone(self, region):
                self._check_read(step, access, lanes, place)
        if self.observer is not None:
            self.observer.loads(access, lanes, place)
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
        """Write the elements of the access.

        Raises UndefinedBits for undefined bits, except in shared and local memory.
        """
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
            self.refuse_read_only(step, region, lanes)
            for mask in masks:
                if mask is not None:
                    self.refuse_undefined(step, mask, lanes, f"a store to {region.name or 'global memory'}")
        self._refuse_owned(step, access, lanes, place, "writes to")
        with alone(self, region):
            if self.grid.races and not isinstance(region, LocalMemory):
                self.check_write(step, access, lanes, place, values)
                if self.between is not None and isinstance(region, Buffer):
                    self.between.write(step, access, lanes, place, changed(access, place, values))
                self._synchronise(step, lanes, place, "store")
            self.grid.changes += 1
            scatter(region.bytes, place.offsets, values, access.width)
        if region.undefined is not None:
            zero = UNSIGNED[access.width](0)
            scatter(region.undefined, place.offsets, [zero if m is None else m for m in masks], access.width)
        if not isinstance(region, LocalMemory):
            self._same_place(step, access, lanes, place, values)
        if self.observer is not None:
            self.observer.stores(step, access.size, lanes, place)

    def land(
        self, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None],
        agent: int = -1,
    ) -> None:  # fmt: skip
        """See `MemoryFrame`."""
        shared = self.shared
        if self.grid.races:
            shared.note_landing(place.offsets, access.size, lanes, agent)
        scatter(shared.bytes, place.offsets, values, access.width)
        zero = UNSIGNED[access.width](0)
        scatter(shared.undefined, place.offsets, [zero if m is None else m for m in masks], access.width)
        if self.observer is not None:
            self.observer.landed(shared, place.offsets[:, None] + np.arange(access.size))

    def _refuse_owned(
        self, step: Step, access: Access, lanes: Array, place: Place, verb: str, *, writes: bool = True
    ) -> None:  # fmt: skip
        """Raise MemoryFault for an access to bytes that work in flight owns."""
        if isinstance(place.region, Shared):
            self.owned.refuse_access(step, lanes, place.offsets, access.size, verb)
            if writes:
                self.owned.refuse_write(step, lanes, place.offsets, access.size)
        elif isinstance(place.region, Buffer) and self.grid.races:
            if writes and self.copies.flying:
                self.copies.refuse_source(step, access, lanes, place)
            self.bulk.writes.refuse(step, lanes, place.region, place.offsets, access.size, verb)

    def asynchronous(self) -> bool:
        """Complete copies that report to mbarriers, and commits of tensor cores; returns whether there were any."""
        copied = self.bulk.land()
        copied |= self.copies.arrive()
        return self.tensor.land() or copied

    def arrived(self, step: Step, barrier: int, lane: int, size: int) -> None:
        """Report to an mbarrier that the bytes of a bulk copy have arrived."""
        waiting = barrier_of(self, step, barrier, f"the bulk copy of {self.who(lane)} arrives")
        waiting.bytes -= size
        waiting.copies = True
        waiting.settle(self.order)

    def refuse_read_only(self, step: Step, region: Buffer, lanes: Array) -> None:
        """Raise MemoryFault for a store to an array that cannot be written."""
        if not region.writable:
            text = f"{self.who(int(lanes[0]))} stores to {region.name or 'a buffer'}, whose array is read-only"
            raise self.fault(MemoryFault, step, f"{text}: pass a copy that can be written")

    def _same_place(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        """Raise MemoryFault if two lanes of one instruction write different values to one place, as the winner is
        undefined."""
        if (np.diff(place.offsets) >= access.size).all():
            return  # no two have one place, as in most kernels
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
        overwrites: bool = False,
    ) -> tuple[list[int], Array | None]:
        """Update one element of each access in the order of lanes, or in reverse.

        Returns the previous values, and the mask of their undefined bits. overwrites: the new value does not depend on
        the previous one, so memory that was never written may be updated.
        """
        old = [0] * len(lanes)
        doubts: Array | None = None
        for place in places:
            region = place.region
            if isinstance(region, Buffer):
                self.refuse_read_only(step, region, lanes)
            some = lanes if place.part is None else lanes[place.part]
            self._refuse_owned(step, access, some, place, "updates")
            if self.grid.races:
                with alone(self, region):
                    self._check_update(step, access, some, place)
                if self.between is not None and isinstance(region, Buffer):
                    self.between.check_update(step, access, some, place)
                self._synchronise(step, some, place, "update")
            table = rows(region.bytes, access.width, 1)[:, 0]
            index = (place.offsets // (access.width // 8) + element).tolist()
            if region.undefined is not None:
                doubtful = rows(region.undefined, access.width, 1)[:, 0]
                doubt = doubtful[index]
                called = (isinstance(region, Buffer) and region.name) or "memory"
                where = f"an atomic on {called}, where nothing was stored before,"
                if not overwrites:
                    self.refuse_undefined(step, doubt, some, where)
            numbers = list(range(len(lanes))) if place.part is None else place.part.tolist()
            cells = {cell: int(table[cell]) for cell in set(index)}
            begun = cells.copy()
            turns = list(zip(numbers, index, strict=True))[:: -1 if self.grid.order.reverse else 1]
            if region.undefined is not None and overwrites:
                doubts = np.zeros(len(lanes), doubtful.dtype) if doubts is None else doubts
                for position, cell in turns:  # the first to exchange gets what was never written
                    doubts[position], doubtful[cell] = doubtful[cell], 0
            for position, cell in turns:
                before = cells[cell]
                old[position] = before
                cells[cell] = update(before, *(c[position] for c in columns))
                if self.between is not None and isinstance(region, Buffer):
                    offset = cell * access.width // 8
                    self.between.update(step, int(lanes[position]), region, offset, before, cells[cell])
            self.grid.changes += cells != begun
            table[list(cells)] = np.array(list(cells.values()), table.dtype)
        for place in places if self.observer is not None else ():
            assert self.observer is not None
            part = np.arange(len(lanes)) if place.part is None else place.part
            self.observer.updates(step, access, lanes[part], place, element, [old[k] for k in part.tolist()])
        return old, doubts

    def write_lanes(
        self, writer: WriteSlot, values: Array, mask: Array | None, lanes: Array, active: Array | None
    ) -> None:
        """Write a register in `lanes`, to which `values` belong (all active lanes)."""
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
            strong = is_strong(self, step)
            bad = region.note_read(place.offsets, access.size, lanes, strong)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                offset = int(place.offsets[at]) % region.size
                text = f"race: {self.who(int(lanes[at]))} reads shared memory at offset {offset}, which another thread"
                raise self.fault(MemoryFault, step, f"{text} wrote, and no barrier lies between")
        elif isinstance(region, Buffer):
            note_read(self, step, access, lanes, place, region)

    def _check_update(self, step: Step, access: Access, lanes: Array, place: Place) -> None:
        """Record an atomic operation; raises MemoryFault where another thread's store is not ordered with it."""
        region = place.region
        if isinstance(region, Buffer):
            note_update(self, step, access, lanes, place, region)
        elif isinstance(region, Shared):
            bad = region.note_update(place.offsets, access.size, lanes)
            if bad.any():
                at = int(np.flatnonzero(bad)[0])
                offset = int(place.offsets[at]) % region.size
                text = f"race: {self.who(int(lanes[at]))} updates shared memory at offset {offset}, which another"
                raise self.fault(MemoryFault, step, f"{text} thread read or wrote, and no barrier lies between")

    def _synchronise(self, step: Step, lanes: Array, place: Place, what: str) -> None:
        """Let strong accesses release and acquire at their locations (see `HappensBefore`)."""
        if self.between is not None and self.between.orders and isinstance(place.region, Buffer):
            return
        order, sem, acquiring = self.order, step.bound.modifiers.get("sem"), self.grid.acquiring
        if not acquiring:
            return  # whatever is released, nobody takes it
        if what == "update" and step.node.offset not in acquiring:
            sem = {"acq_rel": "release", "acquire": "relaxed"}.get(sem or "", sem)
        if what == "update":
            sem = sem or "relaxed"
        elif sem == "volatile":
            sem = "relaxed"
        sem = sem or "weak"
        if sem in ("weak", "relaxed") and not order.synchronised:
            return
        scope = step.bound.modifiers.get("scope") or ("sys" if what != "update" else "gpu")
        region = id(place.region)
        # What other teams release orders nothing here.
        locations = [(region, *one) for one in zip(place.offsets.tolist(), (lanes // order.team).tolist(), strict=True)]
        if what == "update":
            turn = -1 if self.grid.order.reverse else 1
            order.updates(lanes[::turn], locations[::turn], sem, scope)
            return
        access = {"load": order.load, "store": order.store}[what]
        for lane, location in zip(lanes.tolist(), locations, strict=True):
            if sem != "weak" or order.has_release(location):
                access(lane, location, sem, scope)

    def check_write(self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array]) -> None:
        """Record a write. Raises MemoryFault if it races with another thread's access."""
        region = place.region
        if step.kind == "st" and is_strong(self, step):
            self._check_update(step, access, lanes, place)
            return
        if isinstance(region, Shared):
            landing = step.kind == "cp_async"
            every = np.ones(len(lanes), np.bool_)  # which lanes change bytes is asked for those that race alone
            bad = region.note_write(place.offsets, access.size, lanes, every, landing=landing)
            if bad.any() and (bad := bad & changed(access, place, values)).any():
                at = int(np.flatnonzero(bad)[0])
                offset = int(place.offsets[at]) % region.size
                text = f"race: {self.who(int(lanes[at]))} overwrites shared memory at offset {offset}, which another"
                raise self.fault(MemoryFault, step, f"{text} thread read or wrote, and no barrier lies between")
        elif isinstance(region, Buffer):
            note_write(self, step, access, lanes, place, region, changed(access, place, values))
