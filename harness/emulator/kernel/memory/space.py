"""Memory of a running kernel: buffers, shared and local memory, with checks of bounds, undefined bits and races.

Every region is an array of bytes, with a mask of undefined bits where there may be any. Addresses are virtual: buffers
are far apart, so an access beyond one does not hit another.
"""

from __future__ import annotations

import ctypes
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.array_utils import byte_bounds

from ptxdiff.emulator.binding.program import ReadSlot
from ptxdiff.emulator.kernel.memory import races
from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.kernel.memory.proxy_fences import UNFENCED, ProxyFences, Writes
from ptxdiff.emulator.kernel.memory.races import UnitStates
from ptxdiff.emulator.machine import forks
from ptxdiff.emulator.machine.large_arrays import full, zeros
from ptxdiff.emulator.numeric.vectorise import UNSIGNED, Array

GLOBAL_BASE = 0x7F00_0000_0000
BUFFER_SPACING = 1 << 36
VARIABLES_BASE = GLOBAL_BASE - BUFFER_SPACING
"""Base address of a module's variables in global and constant memory."""
POINTED_BASE = GLOBAL_BASE + (1 << 48)
"""Base address of buffers whose addresses are fixed before the launch; above those of all other buffers."""
SHARED_WINDOW = 0x0100_0000_0000_0000
"""Base of shared memory among generic addresses."""
LOCAL_WINDOW = 0x0200_0000_0000_0000
PARAMETER_WINDOW = 0x0080_0000_0000_0000
"""Base of a kernel's parameters among generic addresses, at which tensor maps of the host lie."""
SHARED_BASE = 1024
"""Address of the first byte of shared and of local memory. It is not zero, so that an address near zero is a null
pointer."""
RANK_BITS = 24
"""The lowest bit of the block's rank in an address of a cluster's shared memory, as on Hopper."""


_KINDS = WRITERS, READERS, UPDATERS, STRONG_READERS, COPIES = range(5)
"""Kinds of entries of a `Shadow`."""
_WRITING = (races.PLAIN_WRITE, races.STRONG_WRITE, races.LANDING)
_CONFLICTS = (
    (races.UPDATED, "updated", (races.PLAIN_READ, races.PLAIN_WRITE)),
    (races.READ, "read", (races.PLAIN_WRITE, races.STRONG_WRITE)),
    (races.READ_STRONGLY, "read", (races.PLAIN_WRITE,)),
)
"""Columns of a unit's row, what the members of each did, and the kinds of access that conflict with it."""
_NEVER = 1 << 62
_FIRST_SLOTS = 1 << 10
"""Of units that several warps accessed."""
_TEXT_BYTES = 1 << 16
"""The most bytes of a string that a message shows."""


class Shadow:
    """For each unit of a buffer, its last writer, reader, updater and strong reader, and whose bulk copies read it; -1:
    none.

    Each is None before the first write, read, atomic operation or strong load: most buffers are only read, or written.
    `shared`: whether forks of this process see each other's entries.
    """

    def __init__(self, size: int, unit: int, *, shared: bool = False) -> None:
        self.unit = unit
        self.count = size // unit + 1
        self._lock = forks.Lock() if shared else None
        self._lock_of_threads = threading.Lock()
        self._made = forks.shared_zeros(len(_KINDS), np.uint8) if shared else np.zeros(len(_KINDS), np.uint8)
        self._entries: dict[int, Array] = {}
        if shared:
            self._entries = {kind: forks.shared_zeros(self.count, np.int64) for kind in _KINDS}

    def alone(self) -> AbstractContextManager[Any]:
        """Held while an access looks at entries and makes its own: of two at once, the second has to see the first."""
        return self._lock.held() if self._lock else self._lock_of_threads

    def _of(self, kind: int) -> Array | None:
        return self._entries[kind] if self._made[kind] else None

    def made(self, kind: int) -> Array:
        """The entries of a kind; at its first access, they say that there was none before. `alone` is held."""
        if not self._made[kind]:
            self._entries[kind] = self._entries.get(kind, np.empty(self.count, np.int64))
            self._entries[kind].fill(-1)
            self._made[kind] = 1
        return self._entries[kind]

    @property
    def writers(self) -> Array | None:
        """The last plain writes."""
        return self._of(WRITERS)

    @property
    def readers(self) -> Array | None:
        """The last plain reads."""
        return self._of(READERS)

    @property
    def updaters(self) -> Array | None:
        """The last atomic operations and strong stores."""
        return self._of(UPDATERS)

    @property
    def strong_readers(self) -> Array | None:
        """The last strong loads."""
        return self._of(STRONG_READERS)

    @property
    def copies(self) -> Array | None:
        """The clusters whose bulk copies have read."""
        return self._of(COPIES)

    def units(self, offsets: Array, size: int) -> Array:
        """The units that accesses of `size` bytes touch, one row for each access."""
        first: Array = offsets // self.unit
        return first[:, None] + np.arange(max(size // self.unit, 1))


def _shared(data: Array) -> Array:
    copy: Array = forks.shared_zeros(len(data), np.uint8)
    copy[:] = data
    return copy


class Buffer:
    """Global memory that a kernel may touch: the bytes of one array.

    `array` is C-contiguous and is changed in place after the kernel has run. `defined=False`: its contents are
    undefined until the kernel writes them. `residue`: the address modulo 256, for views that are not aligned. `name` is
    for messages. `slot`: the slot of an address from `pointed_address`; None: any address.
    """

    def __init__(
        self, array: Array, name: str = "", *, defined: bool = True, residue: int = 0, slot: int | None = None
    ) -> None:
        if not array.flags.c_contiguous:
            raise ValueError(f"buffer {name!r} is not contiguous")
        self.array = array
        self.name = name
        self.size = array.nbytes
        self.residue = residue % 256
        self.slot = slot
        self.defined = defined
        self.base = 0
        self.owners: list[Array] = []
        self.const_spans: tuple[tuple[int, int], ...] = ()
        """Of a module's variables: those in constant memory, as first byte and end."""
        self.changed = True
        """Whether a launch may have stored to it."""
        self.fresh = True
        """Whether no launch has ended since `reset`: then that can be repeated and loses nothing."""
        self.reset()

    def reset(self) -> None:
        """Begin a launch: the bytes are the array's, and nothing has accessed them."""
        padded = np.zeros(-(-(self.residue + self.size) // 64) * 64, np.uint8)
        padded[self.residue : self.residue + self.size] = self.array.reshape(-1).view(np.uint8)
        self.bytes = padded
        self.undefined: Array | None = None if self.defined else np.full(len(padded), 0xFF, np.uint8)
        self.shadow: Shadow | None = None
        self.changed = self.fresh = True

    def share(self, unit: int) -> None:
        """Let later forks of this process see each other's accesses. unit: of the shadow."""
        self.bytes = _shared(self.bytes)
        self.undefined = None if self.undefined is None else _shared(self.undefined)
        self.shadow = Shadow(len(self.bytes), unit, shared=True)

    @property
    def address(self) -> int:
        """The address of the first byte, once the buffer is placed."""
        return self.base + self.residue

    @property
    def unwritten(self) -> Array | None:
        """For each byte of the array, whether it has undefined bits; None if all bytes are defined."""
        if self.undefined is None:
            return None
        return np.asarray(self.undefined[self.residue : self.residue + self.size] != 0)

    @property
    def writable(self) -> bool:
        """Whether a kernel may store to it, because one of the arrays that use its memory is writable."""
        return any(a.flags.writeable for a in self.owners or [self.array])

    def save(self) -> None:
        """Copy the bytes that the kernel wrote back to the array."""
        if self.writable and self.changed:
            self.array.reshape(-1).view(np.uint8)[:] = self.bytes[self.residue : self.residue + self.size]
        self.changed, self.fresh = True, False  # of a later launch


@dataclass(frozen=True)
class BufferPointer:
    """A kernel argument: the address `offset` bytes after the beginning of a buffer."""

    buffer: Buffer
    offset: int = 0

    @property
    def address(self) -> int:
        """The address, once the buffer is placed."""
        return self.buffer.address + self.offset


def pointers(arrays: Sequence[Array], names: Sequence[str] = ()) -> list[BufferPointer]:
    """A pointer for each array, for a run that changes the arrays in place.

    Arrays that share memory share a buffer, and addresses keep their alignment (up to 256 bytes). A view with gaps also
    gives access to the gaps.
    """
    spans = [byte_bounds(a) if a.size else (a.ctypes.data, a.ctypes.data) for a in arrays]
    groups: list[list[int]] = []
    end = -1
    for number in sorted(range(len(arrays)), key=lambda i: spans[i]):
        if groups and spans[number][0] < end:
            groups[-1].append(number)
        else:
            groups.append([number])
            end = -1
        end = max(end, spans[number][1])
    pointers_made: list[BufferPointer | None] = [None] * len(arrays)
    for group in groups:
        low, high = min(spans[i][0] for i in group), max(spans[i][1] for i in group)
        memory = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
        name = " and ".join(names[i] for i in sorted(group)) if names else ""
        buffer = Buffer(memory, name, residue=low)
        buffer.owners = [arrays[i] for i in group]
        for i in group:
            pointers_made[i] = BufferPointer(buffer, spans[i][0] - low)
    return [p for p in pointers_made if p is not None]


def pointed_address(slot: int, residue: int) -> int:
    """The address of a buffer that is fixed before the launch, for pointers that a kernel reads from memory."""
    return POINTED_BASE + slot * BUFFER_SPACING + residue % 256


class GlobalMemory:
    """All buffers of a launch, placed at their addresses."""

    def __init__(
        self, buffers: Sequence[Buffer], variables: bytes = b"", const_spans: tuple[tuple[int, int], ...] = ()
    ) -> None:
        own = Buffer(np.frombuffer(bytearray(variables), np.uint8), "the module's variables")
        own.const_spans = const_spans
        placed = [b for b in buffers if b.slot is None]
        for number, buffer in enumerate([own, *placed]):
            buffer.base = VARIABLES_BASE + number * BUFFER_SPACING
        pointed = sorted((b for b in buffers if b.slot is not None), key=lambda b: b.slot or 0)
        for buffer in pointed:
            buffer.base = pointed_address(buffer.slot or 0, 0)
        self.buffers = [own, *placed, *pointed]

    def text(self, address: int) -> str:
        """The zero-terminated string at an address in the module's variables."""
        own = self.buffers[0]
        first = address - own.base
        data = own.bytes[first : min(first + _TEXT_BYTES, own.size)].tobytes() if first >= 0 else b""
        return data.split(b"\0")[0].decode(errors="replace")

    def find(self, address: int) -> Buffer | None:
        """The buffer at or before an address."""
        at = bisect_right(self.buffers, address, key=lambda b: b.base) - 1
        return self.buffers[at] if at >= 0 else None

    def describe(self, address: int, size: int) -> str:
        """A description of where an address lies."""
        buffer = self.find(address)
        if 0 <= address < 1 << 20:
            return f"address 0x{address:x} is a null pointer"
        if buffer is None or address - buffer.base > BUFFER_SPACING // 2:
            after = next((b for b in self.buffers if b.base > address), None)
            if after is not None and after.address - address < 1 << 32:
                return f"{after.address - address} bytes before the start of {after.name or 'a buffer'}"
            return f"address 0x{address & 0xFFFFFFFFFFFFFFFF:x} lies in no buffer"
        offset = address - buffer.address
        name = buffer.name or "a buffer"
        if offset < 0:
            return f"{-offset} bytes before the start of {name}"
        return f"{size} bytes at offset {offset} of {name}, which has {buffer.size} bytes"


class AccessTable:
    """The last accesses to each unit of some bytes, by which races are found (`races`).

    size: bytes, a multiple of 16. `unit`: the size of the program's smallest access. `order`: what the frame's lanes
    know of each other. `exact`: whether anything may order fewer threads than a block.
    """

    def __init__(self, size: int, unit: int, order: HappensBefore, exact: bool) -> None:
        self.unit = unit
        self.order = order
        self.exact = exact
        self.written = False
        """Whether any write is recorded."""
        self._written_at = -1
        """The time of the last one; `_NEVER` where asynchronous work wrote, which no barrier of threads orders."""
        # Rows of chunks, and then of the units of those that are or were split, each from its entry in `_parts` on.
        chunks = size // races.CHUNK
        self.accesses = zeros((chunks + chunks // 8, races.FIELDS), np.int32)  # mbarriers alone split a few chunks
        self._split = np.zeros(chunks, np.uint8)
        self._parts = np.zeros(chunks, np.int64)
        self._rows = chunks
        # Slots for units that several warps accessed; how many are free again, the first unused one, and the free ones.
        self._sets = np.zeros((0, order.team // 32, 2), np.int32)
        self._free = np.zeros(2, np.int64)

    def units(self, offsets: Array, size: int) -> Array:
        """The units that accesses of `size` bytes touch, one row for each access."""
        first = offsets // self.unit
        return first[:, None] + np.arange(max(size // self.unit, 1))

    def _note(self, kind: int, offsets: Array, size: int, lanes: Array, agent: int = -1) -> Array:
        order, count = self.order, max(size // self.unit, 1)
        bad = np.zeros(len(offsets), np.bool_)
        if not len(offsets):
            return bad
        if kind in _WRITING:
            self.written = True
            self._written_at = max(self._written_at, _NEVER if agent >= 0 else order.clock)
        if count * self.unit < races.CHUNK:
            self._make_parts(offsets // races.CHUNK)
        if self.exact and kind not in (races.FOREIGN, races.ANYBODY):
            self._make_room(self._slots_for(kind, offsets, count))
        where, by = (np.ascontiguousarray(x, np.int64) for x in (offsets, lanes))
        vectors = (
            order.member,
            order.block_time,
            order.warp_time,
            order.vector,
            order.vectors,
            order.threads,
            order.team,
            self.exact,
        )
        held = (order.clock, self.accesses, self._split, self._parts, self._sets, self._free)
        races.note(kind, where, self.unit, count, agent, by, *vectors, *held, bad)
        return bad

    def note(self, kind: int, offsets: Array, size: int, lanes: Array) -> Array:
        """Record accesses of a kind of `races`; returns which lanes race."""
        return self._note(kind, offsets, size, lanes)

    def members_of(self, row: Array, column: int) -> Iterator[tuple[int, int]]:
        """The members of a set in a unit's row of `accesses`, each with a time."""
        warp, mask, time = row[column : column + 3].tolist()
        entries = [(warp - 1, mask, time)] if warp > 0 else []
        if warp < 0:
            entries = [(number, *held) for number, held in enumerate(self._sets[mask].tolist())]
        for number, held, time in entries:
            yield from ((32 * number + bit, time) for bit in range(32) if held >> bit & 1)

    def unordered(
        self, row: Array, lane: int, kind: int, others: Callable[[int], bool]
    ) -> tuple[int, str] | None:  # fmt: skip
        """A member whose access in a unit's row conflicts with one of a kind by a lane and does not happen before it,
        and what it did.

        others: whether a member counts.
        """
        earlier: list[tuple[int, int, str]] = []
        if row[races.WRITER]:
            earlier.append((int(row[races.WRITER]) - 1, int(row[races.WRITTEN]), "wrote"))
        for column, did, kinds in _CONFLICTS:
            if kind in kinds:
                earlier += ((member, time, did) for member, time in self.members_of(row, column))
        earlier = [one for one in earlier if others(one[0])]
        if not earlier:
            return None
        members, times = (np.array([[one[i] for one in earlier]]) for i in range(2))
        ordered = self.order.happens_before(np.array([lane]), members, times)[0]
        return next(((member, did) for (member, _, did), o in zip(earlier, ordered, strict=True) if not o), None)

    def _make_parts(self, chunks: Array) -> None:
        """Have rows for each unit of some chunks."""
        new = chunks[self._parts[chunks] == 0]
        if not len(new):
            return
        new, per = np.unique(new), races.CHUNK // self.unit
        self._parts[new] = self._rows + per * np.arange(len(new))
        self._rows += per * len(new)
        if self._rows > len(self.accesses):
            grown = zeros((2 * self._rows - len(self._parts), races.FIELDS), np.int32)
            grown[: len(self.accesses)] = self.accesses
            self.accesses = grown

    def _slots_for(self, kind: int, offsets: Array, count: int) -> int:
        """The most slots that accesses of `count` units may take."""
        per = races.CHUNK // self.unit
        recorded = 0 if kind in (races.PLAIN_WRITE, races.LANDING) else len(offsets)
        if not recorded and count >= per:
            return 0
        if count >= per and self._rows == len(self._parts):  # no chunk is split
            return recorded * (count // per)
        chunks = offsets // races.CHUNK
        if count > per:
            chunks = chunks[:, None] + np.arange(count // per)
        parted = self._split[chunks] != 0
        if count >= per:
            return recorded * (count if parted.any() else count // per)
        held = self.accesses[np.unique(chunks[~parted])]
        several = int((held[:, races.SETS] == -1).sum())
        return recorded * count + several * (per - 1)

    def _make_room(self, more: int) -> None:
        """Have so many free slots, and in each slot an entry for every warp and agent."""
        slots, warps = self._sets.shape[:2]
        again, used = self._free[:2].tolist()
        needed = used - again + more
        wanted = self.order.vectors.shape[1] // 32
        if slots >= needed and warps >= wanted:
            return
        if slots < needed:
            slots = max(2 * needed, _FIRST_SLOTS)
        sets = np.zeros((slots, max(warps, wanted), 2), np.int32)
        sets[:used, :warps] = self._sets[:used]
        free = np.zeros(2 + slots, np.int64)
        free[: 2 + again] = self._free[: 2 + again]
        self._sets, self._free = sets, free

    def rows_of(self, units: Array) -> Array:
        """The rows of `accesses` of some units."""
        per = races.CHUNK // self.unit
        if units.ndim == 2 and units.shape[1] == per > 1:  # those of whole chunks, as accesses are aligned
            chunks = units[:, 0] // per
            if not self._split[chunks].any():
                whole: Array = np.broadcast_to(self.accesses[chunks][:, None], (*units.shape, races.FIELDS))
                return whole
        chunks = units // per
        found: Array = self.accesses[np.where(self._split[chunks] != 0, self._parts[chunks] + units % per, chunks)]
        return found


class Shared(AccessTable):
    """The shared memory of the blocks (CTAs) of one frame, one after the other, with the accesses to each unit.

    `unit`: the size of the program's smallest access. `order`: the order of the frame's lanes, which decides
    whether two accesses race (`races`).
    """

    def __init__(self, blocks: int, size: int, unit: int, races: bool, order: HappensBefore) -> None:
        self.size = -(-max(size, 16) // 16) * 16
        self.limit = size
        self.blocks = blocks
        super().__init__(blocks * self.size if races else 0, unit, order, order.exact)
        self.bytes = zeros(blocks * self.size, np.uint8)
        self.undefined = full(blocks * self.size, 0xFF, np.uint8)
        self._proxy = ProxyFences(blocks * self.size // unit, order)
        self._states = UnitStates(self._proxy.states, unit)
        self._addresses: dict[int, int] = {}
        self.swizzles: Array | None = None
        self.races = races

    def note_read(self, offsets: Array, size: int, lanes: Array, strong: bool = False) -> Array:
        """Record reads; returns which lanes read a unit that another thread wrote and nothing orders before them.

        strong: by volatile, relaxed or acquire loads, which do not race with atomic operations.
        """
        kind = races.STRONG_READ if strong else races.PLAIN_READ
        return self._note(kind, offsets, size, lanes)

    def note_write(self, offsets: Array, size: int, lanes: Array, changes: Array, *, landing: bool = False) -> Array:
        """Record writes; returns which lanes change a unit that another thread accessed and nothing orders.

        landing: the writes are copies that `note_landing` completes. Until then nobody accesses the bytes, so nobody
        asks for a proxy fence.
        """
        if not landing:
            self._states.set(offsets, size, UNFENCED)
        return self._note(races.PLAIN_WRITE, offsets, size, lanes) & changes

    def note_update(self, offsets: Array, size: int, lanes: Array) -> Array:
        """Record atomic operations and strong stores; which lanes meet plain accesses of others that nothing orders."""
        self._states.set(offsets, size, UNFENCED)
        return self._note(races.STRONG_WRITE, offsets, size, lanes)

    def note_landing(self, offsets: Array, size: int, lanes: Array, agent: int = -1) -> None:
        """Record the writes of asynchronous copies when they are complete. agent: who wrote, if not the lanes.

        No proxy fence is required after them. The ISA requires one after cp.async too, but Triton 3.6 never writes it.
        """
        self._note(races.LANDING, offsets, size, lanes, agent)
        self.note_proxy_write(offsets, size)

    def note_proxy_write(self, offsets: Array, size: int) -> None:
        """Record that the async proxy overwrites bytes."""
        self._states.set(offsets, size, 0)

    def note_finished_read(self, offsets: Array, size: int, lanes: Array, member: int) -> None:
        """Record that asynchronous work of lanes, with the number `member`, has read until now."""
        self._note(races.LANDED, offsets, size, lanes, member)

    def written_by_others(self, offsets: Array, size: int, lanes: Array) -> Array:
        """Which accesses read what a warp other than the lane's own wrote, and nothing orders before the lane."""
        return self._read_alone(races.FOREIGN, offsets, size, lanes)

    def written_by_anybody(self, offsets: Array, size: int, lanes: Array) -> Array:
        """`written_by_others` of the lane's warp, and of another warp with the same vector clock."""
        return self._read_alone(races.ANYBODY, offsets, size, lanes)

    def _read_alone(self, kind: int, offsets: Array, size: int, lanes: Array) -> Array:
        """Which reads that are not recorded race."""
        order = self.order
        if order.team == order.threads and len(lanes) and order.block_time[lanes].min() > self._written_at:
            # A barrier of the whole block lies between its last write and each of the reads.
            return np.zeros(len(offsets), np.bool_)
        return self._note(kind, offsets, size, lanes)

    def note_addresses(self, offsets: Array, size: int) -> None:
        """Record that tcgen05.alloc just wrote addresses of tensor memory (see `unfenced`)."""
        self._addresses |= dict.fromkeys(self.units(offsets, size).ravel().tolist(), self.order.clock)
        self.order.tick()  # so that a later store has another time

    def unfenced(self, lanes: Sequence[int], units: Array, *, of_warp: bool = False, addresses: bool = True) -> Array:
        """Which rows of units a thread wrote without a proxy fence between that write and an access by lanes now.

        lanes: those that execute the access together. of_warp: see `ProxyFences.lacking`. addresses: whether the
        writes of tcgen05.alloc count. The ISA does not say by which proxy it writes, and Triton puts no fence between
        it and a bulk copy to the same bytes.
        """
        self._proxy.settle()
        flat = units.ravel()
        states = self._proxy.states[flat]
        unfenced = states == UNFENCED
        if (states > 0).any():
            some = np.flatnonzero(states > 0)
            writes = self._writes(flat[some])
            for lane in lanes:
                unfenced[some] |= self._proxy.lacking(lane, flat[some], writes, of_warp)
        if self._addresses and not addresses and unfenced.any():
            written = self.rows_of(flat)[..., races.WRITTEN]
            for unit, time in self._addresses.items():
                unfenced &= (flat != unit) | (written != time)
        rows: Array = unfenced.reshape(units.shape).any(axis=1)
        return rows

    def _writes(self, units: Array) -> Writes:
        """The last plain write of each unit, and the strong writes since."""
        rows, team = self.rows_of(units), self.order.team
        # Writers beyond the team's threads are copies that landed.
        writers = rows[:, races.WRITER]
        at = np.flatnonzero((writers > 0) & (writers <= team))
        member, time = writers[at].astype(np.int64) - 1, rows[at, races.WRITTEN]
        updated = np.flatnonzero(rows[:, races.UPDATED])
        if len(updated):
            strong = np.array([(i, *one) for i in updated.tolist() for one in self._updaters(rows[i])])
            at, member, time = (np.append(*both) for both in zip((at, member, time), strong.T, strict=True))
        return Writes(at, self._teams(units)[at] * team + member, time)

    def _teams(self, units: Array) -> Array:
        """The team to whose shared memory each unit belongs."""
        return units // (self.order.team // self.order.threads * self.size // self.unit)

    def _updaters(self, row: Array) -> Iterator[tuple[int, int]]:
        """The members whose strong writes a row has; all of the team, where it only says that there are several."""
        if row[races.UPDATED] == -2:
            return ((member, int(row[races.UPDATED + 2])) for member in range(self.order.team))
        return self.members_of(row, races.UPDATED)

    def fence(self, lanes: Array) -> None:
        """Record a proxy fence by lanes: what they wrote, and what happened before them, is visible to the async proxy
        for all that happens after the fence."""
        self._proxy.settle()
        states, per = self._proxy.states, races.CHUNK // self.unit
        here = np.zeros(self.blocks * self.order.threads // self.order.team, np.bool_)
        here[lanes // self.order.team] = True
        # The units of a chunk that is not split have one state: the first stands for all.
        chunks = np.flatnonzero(_joined(states, per))
        chunks = chunks[here[self._teams(chunks * per)]]
        whole, parted = chunks[self._split[chunks] == 0], chunks[self._split[chunks] != 0]
        parts = (parted[:, None] * per + np.arange(per)).ravel()
        units = np.append(whole * per, parts[states[parts] != 0])
        units = units[self._proxy.without(lanes, units, self._teams(units))]
        if len(units):
            self._proxy.fence(lanes, units, self._writes(units))
        states.reshape(-1, per)[whole] = states[whole * per, None]

    def awaits_fences(self, offsets: Array, size: int) -> bool:
        """Whether the last write of some bytes is by a thread, and not all threads know a proxy fence behind it."""
        self._proxy.settle()
        return self._states.first(offsets, size) >= 0


def _joined(states: Array, per: int) -> Array:
    """The bits of `per` neighbouring states together; `any` along rows of a few elements takes ten times as long."""
    table = states.reshape(-1, per)
    table = table.view(np.uint64) if per > 1 else table
    joined: Array = table[:, 0]
    for number in range(1, table.shape[1]):
        joined = joined | table[:, number]
    return joined


@dataclass(frozen=True, slots=True)
class Access:
    """The access of a memory instruction: `count` neighbouring values of `width` bits. policy: of the caches, if it has
    one; it decides no value."""

    space: str
    displacement: int
    width: int
    count: int
    policy: ReadSlot | None = None

    @property
    def size(self) -> int:
        """Bytes of one access."""
        return self.width // 8 * self.count


CHUNK = Access("shared", 0, 32, 4)
"""The 16-byte access with which tensor cores read matrices and bulk copies move boxes."""


@dataclass(slots=True)
class Place:
    """The byte offsets that some lanes access in one region. `part`: the indices of these among the lanes."""

    region: Buffer | Shared | LocalMemory
    offsets: Array
    part: Array | None = None


class LocalMemory:
    """The local memory of all threads, one after the other."""

    def __init__(self, lanes: int, size: int) -> None:
        self.limit = size
        self.size = -(-max(size, 16) // 16) * 16
        self.bytes = np.zeros(lanes * self.size, np.uint8)
        self.undefined = np.full(lanes * self.size, 0xFF, np.uint8)


def rows(data: Array, width: int, count: int) -> Array:
    """Bytes as a table with `count` patterns of `width` bits in each row."""
    kind = UNSIGNED[width]
    size = width // 8 * count
    return data[: len(data) // size * size].view(kind).reshape(-1, count)


def taken_rows(data: Array, offsets: Array, width: int, count: int) -> Array:
    """As `gather`, a row for each offset."""
    return rows(data, width, count).take(offsets // (width // 8 * count), axis=0)


def gather(data: Array, offsets: Array, width: int, count: int) -> list[Array]:
    """`count` neighbouring values of `width` bits at each byte offset; offsets are multiples of their size."""
    taken = taken_rows(data, offsets, width, count)
    return [np.ascontiguousarray(taken[:, i]) for i in range(count)]


def scatter(data: Array, offsets: Array, values: Sequence[Any], width: int) -> None:
    """Write `len(values)` neighbouring values of `width` bits at each byte offset; later lanes win."""
    count = len(values)
    table = rows(data, width, count)
    index = offsets // (width // 8 * count)
    if width * count == 128 and len(offsets) > 1:  # whole rows as one number of numpy's, three times as fast
        whole = np.empty((len(offsets), count), UNSIGNED[width])
        for number, value in enumerate(values):
            whole[:, number] = value
        table.view(np.complex128)[index, 0] = whole.view(np.complex128)[:, 0]
        return
    for number, value in enumerate(values):
        table[index, number] = value
