"""Asynchronous operations of tensor cores (tcgen05.mma, cp, shift, ld, st): those under way, and how they complete."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel import in_flight
from ptxdiff.emulator.kernel.in_flight import MemoryFrame, barrier_of, count_arrival, line_of
from ptxdiff.emulator.kernel.tcgen05 import cell_access
from ptxdiff.emulator.kernel.tcgen05.cell_access import Rows
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS, CORES, SEVERAL, TensorMemory
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.extras import installed

if TYPE_CHECKING:
    from ptxdiff.emulator.kernel.tcgen05.memory import TensorMemory


D, COPY, SMALL_COPY, SHIFT, INPUT, SHIFTED = range(1, 7)
"""Roles: a product writes d; a copy writes, or one of 4 rows; a shift writes; a product, or a shift, reads."""
WRITES = (D, COPY, SMALL_COPY, SHIFT)
Accumulators = dict[tuple[int, ...], int]
"""Numbers of accumulators, by address and shape."""

ORDERED = {
    D: {D, INPUT},
    COPY: {INPUT},
    SMALL_COPY: {INPUT, SHIFT, SHIFTED},
    SHIFT: {INPUT},
    INPUT: {COPY, SMALL_COPY, SHIFT, INPUT, SHIFTED},
    SHIFTED: {INPUT, SHIFTED},
}
"""For each role, after which roles it is ordered; D after D only with the same accumulator."""
_AFTER = np.array([[last in ORDERED.get(role, ()) for last in range(7)] for role in range(7)])
_AFTER_FLAT = _AFTER.astype(np.uint8).reshape(-1)


def roles_of(step: Step) -> tuple[int, int]:
    """The roles of the cells that an operation writes and reads."""
    if step.kind == "tcgen05_mma":
        return D, INPUT
    if step.kind == "tcgen05_shift":
        return SHIFT, SHIFTED
    return (SMALL_COPY if step.bound.modifiers.get("shape") == "4x256b" else COPY), INPUT


def unordered(memory: TensorMemory, cells: Array, role: int, accumulator: int) -> Array:
    """Which cells an operation accesses although an earlier one, under way, may access them later.

    role: what the operation does with the cells. accumulator: the number of its accumulator.
    """
    pending = memory.busy[cells] > 0
    if role in WRITES:
        pending |= memory.being_read[cells] > 0
    if not pending.any():
        return pending
    last = memory.role[cells]
    good = _AFTER[role][last]
    if role == D:
        good &= (last != D) | (memory.accumulator[cells] == accumulator)
    return np.asarray(pending & ~good)


NONE = np.zeros(0, np.int64)
_NO_TABLE = np.zeros((0, 0), np.int32)


@dataclass(eq=False)
class Work:
    """An operation under way: its thread, the cells that it writes and reads, and the offsets of the chunks of shared
    memory that it reads."""

    step: Step
    lane: int
    written: Array
    read: Array
    offsets: list[Array] = field(default_factory=list)
    barrier: int | None = None


@dataclass
class Committed:
    """A commit before its arrival at its mbarrier, and what its thread released with it."""

    step: Step
    lane: int
    barrier: int
    released: Array


class TensorWork:
    """The operations of a frame's tensor cores. `fences`: the program has fences, so missing ones are errors."""

    def __init__(self, frame: MemoryFrame, blocks: int) -> None:
        self.frame = frame
        kinds = {s.kind for s in frame.program.steps}
        self.used = any(s.facts.reaches == "pair" for s in frame.program.steps)
        self.fences = not kinds.isdisjoint({"tcgen05_before", "tcgen05_after"})
        self.memory = TensorMemory(blocks if self.used else 0)
        self.flying: list[Work] = []
        self.commits: list[Committed] = []
        self.after = np.full(frame.lanes if self.fences else 0, -1, np.int64)
        self.touched: dict[int, list[Array]] = {}
        self.accumulators: dict[tuple[object, ...], object] = {}
        self.reached: dict[tuple[object, ...], Any] = {}
        """What the last loads and stores reached (`ptxdiff.emulator.kernel.tcgen05.loads`)."""
        self.numbered: Accumulators = {}
        self._last_rows: tuple[list[Array], Rows] = [], Rows(NONE, False)
        self.agents: dict[int, int] = {}
        """The members that stand for operations of each thread of a team, by its number."""
        self.collectors: dict[tuple[int, str], tuple[str, Array, int]] = {}
        self.fast = frame.grid.cluster_size == 1 and frame.order.team == frame.grid.threads and installed("numba")
        """Whether accesses are checked and recorded in compiled code (`cell_access`)."""
        if self.fences or not self.fast:  # fences are recorded by cell, and so are accesses without compiled code
            self.memory.split[:] = 1

    # words -----------------------------------------------------------------------------------------------

    def place(self, number: int) -> str:
        """A description of a cell; in a cluster with its block."""
        found = f"lane {number % CELLS // COLUMNS}, column {number % COLUMNS} of tensor memory"
        if self.frame.grid.cluster_size > 1:
            found += f" of block {self.frame.grid.coordinates(self.frame.first + number // CELLS)}"
        return found

    def line(self, step: Step) -> int:
        """The line of a step."""
        return line_of(self.frame, step)

    def _missing(self, one: Work) -> str:
        if one.barrier is None:
            return ": tcgen05.commit, and a wait for its mbarrier, must come first"
        at = one.barrier % self.frame.shared.size
        return f": a wait for the mbarrier at offset {at}, to which it is committed, must come first"

    def _fault(self, step: Step, text: str) -> MemoryFault:
        return self.frame.fault(MemoryFault, step, text)

    # checks ----------------------------------------------------------------------------------------------

    def refuse(self, step: Step, lane: int, cells: Array, verb: str, *, writes: bool, cores: bool) -> None:
        """Raise MemoryFault for an invalid access to cells. cores: the tensor cores access them for the lane's
        thread."""
        if self.fast and not self.suspect(np.array([lane]), Rows.of(cells[None]), writes=writes, cores=cores):
            return
        self.memory.spread_out(cells)
        self._refuse_free(step, lane, cells, verb)
        self._refuse_under_way(step, lane, cells, verb, writes, cores)
        if self.frame.grid.races:
            self._refuse_races(step, lane, cells, verb, writes, cores)

    def suspect(
        self, lanes: Array, cells: Rows, *, writes: bool, cores: bool, role: int = 0, accumulator: int = 0
    ) -> bool:  # fmt: skip
        """Whether accesses may be wrong: `refuse` and, for a role, `_refuse_unordered` then decide.

        cells: a row for each lane. The lanes access different cells, or each has its own call.
        """
        if not self.fast:
            return True
        frame, order, memory = self.frame, self.frame.order, self.memory
        who = frame.thread[lanes].astype(np.int64) // 32
        mine = CORES + order.members(lanes) if cores else np.full(len(lanes), -1)
        after = self.after[lanes] if self.fences else np.zeros(len(lanes), np.int64)
        answer = np.zeros(1, np.uint8)
        cell_access.suspect(
            cells.first, cells.whole, mine, who, mine if cores else np.zeros(len(lanes), np.int64),
            np.zeros(len(lanes), np.int64) if cores else who + 1, order.block_time[lanes], order.vector[lanes], after,
            order.vectors, self._agents_by_member(), _AFTER_FLAT, CORES, writes, frame.grid.races, self.fences, role,
            accumulator, memory.open.view(np.uint8).reshape(-1), *memory.records, answer,
        )  # fmt: skip
        return bool(answer[0])

    def _agents_by_member(self) -> Array:
        """For each thread of a block, the member that stands for its operations; -1: none."""
        found = np.full(self.frame.order.team, -1, np.int64)
        for member, agent in self.agents.items():
            found[member] = agent
        return found

    def note(
        self, kind: int, cells: Rows, who: Array, since: Array | None = None, role: int = 0, accumulator: int = 0,
        known: tuple[Array, Array, Array] | None = None,
    ) -> None:  # fmt: skip
        """Record accesses of a kind of `cell_access`, a row of cells for each accessor."""
        several, warps, finished = known or (NONE, _NO_TABLE, _NO_TABLE)
        cell_access.note(
            kind, cells.first, cells.whole, who, np.zeros(len(who), np.int64) if since is None else since,
            self.frame.order.clock, role, accumulator, self.fences, several, warps, finished, CORES,
            *self.memory.records,
        )  # fmt: skip

    def _known(self, lanes: Array) -> tuple[Array, Array, Array]:
        """What the tensor cores of lanes know: the time of several, of each warp, and of the operations of each
        thread."""
        order, count = self.frame.order, np.arange(len(lanes))
        times = order.vectors[order.vector[lanes]]
        own = times[:, : order.team]  # of a block, see `fast`
        np.maximum(own, order.block_time[lanes][:, None], out=own)
        warps = own.reshape(len(lanes), -1, 32).max(axis=2)
        warp = order.members(lanes) // 32
        warps[count, warp] = np.maximum(warps[count, warp], order.warp_time[lanes])
        finished = np.zeros((len(lanes), order.team), np.int32)
        for member, agent in self.agents.items():
            finished[:, member] = times[:, agent]
        return warps.max(axis=1).astype(np.int64), warps, finished

    def _refuse_free(self, step: Step, lane: int, cells: Array, verb: str) -> None:
        memory, frame = self.memory, self.frame
        bad = ~memory.open[cells // CELLS, cells % COLUMNS]
        if bad.any():
            number = int(cells[np.flatnonzero(bad)[0]])
            freed = memory.freed[number // CELLS].get(number % COLUMNS)
            why = f"freed by the tcgen05.dealloc in line {self.line(freed)}" if freed else "held by no tcgen05.alloc"
            raise self._fault(step, f"{frame.who(lane)} {verb} {self.place(number)}, which is {why}")

    def _refuse_under_way(self, step: Step, lane: int, cells: Array, verb: str, writes: bool, cores: bool) -> None:
        memory = self.memory
        mine = self._cores(lane) if cores else -1
        # Usually nothing is under way, which saves the look-up for each cell.
        bad = memory.busy[cells] > 0
        if bad.any():
            bad &= memory.writer[cells] != mine
        if writes and (is_read := memory.being_read[cells] > 0).any():
            bad |= is_read & (memory.reader[cells] != mine)
        if bad.any():
            self._name_work(step, lane, int(cells[np.flatnonzero(bad)[0]]), verb)
        warp = 0 if cores else int(self.frame.thread[lane]) // 32 + 1
        if (stored := memory.storing[cells]).any():
            self._refuse_waiting(step, lane, cells, verb, (stored != 0) & ~((stored == warp) & writes), "st")
        if writes:
            self._refuse_waiting(step, lane, cells, verb, memory.loading[cells] > 0, "ld")

    def _refuse_waiting(self, step: Step, lane: int, cells: Array, verb: str, bad: Array, name: str) -> None:
        if bad.any():
            at = int(cells[np.flatnonzero(bad)[0]])
            text = f"{self.frame.who(lane)} {verb} {self.place(at)}, of which a tcgen05.{name} is under way"
            raise self._fault(step, f"{text}: tcgen05.wait::{name} must come first")

    def _name_work(self, step: Step, lane: int, number: int, verb: str) -> None:
        for one in self.flying:
            does = "writes" if (one.written == number).any() else "reads" if (one.read == number).any() else ""
            if does:
                text = f"{self.frame.who(lane)} {verb} {self.place(number)}, which the {one.step.bound.spelling} in "
                text += f"line {self.line(one.step)} still {does}{self._missing(one)}"
                raise self._fault(step, text)

    def _refuse_races(self, step: Step, lane: int, cells: Array, verb: str, writes: bool, cores: bool) -> None:
        memory, frame = self.memory, self.frame
        who: Array | int = int(frame.thread[lane]) // 32
        also = self._cores(lane) if cores else 0
        if cores and frame.grid.cluster_size > 1:  # a warp's number means another warp in another block
            who = np.where(cells // CELLS == frame.block[lane], who, CORES - 1)
        since = self._since(lane, cells, memory.writer, cores)
        checks = [("wrote", memory.written_by_others(cells, who, since, also), memory.written, memory.writer)]
        if writes:
            since = self._since(lane, cells, memory.reader, cores)
            checks.append(("read", memory.read_by_others(cells, who, since, also), memory.read, memory.reader))
        for did, bad, when, by in checks:
            if bad.any():
                number = int(cells[np.flatnonzero(bad)[0]])
                text = (
                    f"race: {frame.who(lane)} {verb} {self.place(number)}, which {self._other(int(by[number]))} {did}"
                )
                raise self._fault(step, f"{text}, and no barrier lies between")
            if self.fences and step.kind != "tcgen05_dealloc":  # CUTLASS writes no fence before dealloc
                self._refuse_unfenced(step, lane, cells, verb, when, by, who, also)

    def _cores(self, lane: int) -> int:
        """The number of the tensor cores as an accessor for a lane."""
        return CORES + int(self.frame.member[lane])

    def _since(self, lane: int, cells: Array, by: Array, cores: bool) -> Array | int:
        """For each cell, the time up to which the last access to it is ordered before the current one.

        cores: the tensor cores access for the lane; else its warp does.
        """
        frame, order = self.frame, self.frame.order
        first = lane if cores else lane - int(frame.thread[lane]) % 32
        times = order.join_of(np.arange(first, first + (1 if cores else 32)))
        # Any lane of a warp hands on what its warp did, as loads and stores of tensor memory are the whole warp's.
        warps = times[: order.team].reshape(frame.grid.cluster_size, -1, 32).max(axis=2)
        finished = np.zeros(order.team, np.int32)
        for member, agent in self.agents.items():
            finished[member] = times[agent]
        own, found = cells // CELLS % frame.grid.cluster_size, by[cells]
        several = warps.max(axis=1)
        both = np.minimum(several[own], several[np.minimum(own ^ 1, frame.grid.cluster_size - 1)])
        by_cores = finished[np.clip(found - CORES, 0, order.team - 1)]
        by_warp = warps[own, np.clip(found, 0, warps.shape[1] - 1)]
        return np.asarray(np.where(found == SEVERAL, both, np.where(found >= CORES, by_cores, by_warp)))

    def _other(self, who: int) -> str:
        if who < CORES:
            return "another warp"
        rank, thread = divmod(who - CORES, self.frame.grid.threads)
        of_block = f" of the block of rank {rank}" if self.frame.grid.cluster_size > 1 else ""
        return f"a tcgen05 operation of thread {thread}{of_block}"

    def _refuse_unfenced(
        self, step: Step, lane: int, cells: Array, verb: str, when: Array, by: Array, who: Array | int, also: int
    ) -> None:
        """Raise MemoryFault if fences before and after the barrier are missing, without which it does not order tensor
        memory."""
        found = by[cells]
        foreign = (found != who) & (found != also) & (found != -1)
        for bad, missing in (
            (foreign & self.memory.unfenced[cells], "tcgen05.fence::before_thread_sync lies before"),
            (foreign & (self.after[lane] <= when[cells]), "tcgen05.fence::after_thread_sync lies behind"),
        ):
            if bad.any():
                number = int(cells[np.flatnonzero(bad)[0]])
                text = f"{self.frame.who(lane)} {verb} {self.place(number)}, which {self._other(int(by[number]))} "
                raise self._fault(step, text + f"accessed, and no {missing} the barrier between")

    # fences ----------------------------------------------------------------------------------------------

    def touch(self, lane: int, cells: Array) -> None:
        """Record that a warp has accessed cells."""
        if self.fences:
            self.memory.unfenced[cells] = True
            self.touched.setdefault(lane // 32, []).append(cells)

    def before(self, lanes: Array) -> None:
        """Execute tcgen05.fence::before_thread_sync."""
        for warp in np.unique(lanes // 32).tolist():
            for cells in self.touched.pop(warp, []):
                self.memory.unfenced[cells] = False

    def behind(self, lanes: Array) -> None:
        """Execute tcgen05.fence::after_thread_sync."""
        self.after[lanes] = self.frame.order.clock

    # operations ------------------------------------------------------------------------------------------

    def issue(
        self, step: Step, lane: int, written: Array, read: Array = NONE, accumulator: tuple[int, ...] = ()
    ) -> Work:
        """Begin an operation. Raises MemoryFault if another operation or access conflicts with its cells.

        accumulator: of a product, the address and shape of d.

        If an operation of the same thread under way writes to the same array of cells, no other access can have
        happened since, so the new operation takes these cells over without a check.
        """
        name = step.bound.spelling.split(".")[1]
        before = next((w for w in reversed(self.flying) if w.written is written and w.lane == lane), None)
        if self.fast:
            return self._issue_compiled(step, lane, written, read, accumulator, before)
        memory, who, now = self.memory, self._cores(lane), self.frame.order.clock
        number = self.numbered.setdefault(accumulator, len(self.numbered))
        roles = roles_of(step)
        if before is None:
            self.refuse(step, lane, written, f"gives tcgen05.{name}", writes=True, cores=True)
            self._refuse_unordered(step, lane, written, roles[0], number)
        if len(read):
            self.refuse(step, lane, read, f"gives tcgen05.{name}", writes=False, cores=True)
            self._refuse_unordered(step, lane, read, roles[1], number)
        memory.role[read] = roles[1]
        if before is None:
            memory.busy[written] += 1
            memory.note_write(written, who, now)
            memory.role[written], memory.accumulator[written] = roles[0], number
        else:
            before.written = NONE
        memory.being_read[read] += 1
        memory.note_read(read, who, now, self._since(lane, read, memory.reader, True))
        found = Work(step, lane, written, read)
        self.flying.append(found)
        if self.frame.observer is not None:
            self.frame.observer.tensor_issued(step, lane, written, read)
        return found

    def _issue_compiled(
        self, step: Step, lane: int, written: Array, read: Array, accumulator: tuple[int, ...], before: Work | None
    ) -> Work:  # fmt: skip
        """`issue` with one pass of compiled code over the cells in place of each check and each record."""
        name, roles = step.bound.spelling.split(".")[1], roles_of(step)
        number = self.numbered.setdefault(accumulator, len(self.numbered))
        lanes, who = np.array([lane]), np.array([self._cores(lane)])
        for cells, role, writes in ((written, roles[0], True), (read, roles[1], False)):
            if not len(cells) or (writes and before is not None):
                continue
            if self.suspect(lanes, Rows.of(cells[None]), writes=writes, cores=True, role=role, accumulator=number):
                self.refuse(step, lane, cells, f"gives tcgen05.{name}", writes=writes, cores=True)
                self._refuse_unordered(step, lane, cells, role, number)
        if len(read):
            self.note(cell_access.READS, Rows.of(read[None]), who, role=roles[1], known=self._known(lanes))
        if before is None:
            self.note(cell_access.WRITES, Rows.of(written[None]), who, role=roles[0], accumulator=number)
        else:
            before.written = NONE
        found = Work(step, lane, written, read)
        self.flying.append(found)
        if self.frame.observer is not None:
            self.frame.observer.tensor_issued(step, lane, written, read)
        return found

    def issue_together(
        self, step: Step, lanes: Array, written: list[Array], read: Array | None, offsets: list[Array],
        accumulator: tuple[int, ...],
    ) -> bool:  # fmt: skip
        """`issue` and `read_shared` for threads of different blocks; False, with nothing changed, if any may be wrong.

        written: of each thread, always the same array. read: a row of cells for each; None: none. offsets: of each
        matrix in shared memory, a row for each.
        """
        frame, shared, roles = self.frame, self.frame.shared, roles_of(step)
        number = self.numbered.setdefault(accumulator, len(self.numbered))
        latest = {(id(work.written), work.lane): work for work in self.flying}
        before = [latest.get((id(cells), lane)) for cells, lane in zip(written, lanes.tolist(), strict=True)]
        if None in before and any(before):
            return False
        rows = self._rows_of(written) if None in before else None
        of_a = None if read is None else Rows.of(read)
        for cells, role, writes in ((rows, roles[0], True), (of_a, roles[1], False)):
            if cells is not None and self.suspect(
                lanes, cells, writes=writes, cores=True, role=role, accumulator=number
            ):
                return False
        for some in offsets:
            if frame.owned.destinations.first(some, 16) >= 0:
                return False
            if frame.grid.races and (
                (shared.awaits_fences(some, 16) and self._lack_fences(lanes, some))
                or shared.written_by_others(some.reshape(-1), 16, np.repeat(lanes, some.shape[1])).any()
            ):
                return False
        who = CORES + frame.order.members(lanes)
        if of_a is not None:
            self.note(cell_access.READS, of_a, who, role=roles[1], known=self._known(lanes))
        if rows is not None:
            self.note(cell_access.WRITES, rows, who, role=roles[0], accumulator=number)
        for some in offsets:
            frame.owned.sources.add(some, 16, 1)
        for at, lane in enumerate(lanes.tolist()):
            work = Work(step, lane, written[at], NONE if read is None else read[at])
            work.offsets = [some[at] for some in offsets]
            self.flying.append(work)
        for earlier in before:
            if earlier is not None:
                earlier.written = NONE
        return True

    def _rows_of(self, cells: list[Array]) -> Rows:
        """Of arrays of cells, one for each accessor, which nobody changes: those of the same arrays are found again."""
        held, found = self._last_rows
        if len(held) != len(cells) or any(one is not other for one, other in zip(held, cells, strict=True)):
            found = Rows.of(np.stack(cells))
            self._last_rows = cells, found
        return found

    def _lack_fences(self, lanes: Array, offsets: Array) -> bool:
        """Whether one of some lanes reads a chunk of its row of offsets that no proxy fence makes visible to it."""
        shared = self.frame.shared
        rows = (shared.units(row, 16) for row in offsets)
        return any(shared.unfenced([lane], units).any() for lane, units in zip(lanes, rows, strict=True))

    def _refuse_unordered(self, step: Step, lane: int, cells: Array, role: int, accumulator: int) -> None:
        """Raise MemoryFault if earlier operations of the same thread on the cells need not be over before this one."""
        self.memory.spread_out(cells)
        bad = unordered(self.memory, cells, role, accumulator)
        if bad.any():
            name = step.bound.spelling.split(".")[1]
            number = int(cells[np.flatnonzero(bad)[0]])
            self._name_work(step, lane, number, f"gives tcgen05.{name}")

    def read_shared(self, work: Work, offsets: Array) -> None:
        """Record that an operation reads chunks of shared memory; offsets are over all blocks."""
        frame, shared, lane, step = self.frame, self.frame.shared, work.lane, work.step
        lanes = np.full(len(offsets), lane)
        name = step.bound.spelling.split(".")[1]
        frame.owned.refuse_access(step, lanes, offsets, 16, f"gives tcgen05.{name}")
        if frame.grid.races:
            who = f"the tcgen05.{name} of {frame.who(lane)} reads shared memory at offset"
            awaited = shared.awaits_fences(offsets, 16)
            unfenced = np.flatnonzero(shared.unfenced([lane], shared.units(offsets, 16)) if awaited else ())
            racing = np.flatnonzero(shared.written_by_others(offsets, 16, lanes))
            for first, words in (
                (int(racing[0]) if len(racing) else -1, "another thread wrote, and no barrier"),
                (int(unfenced[0]) if len(unfenced) else -1, "a thread wrote, and no fence.proxy.async"),
            ):
                if first >= 0:
                    at = int(offsets[first]) % shared.size
                    raise self._fault(step, f"{'race: ' * ('bar' in words)}{who} {at}, which {words} lies between")
        frame.owned.sources.add(offsets, 16, 1)
        work.offsets.append(offsets)
        if frame.observer is not None:
            frame.observer.tensor_reads(step, lane, work.written, offsets)

    def writer(self, units: Array) -> str:
        """See `Owner`: no operation of tensor cores writes shared memory."""
        return ""

    def reader(self, units: Array) -> str:
        """See `Owner`."""
        for one in self.flying:
            if any(np.isin(self.frame.shared.units(o, 16), units).any() for o in one.offsets):
                return f"the {one.step.bound.spelling} in line {self.line(one.step)} still reads{self._missing(one)}"
        return ""

    # commits ---------------------------------------------------------------------------------------------

    def commit(self, step: Step, lane: int, barriers: list[int]) -> None:
        """Report to mbarriers when all operations that a thread has issued are complete."""
        for one in self.flying:
            if one.lane == lane and one.barrier is None:
                one.barrier = barriers[0]
        order = self.frame.order
        order.tick()
        released = order.release(np.array([lane]))
        self.commits += [Committed(step, lane, barrier, released) for barrier in barriers]

    def land(self) -> bool:
        """Complete all commits and report to their mbarriers; returns whether there were any."""
        commits, self.commits = self.commits, []
        left = commits
        while left:
            # Those of different blocks, which order nothing of each other, at once. What an operation of a block did is
            # recorded before its commit arrives and after the block's earlier commits have.
            at_once: dict[int, Committed] = {}
            for one in left:
                at_once.setdefault(int(self.frame.block[one.lane]) if self.fast else 0, one)
            left = [one for one in left if all(one is not other for other in at_once.values())]
            self._complete(list(at_once.values()))
            for one in at_once.values():
                self._arrive(one)
        return bool(commits)

    def _complete(self, commits: list[Committed]) -> None:
        """Complete the operations that threads have committed."""
        memory, frame = self.memory, self.frame
        committed = {(one.lane, one.barrier) for one in commits}
        works: list[Work] = []
        staying: list[Work] = []
        for work in self.flying:
            (works if (work.lane, work.barrier) in committed else staying).append(work)
        self.flying, now = staying, frame.order.clock
        if self.fast:
            self._note_ends(cell_access.WROTE, [(work.lane, work.written) for work in works])
            self._note_ends(cell_access.HAS_READ, [(work.lane, work.read) for work in works])
        for work in () if self.fast else works:
            who = self._cores(work.lane)
            memory.busy[work.written] -= 1
            memory.note_write(work.written, who, now)
            memory.being_read[work.read] -= 1
            memory.note_read(work.read, who, now, now)
        agents = {work.lane: self._agent(work.lane) for work in works}
        for agent in dict.fromkeys(agents.values()):
            parts = [(work.lane, some) for work in works if agents[work.lane] == agent for some in work.offsets]
            if not parts:
                continue
            offsets = np.concatenate([some for _, some in parts])
            frame.owned.sources.add(offsets, 16, -1)
            if frame.grid.races:
                lanes = np.repeat([lane for lane, _ in parts], [len(some) for _, some in parts])
                frame.shared.note_finished_read(offsets, 16, lanes, agent)

    def _note_ends(self, kind: int, ended: list[tuple[int, Array]]) -> None:
        """Record that operations of lanes have ended accesses to cells, in compiled code."""
        by_size: dict[int, list[tuple[int, Array]]] = {}
        for lane, cells in ended:
            by_size.setdefault(len(cells), []).append((lane, cells))
        by_size.pop(0, None)
        for some in by_size.values():
            who = np.array([self._cores(lane) for lane, _ in some])
            since = np.full(len(some), self.frame.order.clock)
            self.note(kind, self._rows_of([cells for _, cells in some]), who, since)

    def _agent(self, lane: int) -> int:
        """The member that stands for the operations of a lane's thread, once they are complete."""
        member = int(self.frame.member[lane])
        return self.agents.setdefault(member, self.frame.order.agent(("tensor", member)))

    def _arrive(self, one: Committed) -> None:
        frame = self.frame
        who = f"the tcgen05.commit of {frame.who(one.lane)} arrives"
        found = barrier_of(frame, one.step, one.barrier, who)
        count_arrival(frame, one.step, found, one.barrier, who)
        order, agent = frame.order, self._agent(one.lane)
        now = order.tick()
        released = order.join(one.released, np.zeros(order.vectors.shape[1], np.int32))
        released[agent] = now
        found.arrive(order, released)
        found.copies = True
        found.settle(order)

    def refuse_bound_for(self, step: Step, barrier: int, lane: int) -> None:
        """Raise ExecutionError if a thread invalidates an mbarrier to which a commit under way will report."""
        work = ((one.barrier, one.step) for one in self.commits)
        in_flight.refuse_bound_for(self.frame, step, barrier, lane, work, "tcgen05.commit")

    def ended(self) -> None:
        """Raise an error if blocks end with operations under way or with allocated columns."""
        frame = self.frame
        if self.flying:
            one = self.flying[0]
            text = f"the block of {frame.who(one.lane)} ends while this is under way"
            raise frame.fault(ExecutionError, one.step, text + self._missing(one))
        for block, promised in enumerate(self.memory.promised):
            if promised:
                text = (
                    f"{promised[0].count} columns of tensor memory are allocated for a pair of blocks, and no warp of "
                )
                text += f"block {frame.grid.coordinates(frame.first + block)} takes part"
                raise frame.fault(ExecutionError, promised[0].step, text)
        for block, held in enumerate(self.memory.held):
            if held:
                lane = block * frame.grid.threads
                text = f"the block of {frame.who(lane)} ends with {held[0].count} columns of tensor memory that no "
                raise frame.fault(ExecutionError, held[0].step, text + "tcgen05.dealloc has freed")


@dataclass
class Unwaited:
    """Loads or stores of warps (numbered over all blocks) before their wait, and a row of cells for each. `rows`: the
    same for compiled code; None without it."""

    warps: Array
    cells: Array
    stores: bool
    rows: Rows | None

    def some(self, chosen: Array) -> Unwaited:
        """Those of some of the warps."""
        rows = self.rows and self.rows.some(chosen)
        return Unwaited(self.warps[chosen], self.cells[chosen], self.stores, rows)


class TensorWaits:
    """The loads and stores of a frame's warps before their waits."""

    def __init__(self, frame: MemoryFrame, work: TensorWork) -> None:
        self.frame = frame
        self.work = work
        self.unwaited: list[Unwaited] = []

    def accessed(self, warps: Array, cells: Array, stores: bool, rows: Rows | None = None) -> None:
        """Record loads or stores of cells, a row for each warp, as under way. rows: the same for compiled code."""
        if self.work.fast:
            rows = rows or Rows.of(cells)
            self.work.note(cell_access.STORES if stores else cell_access.LOADS, rows, *self._by(warps))
        else:
            for warp, some in zip(warps.tolist(), cells, strict=True):
                self._note(warp, some, stores, begins=True)
        self.unwaited.append(Unwaited(warps, cells, stores, rows))
        for warp, some in zip(warps.tolist(), cells, strict=True) if self.work.fences else ():
            self.work.touch(warp * 32, some)

    def _by(self, warps: Array) -> tuple[Array, Array]:
        """The number of each warp in its block, and the time of its threads' last barrier with the others."""
        lanes = warps[:, None] * 32 + np.arange(32)
        return self.frame.thread[lanes[:, 0]].astype(np.int64) // 32, self.frame.order.block_time[lanes].max(axis=1)

    def _note(self, warp: int, cells: Array, stores: bool, *, begins: bool) -> None:
        memory, now = self.work.memory, self.frame.order.clock
        who, since = (int(x[0]) for x in self._by(np.array([warp])))
        if stores:
            memory.storing[cells] = who + 1 if begins else 0
            memory.note_write(cells, who, now)
            return
        (np.add if begins else np.subtract).at(memory.loading, cells, np.int16(1))
        memory.note_read(cells, who, now, since)

    def waited(self, warps: Array, stores: bool) -> None:
        """Complete all stores, or all loads, of warps that wait. From now on barriers order them."""
        waiting = []
        for one in self.unwaited:
            mine = np.isin(one.warps, warps) if one.stores == stores else np.zeros(len(one.warps), np.bool_)
            if not mine.all():
                waiting.append(one.some(~mine) if mine.any() else one)
            if not mine.any():
                continue
            over = one if mine.all() else one.some(mine)
            if over.rows is not None:
                kind = cell_access.STORED if stores else cell_access.LOADED
                self.work.note(kind, over.rows, *self._by(over.warps))
                continue
            for warp, row in zip(over.warps.tolist(), over.cells, strict=True):
                self._note(warp, row, stores, begins=False)
        self.unwaited = waiting
