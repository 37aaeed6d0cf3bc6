"""Observers of a running kernel: which instructions were executed, and what one thread did."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.ptx.binding.program import ReadSlot, Step
from ptxdiff.ptx.kernel.copyorigins import CopyTaken, OldTaken, OperandTaken, RegistersTaken
from ptxdiff.ptx.kernel.frame import KernelFrame
from ptxdiff.ptx.kernel.memory import Access, Buffer, Place
from ptxdiff.ptx.kernel.origins import TENSOR, Origins, Stored, Taken, name_of
from ptxdiff.ptx.kernel.productorigins import WARP, NotedProduct, of_tensor_cores, of_warp, of_warpgroup
from ptxdiff.ptx.kernel.tensorloads import cells_of
from ptxdiff.ptx.kernel.traced import SeenOperand, ThreadStep, TooLong
from ptxdiff.ptx.machine.frame import Frame
from ptxdiff.ptx.numeric.vectorise import Array

MOST_STEPS = 200_000
"""The most instructions of one thread that are recorded."""
MOST_TAKEN = 1 << 24
"""The most bytes and elements whose origins are recorded for one thread; each takes about 30 bytes."""
EXCHANGES = frozenset({"shfl", "vote", "ballot", "match", "redux", "ldmatrix", "movmatrix"})
"""Kinds of step that give a thread values of other threads of its warp."""
PRODUCTS = frozenset({"mma", "mma_sp", "mma_scaled"})


class Watching:
    """Observes every step of every block; `begin` announces the block, `active` holds the lanes of the step."""

    frame: KernelFrame
    active: Array

    def block(self, threads: int) -> int | None:
        """The only block that is recorded; None for all."""
        return None

    def begin(self, frame: KernelFrame) -> None:
        """A block begins."""
        self.frame = frame

    def enter(self, frame: Frame, step: Step) -> None:
        """Before a step."""

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """After it."""

    def loads(self, access: Access, lanes: Array, place: Place) -> None:
        """Lanes load."""

    def stores(self, step: Step, size: int, lanes: Array, place: Place) -> None:
        """Lanes store."""


class ExecutedSteps(Watching):
    """The steps that any thread executed."""

    def __init__(self) -> None:
        self.steps: set[int] = set()

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """See `Watching`."""
        if executed or step.kind in ("branch", "exit"):  # for these, `executed` says whether lanes jumped
            self.steps.add(id(step))


class Notes(Watching):
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

    def block(self, threads: int) -> int | None:
        """See `Watching`: the block of the thread; None if all blocks are recorded."""
        return None if self.thread < 0 else self.thread // threads

    def begin(self, frame: KernelFrame) -> None:
        """See `Watching`."""
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
        if step.kind in EXCHANGES:
            self._current.warp = tuple(self._warp(r) for r in step.sources)
        if executed:
            self._products(step)
        self.steps.append(self._current)

    def _products(self, step: Step) -> None:
        """What a product, or a load from tensor memory, takes from elsewhere."""
        assert self._current is not None
        frame, lane = self.frame, self.lane
        if step.kind in PRODUCTS:
            self._current.takes.append(of_warp(frame, step, lane, self.time))
        elif step.kind == "wgmma":
            self.count(step, 64 * step.detail.a.k + step.detail.b.rows * step.detail.b.k)
            self._current.takes.append(of_warpgroup(frame, self.origins, step, lane, self.time))
        elif step.kind in ("tcgen05_ld", "tcgen05_ld_red"):
            self._current.takes.append(self._cells_loaded(step))

    def _cells_loaded(self, step: Step) -> RegistersTaken:
        warp, memory = self.lane // WARP, self.frame.tensor.memory
        cells = cells_of(self.frame, step, np.array([warp]), np.arange(warp * WARP, (warp + 1) * WARP))[0]
        found = {}
        own = [cells[number, self.lane % WARP].reshape(1) for number in range(len(cells))]
        if step.kind == "tcgen05_ld_red":
            own.append(np.concatenate(own))  # the reduction takes all of them
        for some, writer in zip(own, step.destinations, strict=True):
            some = np.concatenate([some, some + 1]) if step.detail.packed else some
            made = self.origins.of(memory, some)
            parts = [made.taken(k, self.frame.tensor.place(int(c)), int(memory.words[c])) for k, c in enumerate(some)]
            if writer.slot >= 0:
                found[self.frame.program.registers[writer.slot].name] = tuple(parts)
        return RegistersTaken(found)

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
        cells = cells_of(self.frame, step, warps, lanes)  # warp, register, thread
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
        """See `Watching`."""
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
        """See `Watching`."""
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
        """Record that lanes update memory one after the other. old: the value that each found."""
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
            found = Taken("what memory held", old[at], stored, byte)
            self._current.takes.append(OldTaken(register, *byte, size, found))
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

    # tensor cores ------------------------------------------------------------------------------------------------

    def issued(self, step: Step, lane: int, written: Array, read: Array) -> None:
        """Record that a lane issues work to the tensor cores, which is done later."""
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

    def read_shared(self, step: Step, lane: int, written: Array, offsets: Array) -> None:
        """Record that tensor cores, working for a lane, read chunks of shared memory."""
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
