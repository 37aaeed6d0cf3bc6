"""Follow one thread of a kernel instruction by instruction: what each reads and writes, and where its values come from.

The kernel runs as usual, one block after the other; recording changes no result. For each byte of memory the record
keeps which thread stored it last, and when, so that a loaded value can be traced to its store.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.ptx.binding.program import ReadSlot, Step
from harness.ptx.errors import ExecutionError, PtxError
from harness.ptx.kernel.clusters import ClusterFrame, in_clusters
from harness.ptx.kernel.frame import KernelFrame
from harness.ptx.kernel.grid import KernelGrid
from harness.ptx.kernel.kernel import Kernel
from harness.ptx.kernel.memory import Access, Buffer, Place
from harness.ptx.kernel.schedule import KernelScheduler
from harness.ptx.limits import KERNEL_SECONDS, Deadline
from harness.ptx.machine.frame import Frame
from harness.ptx.numeric.vectorise import Array

WARP = 32
MOST_STEPS = 200_000
"""The most instructions of one thread that are recorded."""
EXCHANGES = frozenset({"shfl", "vote", "ballot", "match", "redux", "ldmatrix", "movmatrix", "mma"})
"""Kinds of step that give a thread values of other threads of its warp."""


_KINDS = {"Shared": "shared memory", "LocalMemory": "local memory"}


class TooLong(ExecutionError):
    """A thread that executes more than `MOST_STEPS` instructions."""


@dataclass(frozen=True, slots=True)
class SeenOperand:
    """The value of a register or constant at one instruction.

    name: as written; "" for a constant. value: None if any bits are undefined. maker: the number of the thread's
    instruction that wrote it last; -1 for none.
    """

    name: str
    kind: str
    width: int
    value: int | None
    maker: int = -1


@dataclass(frozen=True, slots=True)
class Stored:
    """The last store to a byte: the thread's number in the grid, and the time of the step."""

    thread: int
    time: int


@dataclass(slots=True)
class ThreadStep:
    """One instruction of the thread.

    time: the time of the step in the whole run. reads: the sources, the guard last; if the guard was false, the
    previous values of the destinations. executed: whether the guard was true. memory: the name of the memory that it
    accessed, with offset and size. data: the bytes that it loaded or stored. stored: the last store to the loaded
    bytes; None if no thread stored them. warp: for an exchange, the values of each operand in the threads of the warp.
    rows: for `ldmatrix`, the data of its rows and the last stores to them.
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
    stored: Stored | None = None
    warp: tuple[tuple[int, ...], ...] = ()
    rows: tuple[tuple[bytes, Stored | None], ...] = ()

    @property
    def loads(self) -> bool:
        """Whether it reads memory into registers."""
        return self.memory is not None and self.step.kind in ("ld", "ldu", "ldmatrix")

    @property
    def stores(self) -> bool:
        """Whether it writes memory."""
        return self.memory is not None and not self.loads

    @property
    def opcode(self) -> str:
        """The first word of the instruction."""
        return self.step.node.opcode

    @property
    def branches(self) -> bool:
        """Whether it is a predicated branch."""
        return self.step.kind in ("branch", "exit") and self.step.guard >= 0


@dataclass
class ThreadTrace:
    """The instructions of one thread. thread: its number in the grid. who: the same in words. fault: the error that
    ended the run early."""

    thread: int
    who: str = ""
    steps: list[ThreadStep] = field(default_factory=list)
    fault: PtxError | None = None

    def at(self, time: int) -> ThreadStep | None:
        """The thread's instruction at a time."""
        return next((s for s in self.steps if s.time == time), None)


@dataclass(frozen=True)
class Launched:
    """A launch that can be repeated. `parameters` hold buffers that no run has changed, so each run needs new ones."""

    kernel: Kernel
    parameters: Sequence[Any]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0


def executed_steps(launch: Launched, limit: float | None = KERNEL_SECONDS) -> set[int]:
    """The numbers of the steps that any thread executed with a true guard (branches and exits: any guard).

    Raises PtxError.
    """
    seen = _Seen()
    _run(launch, seen, limit)
    numbers = {id(s): n for n, s in enumerate(launch.kernel.program.steps)}
    return {numbers[i] for i in seen.steps}


def storing_thread(
    launch: Launched, buffer: Buffer, first: int, size: int, limit: float | None = KERNEL_SECONDS
) -> Stored | None:
    """The last store to some bytes of a buffer, from offset `first` on; None if no thread stored them."""
    notes = _Notes(-1)
    with suppress(PtxError):  # stores before the error count
        _run(launch, notes, limit)
    place = buffer.residue + first
    found = [s for k in range(place, place + size) if (s := notes.stored(buffer, k)) is not None]
    return max(found, key=lambda s: s.time, default=None)


def followed(launch: Launched, thread: int, limit: float | None = KERNEL_SECONDS) -> ThreadTrace:
    """The instructions of a thread of the grid, up to its end or up to an error that stops the run."""
    notes = _Notes(thread)
    trace = ThreadTrace(thread, steps=notes.steps)
    try:
        _run(launch, notes, limit)
    except TooLong:
        raise
    except PtxError as error:
        trace.fault = error
    trace.who = notes.who
    return trace


def _run(launch: Launched, notes: _Watching, limit: float | None) -> None:
    """Run all blocks, one cluster after the other; of blocks without clusters only those that `notes` asks for."""
    cluster, deadline = launch.kernel.cluster, Deadline(limit)
    grid = KernelGrid(
        launch.kernel, launch.parameters, launch.grid, launch.block, launch.shared, True, deadline, cluster
    )
    size, total = grid.cluster_size, math.prod(launch.grid)
    alone = notes.block(grid.threads) if not grid.synchronises else None
    for first in range(0, total, size) if alone is None else [alone // size * size]:
        frame = (_NotedClusterFrame if in_clusters(grid) else _NotedFrame)(grid, first, size)
        _NotedScheduler(grid.program, frame, notes).run()


class _Watching:
    """Observes every step of every block; `begin` announces the block, `active` holds the lanes of the step."""

    frame: _NotedFrame
    active: Array

    def block(self, threads: int) -> int | None:
        """The only block that is recorded; None for all."""
        return None

    def begin(self, frame: _NotedFrame) -> None:
        """A block begins."""
        self.frame = frame

    def enter(self, frame: Frame, step: Step) -> None:
        """Before a step."""

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        """After it."""

    def loads(self, access: Access, lanes: Array, place: Place) -> None:
        """Lanes load."""

    def stores(self, size: int, lanes: Array, place: Place) -> None:
        """Lanes store."""


class _Seen(_Watching):
    def __init__(self) -> None:
        self.steps: set[int] = set()

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
        if executed or step.kind in ("branch", "exit"):  # for these, `executed` says whether lanes jumped
            self.steps.add(id(step))


class _Notes(_Watching):
    """The steps of one thread, and the last store to each byte. thread: -1 records only the stores."""

    def __init__(self, thread: int) -> None:
        self.thread, self.lane = thread, -1
        self.steps: list[ThreadStep] = []
        self.who = ""
        self.time = 0
        self._makers: dict[int, int] = {}
        self._current: ThreadStep | None = None
        self._writers: dict[int, tuple[Any, Array, Array]] = {}

    def block(self, threads: int) -> int | None:
        return None if self.thread < 0 else self.thread // threads

    def begin(self, frame: _NotedFrame) -> None:
        super().begin(frame)
        first = frame.first * frame.grid.threads
        self.lane = self.thread - first if first <= self.thread < first + frame.lanes else -1
        if self.lane >= 0:
            self.who = frame.who(self.lane)

    # steps -------------------------------------------------------------------------------------------------------

    def enter(self, frame: Frame, step: Step) -> None:
        self.time += 1
        self._current = None
        if self.lane < 0 or not self.active[self.lane]:
            return
        if len(self.steps) == MOST_STEPS:
            source = frame.program.source
            raise source.error(TooLong, f"the thread executes more than {MOST_STEPS:,} instructions", step.node.offset)
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
        self.steps.append(self._current)

    def leave(self, frame: Frame, step: Step, executed: bool) -> None:
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

    def _read(self, reader: ReadSlot) -> SeenOperand:
        frame = self.frame
        value, mask = frame.read(reader)
        if reader.slot < 0:
            return SeenOperand("", "", reader.width, None if mask is not None else int(value[self.lane]))
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
        if self._current is None:
            return
        if self._current.step.kind == "ldmatrix":
            mine = np.flatnonzero(lanes // WARP == self.lane // WARP)
            self._current.rows += tuple(self._row(place, int(place.offsets[k]), access.size) for k in mine)
        if (offset := self._mine(lanes, place)) is not None:
            self._touched(access.size, place, offset)
            self._current.stored = self._row(place, offset, access.size)[1]

    def _row(self, place: Place, offset: int, size: int) -> tuple[bytes, Stored | None]:
        """Bytes of memory, and the newest store to them."""
        found = [s for k in range(offset, offset + size) if (s := self.stored(place.region, k))]
        return place.region.bytes[offset : offset + size].tobytes(), max(found, key=lambda s: s.time, default=None)

    def stores(self, size: int, lanes: Array, place: Place) -> None:
        if self.lane < 0 and not isinstance(place.region, Buffer):
            return  # of this block only stores to buffers are recorded
        number, when = self._owners(place.region)
        threads = self.frame.first * self.frame.grid.threads + lanes
        for k in range(size):
            number[place.offsets + k] = threads
            when[place.offsets + k] = self.time
        offset = self._mine(lanes, place)
        if offset is not None and self._current is not None:
            self._touched(size, place, offset)

    def _mine(self, lanes: Array, place: Place) -> int | None:
        here = np.flatnonzero(lanes == self.lane)  # -1 matches no lane
        return int(place.offsets[here[0]]) if len(here) else None

    def _touched(self, size: int, place: Place, offset: int) -> None:
        assert self._current is not None
        region = place.region
        name, first = _KINDS.get(type(region).__name__, ""), 0
        if isinstance(region, Buffer):
            name, first = region.name or "a buffer", region.residue
        self._current.memory = (name, offset - first, size)
        self._current.data = region.bytes[offset : offset + size].tobytes()

    def stored(self, region: Any, offset: int) -> Stored | None:
        """The last store to a byte of a region."""
        if id(region) not in self._writers:
            return None
        _, number, when = self._writers[id(region)]
        return Stored(int(number[offset]), int(when[offset])) if number[offset] >= 0 else None

    def _owners(self, region: Any) -> tuple[Array, Array]:
        if id(region) not in self._writers:  # keeping the region alive prevents another from getting its id
            size = len(region.bytes)
            self._writers[id(region)] = (region, np.full(size, -1, np.int64), np.zeros(size, np.int64))
        _, number, when = self._writers[id(region)]
        return number, when


class _NotedFrame(KernelFrame):
    """A frame that reports its accesses to `notes`."""

    notes: _Watching

    def _load(self, step: Step, access: Access, lanes: Array, place: Place) -> tuple[list[Array], list[Array | None]]:
        found = super()._load(step, access, lanes, place)
        self.notes.loads(access, lanes, place)
        return found

    def _store(
        self, step: Step, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None]
    ) -> None:
        super()._store(step, access, lanes, place, values, masks)
        self.notes.stores(access.size, lanes, place)

    def atomic(
        self, step: Step, access: Access, lanes: Array, places: list[Place], *rest: Any, **named: Any
    ) -> list[int]:
        old = super().atomic(step, access, lanes, places, *rest, **named)
        for place in places:
            self.notes.stores(access.size, lanes if place.part is None else lanes[place.part], place)
        return old

    def land(self, access: Access, lanes: Array, place: Place, values: list[Array], masks: list[Array | None]) -> None:
        super().land(access, lanes, place, values, masks)
        self.notes.stores(access.size, lanes, place)


class _NotedClusterFrame(_NotedFrame, ClusterFrame):
    """The same for a cluster of blocks."""


class _NotedScheduler(KernelScheduler):
    """A scheduler that tells its observer which lanes run a step."""

    def __init__(self, program: Any, frame: _NotedFrame, notes: _Watching) -> None:
        super().__init__(program, frame)
        frame.notes = self.observer = notes
        notes.begin(frame)
        promised = self.watch

        def watch(step: Step, active: Array) -> None:
            notes.active = active
            if promised is not None:
                promised(step, active)

        self.watch = watch


def _pattern(frame: Frame, value: Array, mask: Any, lane: int) -> int | None:
    if mask is not None and bool(np.broadcast_to(mask, (frame.lanes,))[lane]):
        return None
    return int(np.broadcast_to(value, (frame.lanes,))[lane])


def _guard(frame: Frame, step: Step) -> str:
    if step.guard < 0:
        return ""
    return f"@{'!' if step.guard_negated else ''}{frame.program.registers[step.guard].name} "
