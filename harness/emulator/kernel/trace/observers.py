"""Observers of a running kernel: which instructions were executed, and what one thread read, wrote and waited for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import ReadSlot, Step
from ptxdiff.emulator.errors import ExecutionError, PtxError
from ptxdiff.emulator.kernel.async_copy.bulk_in_flight import Coming
from ptxdiff.emulator.kernel.async_copy.cp_async import Flying
from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap, rows_of
from ptxdiff.emulator.kernel.cluster.blocks import frame_of
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.memory.space import Access, Buffer, Place, Shared
from ptxdiff.emulator.kernel.observer import KernelObserver
from ptxdiff.emulator.kernel.schedule import KernelScheduler
from ptxdiff.emulator.kernel.tcgen05.loads import reached
from ptxdiff.emulator.kernel.trace.origins import (
    TENSOR,
    WARP,
    CopyTaken,
    Focus,
    NotedProduct,
    OldTaken,
    OperandTaken,
    Origins,
    RegistersTaken,
    Stored,
    Taken,
    Takes,
    name_of,
    of_tensor_cores,
    of_warp,
    of_warpgroup,
)
from ptxdiff.emulator.machine.frame import Frame
from ptxdiff.emulator.numeric.vectorise import Array


class TooLong(ExecutionError):
    """A thread that executes more instructions, or copies more bytes, than are recorded."""


@dataclass(frozen=True, slots=True)
class SeenOperand:
    """A register, or a constant, as one instruction read it.

    name: as written; "" for a constant. value: None if bits are undefined. maker: the number of the thread's
    instruction that wrote it last; -1 for none.
    """

    name: str
    kind: str
    width: int
    value: int | None
    maker: int = -1


@dataclass(slots=True)
class ThreadStep:
    """One instruction of the thread.

    time: of the step in the whole run. reads: the guard is last; if the guard did not hold, they include the old values
    of the results. executed: whether the guard held. memory: the name of the memory that it accessed, the offset there
    and the size; data: the bytes that it loaded or stored. origins: of each byte that it loaded. warp: for an exchange,
    the value of each operand in the threads of the warp. takes: for a copy, a product, an atomic, or a load of
    matrices: what it takes from memory and from other threads.
    """

    number: int
    time: int
    step: Step
    line: int
    text: str
    reads: tuple[SeenOperand, ...]
    writes: tuple[SeenOperand, ...] = ()
    executed: bool = True
    memory: tuple[str, int, int] | None = None
    data: bytes = b""
    origins: tuple[Stored | None, ...] = ()
    warp: tuple[tuple[int, ...], ...] = ()
    takes: list[Takes] = field(default_factory=list)

    @property
    def loads(self) -> bool:
        """Whether it reads memory into registers."""
        return self.memory is not None and self.step.facts.memory == "reads"

    @property
    def stores(self) -> bool:
        """Whether it changes memory."""
        return self.memory is not None and not self.loads

    @property
    def opcode(self) -> str:
        """The first word of the instruction."""
        return self.step.node.opcode

    @property
    def branches(self) -> bool:
        """Whether it jumps under a predicate."""
        return self.step.kind in ("branch", "exit") and self.step.guard >= 0

    def made_of(self, focus: Focus | None) -> Sequence[Taken]:
        """The values from elsewhere behind a part of its result; none if it depends on the thread's registers alone."""
        if focus is None:
            return ()
        return next((made for t in self.takes if (made := t.of(focus)) is not None), ())


@dataclass
class ThreadTrace:
    """The trace of one thread. thread: its number in the grid. who: the same in words. fault: ended the run early."""

    thread: int
    who: str = ""
    steps: list[ThreadStep] = field(default_factory=list)
    fault: PtxError | None = None

    @cached_property
    def _by_time(self) -> dict[int, ThreadStep]:
        return {s.time: s for s in self.steps}

    def at(self, time: int) -> ThreadStep | None:
        """The thread's instruction at a time, once the run is over."""
        return self._by_time.get(time)


MOST_STEPS = 200_000
"""The most instructions of one thread that are recorded."""
MOST_TAKEN = 1 << 24
"""The most bytes and elements whose origins are recorded for one thread; each takes about 30 bytes."""


class ExecutedSteps(KernelObserver):
    """The steps that any thread executed."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """See `KernelObserver`."""
        if executed or step.kind in ("branch", "exit"):  # for these, `executed` says whether lanes jumped
            self.steps.add(id(step))


class Notes(KernelObserver):
    """The steps of one thread, and the thread that produced each byte. thread: -1 records only the bytes."""

    def __init__(self, thread: int) -> None:
        self.thread, self.lane = thread, -1
        self.steps: list[ThreadStep] = []
        self.who = ""
        self.time = 0
        self.origins = Origins()
        self.product: NotedProduct | None = None
        self._makers: dict[int, int] = {}
        self._current: ThreadStep | None = None
        self._taken, self._matrices = 0, 0
        self._box: tuple[Any, Array] | None = None
        """The box that a bulk copy has read, and is issued next."""
        self._reduced: dict[int, CopyTaken] = {}

    def block(self, threads: int) -> int | None:
        """See `KernelObserver`: the block of the thread; None if all blocks are recorded."""
        return None if self.thread < 0 else self.thread // threads

    def begin(self, frame: KernelFrame) -> None:
        """See `KernelObserver`."""
        super().begin(frame)
        self.time = frame.first << 32  # the same whether the blocks before it ran or not
        first = frame.first * frame.grid.threads
        self.lane = self.thread - first if first <= self.thread < first + frame.lanes else -1
        if self.lane >= 0:
            self.who = frame.who(self.lane)

    def numbers(self, lanes: Any) -> Any:
        """Lanes as threads of the grid."""
        return self.frame.first * self.frame.grid.threads + lanes

    def step_of(self, lane: int) -> ThreadStep | None:
        """The running step if the lane's thread is the followed one, else None."""
        return self._current if lane == self.lane else None

    # steps -------------------------------------------------------------------------------------------------------

    def enter(self, frame: Frame, step: Step) -> None:
        """Record the values that the thread reads, and those that it gets from other threads."""
        self.time += 1
        self._current, self._matrices = None, 0
        if self.lane < 0 or not self.active[self.lane]:
            return
        if len(self.steps) == MOST_STEPS:
            self._too_long(step, f"executes more than {MOST_STEPS:,} instructions")
        source = frame.program.source
        line, _ = source.position(step.node.offset)
        reads = [self._read(r) for r in step.sources]
        executed = True
        if step.guard >= 0:
            reads.append(self._read(ReadSlot(step.guard, 1)))
            executed = reads[-1].value == (0 if step.guard_negated else 1)
            if not executed:
                reads = [*(self._written(frame, w.slot) for w in step.destinations if w.slot >= 0), reads[-1]]
        text = _guard(frame, step) + source.statement(step.node.offset)
        self._current = ThreadStep(len(self.steps), self.time, step, line, text, tuple(reads), executed=executed)
        facts = step.facts
        if facts.exchanges == "operands" and not facts.product:
            self._current.warp = tuple(self._warp(r) for r in step.sources)
        if executed:
            self._products(step)
        self.steps.append(self._current)

    def _products(self, step: Step) -> None:
        """What a product, or a load from tensor memory, takes from elsewhere."""
        assert self._current is not None
        frame, lane = self.frame, self.lane
        if step.facts.product == "warp":
            self._current.takes.append(of_warp(frame, step, lane, self.time))
        elif step.facts.product == "warpgroup":
            self.count(step, 64 * step.detail.a.k + step.detail.b.rows * step.detail.b.k)
            self._current.takes.append(of_warpgroup(frame, self.origins, step, lane, self.time))
        elif step.kind in ("tcgen05_ld", "tcgen05_ld_red"):
            self._current.takes.append(self._cells_loaded(step))

    def _cells_loaded(self, step: Step) -> RegistersTaken:
        warp, memory = self.lane // WARP, self.frame.tensor.memory
        cells = reached(self.frame, step, np.array([warp]), np.arange(warp * WARP, (warp + 1) * WARP)).cells[0]
        taken = {}
        own = [cells[number, self.lane % WARP].reshape(1) for number in range(len(cells))]
        if step.kind == "tcgen05_ld_red":
            own.append(np.concatenate(own))  # the reduction takes all of them
        for some, writer in zip(own, step.destinations, strict=True):
            some = np.concatenate([some, some + 1]) if step.detail.packed else some
            made = self.origins.of(memory, some)
            parts = [made.taken(k, self.frame.tensor.place(int(c)), int(memory.words[c])) for k, c in enumerate(some)]
            if writer.slot >= 0:
                taken[self.frame.program.registers[writer.slot].name] = tuple(parts)
        return RegistersTaken(taken)

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """Record what the thread has written."""
        if executed and step.kind == "tcgen05_st":
            self._cells_stored(step)
        if self._current is None:
            return
        made = []
        for writer in step.destinations:
            for slot in (writer.slot, writer.upper):
                if slot >= 0:
                    made.append(self._written(frame, slot))
                    self._makers[slot] = self._current.number
        self._current.writes = tuple(made)
        self._current = None

    def _cells_stored(self, step: Step) -> None:
        """Record that each cell belongs to the thread whose register was stored there."""
        warps = np.flatnonzero(self.active.reshape(-1, WARP)[:, 0])
        lanes = (warps[:, None] * WARP + np.arange(WARP)).reshape(-1)
        cells = reached(self.frame, step, warps, lanes).cells  # warp, register, thread
        memory = self.frame.tensor.memory
        threads = np.broadcast_to(self.numbers(lanes).reshape(-1, 1, WARP), cells.shape)
        for behind in range(1 + step.detail.packed):
            self.origins.note(memory, cells + behind, threads, self.time)
        if self._current is not None:
            own = cells[warps.tolist().index(self.lane // WARP)][:, self.lane % WARP]
            places = np.concatenate([own + k for k in range(1 + step.detail.packed)])
            operands = np.tile(np.arange(1, len(own) + 1), 1 + step.detail.packed)
            taken = OperandTaken(TENSOR, places, operands, memory.words[places], self.thread, self.time)
            self._current.takes.append(taken)

    def count(self, step: Step, many: int) -> None:
        """Count `many` more bytes. Raises TooLong."""
        self._taken += many
        if self._taken > MOST_TAKEN:
            self._too_long(step, f"copies and multiplies more than {MOST_TAKEN:,} bytes and elements")

    def _too_long(self, step: Step, what: str) -> None:
        raise self.frame.program.source.error(TooLong, f"the thread {what}", step.node.offset)

    def _read(self, reader: ReadSlot) -> SeenOperand:
        frame = self.frame
        value, mask = frame.read(reader)
        if reader.slot < 0:
            number = None if mask is not None else int(np.broadcast_to(value, (frame.lanes,))[self.lane])
            return SeenOperand("", "", reader.width, number)
        register = frame.program.registers[reader.slot]
        pattern = _pattern(frame, value, mask, self.lane)
        return SeenOperand(register.name, register.type.name, reader.width, pattern, self._makers.get(reader.slot, -1))

    def _warp(self, reader: ReadSlot) -> tuple[int, ...]:
        value, _ = self.frame.read(reader)
        first = self.lane // WARP * WARP
        return tuple(np.broadcast_to(value, (self.frame.lanes,))[first : first + WARP].tolist())

    def _written(self, frame: Frame, slot: int) -> SeenOperand:
        register, value = frame.program.registers[slot], frame.values[slot]
        pattern = None if value is None else _pattern(frame, value, frame.undefined[slot], self.lane)
        return SeenOperand(register.name, register.type.name, register.type.width, pattern, self._makers.get(slot, -1))

    # memory ------------------------------------------------------------------------------------------------------

    def loads(self, access: Access, lanes: Array, place: Place) -> None:
        """See `KernelObserver`."""
        if self._current is None:
            return
        if self._current.step.kind == "ldmatrix":
            self._matrix_loaded(self._current, lanes, place)
        if self._current.step.kind in ("cp_async", "ldmatrix"):
            return  # a copy of this thread is recorded where it is issued
        if (offset := self._mine(lanes, place)) is not None:
            self._touched(access.size, place, offset)
            made = self.origins.of(place.region, np.arange(offset, offset + access.size))
            self._current.origins = tuple(made.stored(k) for k in range(access.size))

    def _matrix_loaded(self, current: ThreadStep, lanes: Array, place: Place) -> None:
        """Record that the thread gets four bytes of a matrix, whose row addresses come from lanes."""
        number, mine = self._matrices, lanes // WARP == self.lane // WARP
        self._matrices += 1  # the matrices of a step follow each other
        rows, place_of = place.offsets[mine], self.lane % WARP
        if current.step.bound.modifiers["trans"]:
            pair = place_of % 4 * 2
            places = (rows[pair : pair + 2, None] + place_of // 4 * 2 + np.arange(2)).reshape(-1)
        else:
            places = rows[place_of // 4] + place_of % 4 * 4 + np.arange(4)
        made = self.origins.of(place.region, places)
        data = place.region.bytes[places].tolist()
        taken = tuple(made.taken(k, "a byte of the matrix", int(v)) for k, v in enumerate(data))
        writer = current.step.destinations[number]
        if writer.slot >= 0:
            current.takes.append(RegistersTaken({self.frame.program.registers[writer.slot].name: taken}))

    def stores(self, step: Step, size: int, lanes: Array, place: Place) -> None:
        """See `KernelObserver`."""
        if self.lane < 0 and not isinstance(place.region, Buffer):
            return  # this block's own memory is not recorded
        if step.kind == "stmatrix":
            self._matrix_stored(step, lanes, place)
            return
        threads = self.numbers(lanes)
        for k in range(size):
            self.origins.note(place.region, place.offsets + k, threads, self.time)
        offset = self._mine(lanes, place)
        if offset is not None and self._current is not None:
            self._touched(size, place, offset)

    def _matrix_stored(self, step: Step, lanes: Array, place: Place) -> None:
        """Record a matrix whose row addresses come from lanes; each byte belongs to the thread that stored it."""
        self._matrices += 1
        row, byte = np.meshgrid(np.arange(len(lanes)), np.arange(16), indexing="ij")
        line, element = row % 8, byte // 2
        if step.bound.modifiers["trans"]:
            line, element = element, line
        holder = lanes[row] // WARP * WARP + line * 4 + element // 2
        places = place.offsets[:, None] + byte
        self.origins.note(place.region, places, self.numbers(holder), self.time)
        if self._current is not None:
            mine = places[holder == self.lane]
            name, first = name_of(place.region)
            number, values = np.full(len(mine), self._matrices), place.region.bytes[mine]
            self._current.takes.append(OperandTaken(name, mine - first, number, values, self.thread, self.time))

    def updates(self, step: Step, access: Access, lanes: Array, place: Place, element: int, old: list[int]) -> None:
        """See `KernelObserver`."""
        if self.lane < 0 and not isinstance(place.region, Buffer):
            return
        size, threads = access.width // 8, self.numbers(lanes)
        offsets = place.offsets + element * size
        own = np.flatnonzero(lanes == self.lane)
        if self._current is not None and len(own):
            at = int(own[0])
            name, first = name_of(place.region)
            before = np.flatnonzero(offsets[:at] == offsets[at])
            byte = (name, int(offsets[at]) - first)
            if len(before):
                stored: Stored | None = Stored(int(threads[before[-1]]), self.time, byte)
            else:
                stored = self.origins.last(place.region, np.arange(offsets[at], offsets[at] + size))
            slot = step.destinations[element].slot
            register = self.frame.program.registers[slot].name if slot >= 0 else ""
            held = Taken("what memory held", old[at], stored, byte)
            self._current.takes.append(OldTaken(register, *byte, size, held))
            self._touched(access.size, place, int(place.offsets[at]))
        for k in range(size):
            self.origins.note(place.region, offsets + k, threads, self.time)

    def copied(self, step: Step, lane: int, to: Any, places: Array, found: Any, sources: Array, values: Array) -> None:
        """Record that a lane issues a copy of bytes, or cells, from one region to places of another. sources: -1 for
        fillers.

        Bytes for shared memory belong to the lane when the copy completes (`Origins.expect`); others at once.
        """
        if (current := self.step_of(lane)) is not None:
            self.count(step, len(places))
            name, first = name_of(to)
            current.takes.append(CopyTaken(name, places - first, values, self.origins.of(found, sources)))

    def _mine(self, lanes: Array, place: Place) -> int | None:
        here = np.flatnonzero(lanes == self.lane)  # -1 is no lane
        return int(place.offsets[here[0]]) if len(here) else None

    def _touched(self, size: int, place: Place, offset: int) -> None:
        assert self._current is not None
        name, first = name_of(place.region)
        self._current.memory = (name, offset - first, size)
        self._current.data = place.region.bytes[offset : offset + size].tobytes()

    def copies_issued(self, copies: Flying) -> None:
        """See `KernelObserver`. The bytes belong to the threads that issued the copies, when they complete."""
        size, shared = copies.access.size, self.frame.shared
        places = copies.place.offsets[:, None] + np.arange(size)
        self.origins.expect(shared, places, self.numbers(copies.lanes)[:, None], self.time)
        own = np.flatnonzero(copies.lanes == self.lane)
        if not len(own):
            return
        step, (_, what) = copies.step, copies.step.detail
        copied = what.size
        if len(step.sources) > 2:
            size_or_predicate = self._value(step.sources[2], self.lane)
            ignored = step.sources[2].width == 1
            copied = (0 if size_or_predicate else what.size) if ignored else size_or_predicate
        source = self._bytes_at(self._value(step.sources[1], self.lane) + what.displacement, what.size)
        sources = np.full(what.size, -1) if source is None else np.where(np.arange(what.size) < copied, source[1], -1)
        region = shared if source is None else source[0]
        data = np.ascontiguousarray(np.stack(copies.values, 1)[int(own[0])]).view(np.uint8)
        self.copied(step, self.lane, shared, places[int(own[0])], region, sources, data)

    def landed(self, shared: Shared, places: Array) -> None:
        """See `KernelObserver`."""
        self.origins.arrive(shared, places.reshape(-1))

    def box_read(self, step: Step, tensor: TensorMap, lane: int, corner: list[int]) -> None:
        """See `KernelObserver`."""
        self._box = self._box_of(step, tensor, lane, corner) if self.step_of(lane) is not None else None

    def _box_of(self, step: Step, tensor: TensorMap, lane: int, corner: list[int]) -> tuple[Any, Array]:
        """The place in the tensor's buffer of each byte of a box; -1 if it lies outside."""
        address, inside, low, high = rows_of(tensor, corner)
        sources = np.full((len(address), tensor.box[0] * tensor.size), -1)
        if not inside.any():
            return self.frame.shared, sources.reshape(-1)
        buffer, where = self.frame.bulk.where(step, tensor, lane, address[inside], low, high)
        sources[np.flatnonzero(inside), low * tensor.size : high * tensor.size] = where
        return buffer, sources.reshape(-1)

    def bulk_issued(self, coming: Coming) -> None:
        """See `KernelObserver`. The bytes belong to the thread that issued the copy, when it completes."""
        frame, step, lane = self.frame, coming.step, coming.lane
        places = (coming.offsets[:, None] + np.arange(coming.size)).reshape(-1)
        self.origins.expect(frame.shared, places, self.numbers(lane), self.time)
        current = self.step_of(lane)
        if current is None or step.facts.proxy != "async":  # registers are the source
            return
        region, sources = self._box or (frame.shared, np.full(len(places), -1))
        if coming.source is not None:
            sources = (coming.source[:, None] + np.arange(16)).reshape(-1)
        elif step.kind == "bulk_load":
            first = self._value(step.sources[1], lane) + step.detail.what
            region, sources = self._bytes_at(first, len(places)) or (region, sources)
        data = np.ascontiguousarray(coming.data).reshape(-1).view(np.uint8)
        self.copied(step, lane, frame.shared, places, region, sources, data.copy())
        if coming.update is not None:
            taken = current.takes[-1]
            assert isinstance(taken, CopyTaken)
            self._reduced[id(coming)] = taken

    def bulk_lands(self, coming: Coming) -> None:
        """See `KernelObserver`."""
        if (taken := self._reduced.pop(id(coming), None)) is not None:
            shared = self.frame.shared
            places = (coming.offsets[:, None] + np.arange(coming.size)).reshape(-1)
            taken.old, taken.before = self.origins.of(shared, places), shared.bytes[places]

    def box_leaves(self, step: Step, tensor: TensorMap, lane: int, corner: list[int], start: int) -> None:
        """See `KernelObserver`."""
        chunks = self.frame.bulk.chunks_at(step, tensor, lane, start)
        from_shared = (chunks[:, None] + np.arange(16)).reshape(-1)
        buffer, to = self._box_of(step, tensor, lane, corner)
        inside = to >= 0
        reduces = step.bound is not None and step.bound.modifiers.get("op") is not None
        self._leaves(step, lane, (buffer, to[inside]), from_shared[inside], reduces)

    def bytes_leave(self, step: Step, lane: int, offsets: Array) -> None:
        """See `KernelObserver`. Boxes are recorded by `box_leaves`."""
        if step.kind != "bulk_store":
            return
        size = 16 * len(offsets)
        to = self._bytes_at(self._value(step.sources[0], lane) + step.detail.to, size)
        if to is None:
            return  # the run will stop at this step
        mask = self._value(step.sources[3], lane) if step.detail.masked else 0xFFFF
        chosen = np.tile((mask >> np.arange(16)) & 1, size // 16) != 0
        from_shared = (offsets[:, None] + np.arange(16)).reshape(-1)
        reduces = step.detail.update is not None
        self._leaves(step, lane, (to[0], to[1][chosen]), from_shared[chosen], reduces)

    def _leaves(self, step: Step, lane: int, to: tuple[Any, Array], from_shared: Array, reduces: bool = False) -> None:
        """Record a bulk copy from shared memory to places of a buffer, before it is made."""
        (buffer, places), shared = to, self.frame.shared
        self.copied(step, lane, buffer, places, shared, from_shared, shared.bytes[from_shared])
        if reduces and (current := self.step_of(lane)) is not None:
            taken = current.takes[-1]
            assert isinstance(taken, CopyTaken)
            taken.old, taken.before = self.origins.of(buffer, places), buffer.bytes[places]
        self.origins.note(buffer, places, self.numbers(lane), self.time)

    def _value(self, reader: ReadSlot, lane: int) -> int:
        """The value of an operand in a lane."""
        value, _ = self.frame.read(reader)
        return int(np.broadcast_to(value, (self.frame.lanes,))[lane])

    def _bytes_at(self, address: int, size: int) -> tuple[Buffer, Array] | None:
        """The places of some bytes in global memory; None if no buffer contains them."""
        buffer = self.frame.grid.memory.find(address)
        return None if buffer is None else (buffer, address - buffer.base + np.arange(size))

    # tensor cores ------------------------------------------------------------------------------------------------

    def tensor_issued(self, step: Step, lane: int, written: Array, read: Array) -> None:
        """See `KernelObserver`. The cells belong to the thread that issues the work, which is done later."""
        memory, current = self.frame.tensor.memory, self.step_of(lane)
        self.product = None
        if current is not None and step.kind == "tcgen05_mma":
            self.product = of_tensor_cores(self.frame, self.origins, step, lane)
            if self.product is not None:
                self.count(step, len(written) + sum(m.rows * m.k for m in self.product.operands))
                current.takes.append(self.product.taken)
        elif current is not None and step.kind == "tcgen05_shift":
            current.takes.append(CopyTaken(TENSOR, written, memory.words[read], self.origins.of(memory, read)))
        self.origins.note(memory, written, self.numbers(lane), self.time)

    def tensor_reads(self, step: Step, lane: int, written: Array, offsets: Array) -> None:
        """See `KernelObserver`."""
        current, shared = self.step_of(lane), self.frame.shared
        if current is None:
            return
        if step.kind == "tcgen05_cp":
            self.count(step, len(written))
            copies = len(step.detail.lanes)
            cells = written.reshape(copies, -1)
            # A word comes from four bytes of its chunk, or, where elements are widened, from somewhere in the chunk.
            word = np.arange(cells.shape[1])
            sources = np.tile(offsets[word // 4] + (0 if step.detail.packed else word % 4 * 4), copies)
            values = np.tile(shared.bytes.view(np.uint32)[sources[: len(word)] // 4], copies)
            current.takes.append(CopyTaken(TENSOR, cells.reshape(-1), values, self.origins.of(shared, sources)))
        elif self.product is not None and self.product.operands:
            self.product.matrix(offsets)


def _pattern(frame: Frame, value: Array, mask: Any, lane: int) -> int | None:
    if mask is not None and bool(np.broadcast_to(mask, (frame.lanes,))[lane]):
        return None
    return int(np.broadcast_to(value, (frame.lanes,))[lane])


def _guard(frame: Frame, step: Step) -> str:
    if step.guard < 0:
        return ""
    return f"@{'!' if step.guard_negated else ''}{frame.program.registers[step.guard].name} "


def observed(grid: KernelGrid, first: int, blocks: int, observer: KernelObserver) -> KernelScheduler:
    """The scheduler of some blocks whose steps, memory and asynchronous work report to an observer."""
    frame = frame_of(grid, first, blocks)
    scheduler = KernelScheduler(grid.program, frame)
    frame.observer = scheduler.observer = observer
    observer.begin(frame)
    other = scheduler.watch

    def watch(step: Step, active: Array) -> None:
        observer.active = active
        if other is not None:
            other(step, active)

    scheduler.watch = watch
    return scheduler
