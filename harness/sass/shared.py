"""What the threads of a block share: shared memory, barriers, and atomic operations, also those on global memory.

Memory and the search for races are the emulator's (`Shared`, `HappensBefore`). Two accesses of one warp at different
instructions never race here: a warp issues them in order, and ptxas drops a barrier of a warp that has converged.
A store of different values to one address by one instruction is a fault, and so is an access that no barrier orders
after one of another warp. Races in global memory are not searched for.

Atomic operations run in the order of lanes. The operation that may fail without a reason (CAST.SPIN) never does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ptxdiff.emulator.isa import memory  # noqa: F401  declares the forms of atom
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier
from ptxdiff.emulator.kernel.memory.access import update_of
from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.kernel.memory.space import Shared
from ptxdiff.emulator.kernel.schedule import ThreadsEndEarly
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep
from ptxdiff.sass.text import BYTES, SCALES, MachineFault, MachineInstruction, Operand, Unsupported, plain

RESERVED = 0x400
"""Bytes at the beginning of shared memory that a kernel must not use, from sm_90 on."""
BARRIERS = 16
_SIZES = {"U8": (1, 0), "S8": (1, 1), "U16": (2, 0), "S16": (2, 1), "64": (8, 0), "128": (16, 0)}


def reserved(target: str) -> int:
    """The bytes at the beginning of shared memory that belong to the driver."""
    return RESERVED if int(target.removeprefix("sm_").rstrip("af") or 0) >= 90 else 0


def allocations(target: str) -> tuple[int, int]:
    """Of the reserved bytes those in which ptxas keeps book of allocations of tensor memory; at first they are 0.

    The first byte, and the one after the last. Source: what 12.9.86, 13.0.88 and 13.5.37 make of `tcgen05.alloc`.
    """
    first = 0xC0 if target.rstrip("af") in ("sm_101", "sm_110") else 0x40
    return first, first + 0x20


@dataclass
class _Arrived:
    """Threads of a block that arrived at a barrier without waiting, and what they released."""

    count: int
    times: Array


@dataclass(frozen=True)
class _Coming:
    """A bulk copy to shared memory that is under way: the units of its bytes, and the phase that they belong to."""

    units: Array
    phase: int


_Releases = dict[tuple[int, str], Array]
"""Vector clocks that threads released, by their block and the scope."""
_UNIT = 16
"""Bytes of a unit that bulk copies own while they are under way."""


class SharedBlocks:
    """Shared memory and barriers of the blocks that run together on a machine.

    cluster: blocks of a cluster; threads of one cluster can order each other.
    coming: by mbarrier, the bulk copies that arrive at it and of which no thread has seen the phase complete. Nobody
    accesses their bytes meanwhile. The data are there from the issue on.
    """

    def __init__(self, machine: Machine) -> None:
        code = machine.launch.code
        instructions = code.function.instructions
        unit = min([_SIZES.get(w, (4, 0))[0] for i in instructions if i.opcode in _SMALL for w in i.modifiers] + [4])
        self.fenced = any(i.opcode == "MEMBAR" for i in instructions)
        partial = any(
            i.opcode in ("SYNCS", "USYNCS")
            or (self.fenced and i.opcode in ("ATOM", "ATOMS", "RED"))
            or (i.opcode == "BAR" and (len(i.operands) > 1 or "ARV" in i.modifiers))
            or (i.opcode in ("LD", "ST") and "STRONG" in i.modifiers)
            for i in instructions
        )
        self.machine = machine
        self.low = reserved(code.target)
        self.cluster = math.prod(machine.launch.cluster or (1,))
        team = self.cluster * machine.threads
        exact = partial or self.cluster > 1 or machine.launch.exact
        self.order = HappensBefore(machine.lanes, machine.threads, team, team, exact=exact)
        self.memory = Shared(machine.lanes // machine.threads, machine.launch.shared, unit, True, self.order)
        self.memory.bytes = machine.random.unread(0, 256, len(self.memory.bytes), np.uint8)
        self.unwritten = np.ones(len(self.memory.bytes), np.bool_)
        """Which bytes no thread stored to, or hold a function of bits that were never written."""
        self.stored = np.zeros(len(self.memory.bytes), np.bool_)
        """Which bytes a thread stored to."""
        self.doubtful = False  # whether a thread stored functions of bits that were never written
        self.book = allocations(code.target)
        self.allocates = any(i.opcode == "UTCATOMSWS" for i in instructions)
        if self.allocates:
            self.memory.bytes.reshape(-1, self.memory.size)[:, slice(*self.book)] = 0
        self.at = np.full(machine.lanes, -1, np.int8)  # the barrier at which a lane waits
        self.expected = np.zeros(machine.lanes, np.int64)  # how many threads it waits for; 0: all of its block
        self.vote = np.zeros(machine.lanes, np.uint8)
        self.results = np.zeros((3, machine.lanes), np.uint32)  # of BAR.RED: number, all, any
        self.arrived: dict[tuple[int, int], _Arrived] = {}
        self.mbarriers: dict[int, Barrier] = {}  # by their place in the memory of all blocks
        self.coming: dict[int, list[_Coming]] = {}
        self.owned = np.zeros(0, np.int32)  # by unit, the copies under way to it
        self.published: dict[int, _Releases] = {}  # by place, what threads released there by strong stores and updates
        self.awaiting: dict[int, _Releases] = {}  # by lane, what it acquires as soon as it executes a fence

    @classmethod
    def of(cls, machine: Machine) -> SharedBlocks:
        """Those of a machine."""
        if machine.blocks is None:
            machine.blocks = cls(machine)
        assert isinstance(machine.blocks, cls)
        return machine.blocks

    # Barriers -----------------------------------------------------------------------------------------------------

    def wait(self, fibre: Fibre, lanes: Lanes, numbers: Array, expected: Array, votes: Array | None) -> bool:
        """Let lanes wait at barriers; whether the fibre goes on."""
        machine = self.machine
        alike = (numbers == numbers[0]).all()
        if lanes is None and alike and votes is None and not expected.any() and not self.arrived:
            self.order.block_barriers(np.ones(machine.lanes, np.bool_))
            fibre.pc += BYTES
            return True
        mine = machine._all if lanes is None else lanes
        others = machine._all if fibre.lanes is None else fibre.lanes
        others = others[~np.isin(others, mine, assume_unique=True)]
        fibre.pc += BYTES
        self.at[mine], self.expected[mine], machine.resume[mine] = numbers, expected, fibre.pc
        if votes is not None:
            self.vote[mine] = votes
        fibre.lanes = others
        self.release(np.unique(mine // machine.threads))
        if len(others):
            machine.launch.diverged = True
        return len(others) > 0

    def arrive(self, lanes: Lanes, number: int, expected: int) -> None:
        """Let lanes arrive at a barrier without waiting."""
        machine = self.machine
        mine = machine._all if lanes is None else lanes
        blocks = mine // machine.threads
        for block in np.unique(blocks).tolist():
            here = mine[blocks == block]
            self.order.tick()
            times = self.order.release(here)
            held = self.arrived.setdefault((block, number), _Arrived(0, times))
            held.count += len(here)
            held.times = self.order.join(held.times, times)
        self.release(np.unique(blocks))

    def release(self, blocks: Array) -> None:
        """Let lanes go on whose barriers of a block are complete."""
        machine, threads = self.machine, self.machine.threads
        gone: list[Array] = []
        for block in blocks.tolist():
            here = slice(block * threads, block * threads + threads)
            at = self.at[here]
            for number in np.unique(at[at >= 0]).tolist():
                waiting = block * threads + np.flatnonzero(at == number)
                if self._complete(block, number, waiting):
                    gone.append(waiting)
        if not gone:
            return
        lanes = np.concatenate(gone)
        self.at[lanes] = -1
        for pc in np.unique(machine.resume[lanes]):
            group = np.sort(lanes[machine.resume[lanes] == pc])
            machine.fibres.append(Fibre(int(pc), None if len(group) == machine.lanes else group))

    def _complete(self, block: int, number: int, waiting: Array) -> bool:
        """Whether all came that a barrier waits for; if so, they are ordered, and their votes counted."""
        machine, threads = self.machine, self.machine.threads
        wanted = np.unique(self.expected[waiting])
        if len(wanted) > 1:
            raise MachineFault(f"threads of a block wait at barrier {number} for different numbers of threads")
        arrived = self.arrived.get((block, number))
        alive = machine.alive[block * threads : block * threads + threads]
        if wanted[0] == 0:
            if len(waiting) + (arrived.count if arrived else 0) < int(alive.sum()):
                return False
        else:
            warps = np.unique(waiting // _WARP)
            ended = int((~machine.alive.reshape(-1, _WARP)[warps]).sum())  # a warp counts as a whole
            count = len(waiting) + ended + (arrived.count if arrived else 0)
            if count < wanted[0]:
                return False
            if count > wanted[0]:
                raise MachineFault(f"{count} threads come to barrier {number}, which is for {int(wanted[0])}")
        if not alive.all() and not self.order.exact:
            raise ThreadsEndEarly
        if arrived is None and alive.all() and len(waiting) == len(alive):
            mask = np.zeros(machine.lanes, np.bool_)
            mask[waiting] = True
            self.order.block_barriers(mask)
        else:
            self.order.barrier(waiting, arrived.times if arrived else None)
            self.arrived.pop((block, number), None)
        votes = self.vote[waiting]
        self.results[:, waiting] = np.array([[int(votes.sum())], [int(votes.all())], [int(votes.any())]], np.uint32)
        return True

    # Memory -------------------------------------------------------------------------------------------------------

    def places(
        self, instruction: MachineInstruction, addresses: Array, size: int, lanes: Array, low: int | None = None,
        *, reaches: bool = False,
    ) -> Array:  # fmt: skip
        """The offsets in the memory of all blocks. Raises MachineFault for one outside, or not aligned.

        low: the lowest address; None: the first that belongs to the kernel. reaches: whether the instruction can access
        other blocks of its cluster.
        """
        low = self.low if low is None else low
        if (addresses % size).any():
            at = int(addresses[addresses % size != 0][0])
            raise MachineFault(f"{instruction.text}: address 0x{at:x} of shared memory is not a multiple of {size}")
        bad = (addresses < low) | (addresses + size > self.memory.limit)
        if self.allocates:
            bad &= (addresses < self.book[0]) | (addresses + size > self.book[1])
        if bad.any():
            at, limit = int(addresses[bad][0]), self.memory.limit
            raise MachineFault(f"{instruction.text}: address 0x{at:x} is outside the {limit} bytes of shared memory")
        return np.asarray(addresses + lanes // self.machine.threads * self.memory.size)

    def begin_copy(self, places: Array, barrier: int, phase: int) -> None:
        """Note that a bulk copy is under way to units that begin at places, until its phase is seen complete."""
        if not len(self.owned):
            self.owned = np.zeros(len(self.memory.bytes) // _UNIT, np.int32)
        units = places // _UNIT
        np.add.at(self.owned, units, 1)
        self.coming.setdefault(barrier, []).append(_Coming(units, phase))

    def land(self, barrier: int) -> None:
        """A thread saw that all phases of an mbarrier before its current one are complete."""
        found = self.mbarriers[barrier]
        for one in [c for c in self.coming.get(barrier, ()) if c.phase < found.phase]:
            np.subtract.at(self.owned, one.units, 1)
            self.coming[barrier].remove(one)

    def refuse_coming(self, instruction: MachineInstruction, places: Array, verb: str) -> None:
        """Raise MachineFault for an access to bytes to which a bulk copy is under way. An access is within a unit."""
        if len(self.owned) and (bad := self.owned[places // _UNIT] != 0).any():
            offset = int(places[bad][0]) % self.memory.size
            raise MachineFault(
                f"{instruction.text}: a thread {verb} offset {offset} of shared memory, to which a bulk copy is under "
                "way: a thread must first see the phase of its mbarrier complete"
            )

    def own(self, addresses: Array, lanes: Array) -> Array:
        """Whether addresses are those of the lanes' own blocks."""
        return np.ones(len(addresses), np.bool_)

    def near(self, instruction: MachineInstruction, address: int, lane: int, ranks: int) -> list[int]:
        """The addresses of one place in the blocks of a mask of ranks. Raises MachineFault for blocks that are none."""
        if ranks != 1:
            raise MachineFault(f"{instruction.text}: copies to the blocks of mask 0x{ranks:x}, and there is no cluster")
        return [address]

    def publish(self, instruction: MachineInstruction, places: Array, lanes: Array) -> None:
        """Note what threads release that made strong stores to places: what happened before their last memory barrier
        (MEMBAR). What was released at these places before is forgotten."""
        self.forget(places)
        for place, lane in zip(places.tolist(), lanes.tolist(), strict=True):
            self._release(instruction, place, lane)

    def _release(self, instruction: MachineInstruction, place: int, lane: int) -> None:
        """Join to what is released at a place what happened before a thread's last memory barrier."""
        for released in self.order.released_by(lane, "relaxed", _scope(instruction)):
            self._join(self.published.setdefault(place, {}), (released.block, released.scope), released.vector)

    def _join(self, releases: _Releases, key: tuple[int, str], vector: Array) -> None:
        releases[key] = self.order.join(releases.get(key), vector)

    def forget(self, places: Array) -> None:
        """A store to places ends what updates and strong stores released there."""
        for place in self.published.keys() & set(places.tolist()) if self.published else ():
            del self.published[place]

    def acquire(self, instruction: MachineInstruction, places: Array, lanes: Array) -> None:
        """Order threads after what was released at the places that these read.

        An access at the scope of the block does it at once: ptxas writes the same for `.relaxed` and `.acquire`. At a
        wider scope it is the next fence that does (see `end_fence`): ptxas writes CCTL.IVALL for `.acquire`.
        """
        scope = _scope(instruction)
        at_fence = scope != "cta" and instruction.opcode != "ATOMS"  # ATOMS shows no scope
        for place in set(places.tolist()) & self.published.keys():
            self._acquire(lanes[places == place], self.published[place], scope, at_fence)

    def _acquire(self, lanes: Array, releases: _Releases, scope: str, at_fence: bool = False) -> None:
        """Let lanes acquire what was released if their scope and its own let them: at their next fence, or now.

        The whole warp is ordered, because one lane may wait for all, and ptxas drops the barrier of a warp that has
        converged.
        """
        for (block, other), vector in releases.items():
            some = lanes[lanes // self.machine.threads == block] if "cta" in (scope, other) else lanes
            if at_fence:
                for lane in some.tolist():
                    self._join(self.awaiting.setdefault(lane, {}), (block, other), vector)
            elif len(some):
                warps = np.unique(some // _WARP)
                self.order.acquire((warps[:, None] * _WARP + np.arange(_WARP)).ravel(), vector)

    def end_fence(self, lanes: Array, scope: str) -> None:
        """A fence of a scope: threads acquire what they have read with strong accesses before it."""
        for lane in self.awaiting.keys() & set(lanes.tolist()) if self.awaiting else ():
            self._acquire(np.array([lane]), self.awaiting.pop(lane), scope)

    def _before(self) -> None:
        """Order what warps did until now before what they do next."""
        self.order.warp_time[:] = self.order.tick()

    def load(self, instruction: MachineInstruction, places: Array, size: int, lanes: Array, strong: bool) -> Array:
        """Rows of bytes. strong: it does not race with atomic operations. Raises MachineFault for a race."""
        self.refuse_coming(instruction, places, "reads")
        self._before()
        self._refuse(instruction, self.memory.note_read(places, size, lanes, strong), places, "reads")
        if self.machine.following:
            doubts = self.unwritten.reshape(-1, size)[places // size]
            self.machine.loaded = doubts if doubts.any() else None
        else:
            self._look_at(places, size)
        return np.asarray(self.memory.bytes.reshape(-1, size)[places // size])

    def store(self, instruction: MachineInstruction, places: Array, rows: Array, lanes: Array) -> None:
        """Store rows of bytes. Raises MachineFault for a race."""
        size = rows.shape[1]
        self.refuse_coming(instruction, places, "overwrites")
        table, index = self.memory.bytes.reshape(-1, size), places // size
        self._before()
        unwritten, was_stored = self.unwritten.reshape(-1, size), self.stored.reshape(-1, size)
        changes = (table[index] != rows).any(axis=1) | ~was_stored[index].all(axis=1)
        unordered = self.memory.note_write(places, size, lanes, np.ones(len(places), np.bool_))
        doubts = self.machine.storing
        if doubts is not None or self.doubtful:
            self._ask(unordered, index, size, doubts)
        self._refuse(instruction, unordered & changes, places, "overwrites")
        self.forget(places)
        table[index], was_stored[index] = rows, True
        unwritten[index] = False if doubts is None else doubts
        self._refuse(instruction, (table[index] != rows).any(axis=1), places, "is one of several threads that store to")

    def _ask(self, unordered: Array, index: Array, size: int, doubts: Array | None) -> None:
        """Note that bits that were never written decide whether a store is a fault: where nothing orders it after other
        accesses, it is one if it changes what is there; where two threads store to one place, if their bytes differ.

        unordered: which stores nothing orders. index: of the rows of `size` bytes that are stored to. doubts: which
        bytes are functions of bits that were never written.
        """
        self.doubtful |= doubts is not None
        there = self.unwritten.reshape(-1, size)[index] & self.stored.reshape(-1, size)[index]
        in_doubt = (there if doubts is None else there | doubts).any(axis=1)
        if (unordered & in_doubt).any() or (doubts is not None and len(np.unique(index)) < len(index)):
            self.machine.launch.guessed = True

    def update(self, instruction: MachineInstruction, places: Array, size: int, lanes: Array) -> Array:
        """The memory of an atomic operation as rows of bytes. Raises MachineFault for a race."""
        self.refuse_coming(instruction, places, "updates")
        self._before()
        self._refuse(instruction, self.memory.note_update(places, size, lanes), places, "updates")
        self._look_at(places, size)
        return self.memory.bytes.reshape(-1, size)

    def _look_at(self, places: Array, size: int) -> None:
        """Note that a step reads bytes."""
        launch = self.machine.launch
        if not launch.guessed and self.unwritten.reshape(-1, size)[places // size].any():
            launch.guessed = True

    def fence(self, lanes: Array, scope: str) -> None:
        """A memory barrier: as `end_fence`, and later atomic operations and strong stores of threads release what their
        warps did until now."""
        self.end_fence(lanes, scope)
        self._before()
        self.order.fence(lanes, scope, "release")

    def atomic(self, instruction: MachineInstruction, places: Array, size: int, lanes: Array) -> Array:
        """As `update`, by threads. Raises what it raises.

        A thread releases what happened before its last memory barrier (MEMBAR), which ptxas writes before an update
        that releases. It acquires what those released that have updated its place before, also in this instruction: see
        `acquire`. ptxas lets one lane update for others of its warp.
        """
        if not self.fenced:
            return self.update(instruction, places, size, lanes)
        self.acquire(instruction, places, lanes)
        table = self.update(instruction, places, size, lanes)
        for place, lane in zip(places, lanes, strict=True):
            self.acquire(instruction, place[None], lane[None])
            self._release(instruction, int(place), int(lane))
        return table

    def _refuse(self, instruction: MachineInstruction, bad: Array, places: Array, verb: str) -> None:
        if bad.any():
            offset = int(places[bad][0]) % self.memory.size
            raise MachineFault(
                f"race: {instruction.text}: a thread {verb} offset {offset} of shared memory, which another thread "
                "accessed, and no barrier lies between"
            )


_SMALL = frozenset({"LDS", "STS"})


def _scope(instruction: MachineInstruction) -> str:
    """The scope of a strong access or a memory barrier. Where it does not show, as in ATOMS, it is the widest."""
    words = instruction.modifiers
    return "cta" if "SM" in words or "CTA" in words else "gpu" if "GPU" in words else "sys"


class _Barrier(MachineStep):
    """BAR.SYNC, BAR.RED and BAR.ARV."""

    def __init__(self, instruction: MachineInstruction, number: Operand, expected: int, vote: Operand | None) -> None:
        super().__init__(instruction)
        self.number, self.expected, self.vote = number, expected, vote
        self.arrives = "ARV" in instruction.modifiers

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        blocks = SharedBlocks.of(machine)
        if self.arrives:
            fibre.pc += BYTES
            blocks.arrive(lanes, self.number.value or 0, self.expected)
            return True
        if self.number.kind == "int":
            numbers = np.full(count, self.number.value, np.int8)
        else:
            held = machine.read(self.number.kind, self.number.number, lanes)
            if (held >= BARRIERS).any():
                raise Unsupported(f"{self.instruction.text} with a value above {BARRIERS - 1}")
            numbers = held.astype(np.int8)
        votes = None
        if self.vote is not None:
            votes = machine.read(self.vote.kind, self.vote.number, lanes) ^ (1 if self.vote.inverted else 0)
        return blocks.wait(fibre, lanes, numbers, np.full(count, self.expected), votes)


_THREADS = 0x0FFF0000
"""In a register with both a barrier's number and that of its threads: the bits of the latter."""


class _BarrierOfRegisters(_Barrier):
    """BAR.SYNC, BAR.RED and BAR.ARV whose number of threads is in a register.

    Where the number of the barrier is in a register too, it is the same one, with the threads in bits 16 to 27.
    """

    def __init__(
        self, instruction: MachineInstruction, number: Operand, threads: Operand, vote: Operand | None
    ) -> None:
        super().__init__(instruction, number, 0, vote)
        self.threads = threads

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        held = machine.read("R", self.threads.number, lanes)
        if self.number.kind == "int":
            numbers, expected = np.full(count, self.number.value, np.int8), held.astype(np.int64)
        else:
            number = held & np.uint32(~_THREADS & 0xFFFFFFFF)
            if (number >= BARRIERS).any():
                raise Unsupported(f"{self.instruction.text} with a value above {BARRIERS - 1}")
            numbers, expected = number.astype(np.int8), (held & np.uint32(_THREADS)).astype(np.int64) >> 16
        blocks = SharedBlocks.of(machine)
        if self.arrives:
            fibre.pc += BYTES
            mine = machine._all if lanes is None else lanes
            for barrier, threads in sorted({*zip(numbers.tolist(), expected.tolist(), strict=True)}):
                blocks.arrive(mine[(numbers == barrier) & (expected == threads)], barrier, threads)
            return True
        votes = None
        if self.vote is not None:
            votes = machine.read(self.vote.kind, self.vote.number, lanes) ^ (1 if self.vote.inverted else 0)
        return blocks.wait(fibre, lanes, numbers, expected, votes)


def _barrier(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    words = [w for w in instruction.modifiers if w != "DEFER_BLOCKING"]
    operands = list(instruction.operands)
    vote = None
    if words in (["RED", "POPC"], ["RED", "AND"], ["RED", "OR"]):
        if len(operands) < 2 or operands[-1].kind != "P":
            return None
        vote = operands.pop()
    elif words not in (["SYNC"], ["ARV"]):
        return None
    if not 1 <= len(operands) <= 2 or not all(plain(o, "int", "R") for o in operands):
        return None
    number, expected = operands[0], operands[1] if len(operands) > 1 else None
    if number.kind == "int" and not 0 <= (number.value or 0) < BARRIERS:
        return None
    if expected is not None and expected.kind == "R":
        return _BarrierOfRegisters(instruction, number, expected, vote) if number.kind == "int" or (
            number == expected and number.number >= 0) else None  # fmt: skip
    if words == ["ARV"] and number.kind != "int":
        return None
    return _Barrier(instruction, number, (expected.value or 0) if expected is not None else 0, vote)


class _BarrierResult(MachineStep):
    """B2R.RESULT: what the last BAR.RED of a lane found."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            register, *predicate = self.instruction.operands
            results = SharedBlocks.of(machine).results
            which = slice(None) if lanes is None else lanes
            if predicate:
                machine.write("P", predicate[0].number, lanes, results[self.kind, which].astype(np.uint8))
            else:
                machine.write("R", register.number, lanes, results[0, which].copy())
        fibre.pc += BYTES
        return True

    kind = 1


def _barrier_result(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    operands = instruction.operands
    if instruction.modifiers != ("RESULT",) or not operands or not plain(operands[0], "R"):
        return None
    before = [i for i in code.function.instructions if i.address < instruction.address and i.opcode == "BAR"]
    if not before or "RED" not in before[-1].modifiers:
        return None
    kinds = {"POPC": 0, "AND": 1, "OR": 2}
    (kind,) = (kinds[w] for w in before[-1].modifiers if w in kinds)
    if (len(operands) == 1) != (kind == 0) or len(operands) > 2:
        return None
    if kind and (operands[0].number != -1 or operands[1].kind != "P" or operands[1].inverted):
        return None
    step = _BarrierResult(instruction)
    step.kind = kind
    return step


def shared_addresses(machine: Machine, lanes: Lanes, count: int, where: Operand) -> Array:
    """The addresses in shared memory of an operand, as 32-bit numbers."""
    found: Array = np.full(count, where.offset, np.int64)
    if where.base is not None:
        base = machine.read("R", where.base.number, lanes).astype(np.int64)
        found += base * SCALES.get(where.base.suffix, 1)
    if where.uniform is not None:
        found += machine.read("UR", where.uniform.number, lanes).astype(np.int64)
    return np.asarray(found & 0xFFFFFFFF)


def is_shared(operand: Operand) -> bool:
    """Whether an operand is an address of shared memory."""
    return operand.kind == "mem" and not operand.wide and not operand.name and (
        operand.uniform is None or not operand.uniform.suffix
    )  # fmt: skip


class _SharedAccess(MachineStep):
    """LDS and STS."""

    def __init__(self, instruction: MachineInstruction, size: int, signed: int, where: Operand, data: Operand) -> None:
        super().__init__(instruction)
        self.size, self.signed, self.where, self.data = size, signed, where, data
        self.strong = False

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        from ptxdiff.sass.control import as_words

        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            blocks = SharedBlocks.of(machine)
            every = machine._all if lanes is None else lanes
            addresses = shared_addresses(machine, lanes, count, self.where)
            places = blocks.places(self.instruction, addresses, self.size, every)
            if self.instruction.opcode == "LDS":
                rows = blocks.load(self.instruction, places, self.size, every, self.strong)
                for k, word in enumerate(as_words(rows, self.size, self.signed)):
                    if self.data.number >= 0:
                        machine.write("R", self.data.number + k, lanes, word)
            else:
                blocks.store(self.instruction, places, stored(machine, self.data, self.size, lanes, count), every)
        fibre.pc += BYTES
        return True


def stored(machine: Machine, data: Operand, size: int, lanes: Lanes, count: int) -> Array:
    """Registers as rows of bytes."""
    words = np.zeros((count, max(size // 4, 1)), np.uint32)
    for k in range(words.shape[1]):
        if data.number >= 0:
            words[:, k] = machine.read("R", data.number + k, lanes)
    return words.view(np.uint8)[:, :size]


def _access(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    loads = instruction.opcode == "LDS"
    # LDS.U is what Turing's assembler calls a load that is not volatile.
    words = [w for w in instruction.modifiers if not (loads and w == "U")]
    if len(words) > 1 or not set(words) <= set(_SIZES) or len(instruction.operands) != 2:
        return None
    data, where = instruction.operands if loads else instruction.operands[::-1]
    size, signed = _SIZES[words[0]] if words else (4, 0)
    if not is_shared(where) or not plain(data, "R") or (data.number > 0 and data.number % max(size // 4, 1)):
        return None
    step = _SharedAccess(instruction, size, signed, where, data)
    # A load may give the old value to a compare-and-swap that ptxas makes of one atomic operation.
    step.strong = loads and any(
        i.opcode == "ATOMS" and "CAST" in i.modifiers and ("64" in i.modifiers) == (size == 8)
        for i in code.function.instructions
    )
    return step


# Atomic operations ----------------------------------------------------------------------------------------------------

_INTEGER = {"ADD": "add", "MIN": "min", "MAX": "max", "INC": "inc", "DEC": "dec", "AND": "and", "OR": "or",
            "XOR": "xor", "EXCH": "exch", "CAS": "cas", "CAST": "cas"}  # fmt: skip
_FLOATS = {
    ("F32", "FTZ", "RN"): (4, ("rn", "ftz", "f32")),
    ("F32", "RN"): (4, ("rn", "f32")),
    ("F16x2", "RN"): (4, ("rn", "f16x2")),
    ("BF16_V2", "RN"): (4, ("rn", "bf16x2")),
    ("F64", "RN"): (8, ("rn", "f64")),
}


class _Atomic(MachineStep):
    """ATOMS, ATOMG, ATOM, RED and REDG: one update after the other, in the order of lanes."""

    def __init__(
        self, instruction: MachineInstruction, size: int, update: Callable[..., int], where: Operand,
        to: Operand | None, sources: tuple[Operand, ...],
    ) -> None:  # fmt: skip
        super().__init__(instruction)
        self.size, self.update, self.where, self.to, self.sources = size, update, where, to, sources
        self.casts = "CAST" in instruction.modifiers

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        from ptxdiff.sass.control import global_addresses, global_rows

        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        fibre.pc += BYTES
        if not count:
            return True
        every = machine._all if lanes is None else lanes
        columns = [self._column(machine, source, lanes, count) for source in self.sources]
        kind = np.dtype(f"u{self.size}")
        if self.instruction.opcode == "ATOMS":
            blocks = SharedBlocks.of(machine)
            addresses = shared_addresses(machine, lanes, count, self.where)
            places = blocks.places(self.instruction, addresses, self.size, every)
            memory = blocks.atomic(self.instruction, places, self.size, every).view(kind)[:, 0]
            index = (places // self.size).tolist()
            cells, old = self._updated({at: int(memory[at]) for at in set(index)}, index, columns)
            memory[list(cells)] = np.array(list(cells.values()), kind)
        else:
            addresses = global_addresses(machine, lanes, count, self.where)
            rows = np.ascontiguousarray(global_rows(machine, self.instruction, addresses, self.size)).view(kind)[:, 0]
            index = addresses.tolist()
            cells, old = self._updated(dict(zip(index, rows.tolist(), strict=True)), index, columns)
            values = np.array(list(cells.values()), kind).reshape(-1, 1).view(np.uint8)
            global_rows(machine, self.instruction, np.array(list(cells), np.int64), self.size, values)
        if self.to is not None:
            self._give(machine, lanes, old, columns)
        return True

    def _column(self, machine: Machine, source: Operand, lanes: Lanes, count: int) -> list[int]:
        rows = np.ascontiguousarray(stored(machine, source, self.size, lanes, count))
        found: list[int] = rows.view(np.dtype(f"u{self.size}"))[:, 0].tolist()
        return found

    def _updated(
        self, cells: dict[int, int], index: list[int], columns: list[list[int]]
    ) -> tuple[dict[int, int], list[int]]:
        old = []
        for number, at in enumerate(index):
            before = cells[at]
            old.append(before)
            cells[at] = self.update(before, *(c[number] for c in columns))
        return cells, old

    def _give(self, machine: Machine, lanes: Lanes, old: list[int], columns: list[list[int]]) -> None:
        assert self.to is not None
        if self.casts:
            done = np.array([a == b for a, b in zip(old, columns[0], strict=True)])
            if self.to.kind == "P":
                machine.write("P", self.to.number, lanes, done.astype(np.uint8))
                return
            given = done.astype(np.uint64)
        else:
            given = np.array(old, np.uint64)
        for k in range(self.size // 4):
            if self.to.number >= 0:
                machine.write("R", self.to.number + k, lanes, (given >> 32 * k & 0xFFFFFFFF).astype(np.uint32))


def _atomic(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    shared, returns = instruction.opcode == "ATOMS", instruction.opcode.startswith("ATOM")
    words = list(instruction.modifiers)
    operands = list(instruction.operands)
    if words == ["POPC", "INC", "32"]:
        return _count(instruction)
    if not shared:
        if words[:1] != ["E"] or words[-2:-1] != ["STRONG"] or words[-1] not in ("GPU", "SYS", "CTA", "SM"):
            return None
        words = words[1:-2]
        if returns and (not operands or operands.pop(0) != Operand("P", 7)):
            return None
    if not words or words[0] not in _INTEGER:
        return None
    to = operands.pop(0) if returns and operands else None
    op, swaps = words[0], words[0] in ("CAS", "CAST")
    if op == "CAST":
        if not shared or words[1:2] != ["SPIN"]:
            return None
        del words[1]
    if len(operands) != 2 + swaps or (returns and (to is None or not plain(to, "R", *(["P"] if op == "CAST" else [])))):
        return None
    where, *sources = operands
    if not all(plain(o, "R") for o in sources):
        return None
    chosen = _update(op, tuple(words[1:]))
    if chosen is None:
        return None
    size, update = chosen
    if any(o.number > 0 and o.number % (size // 4) for o in (*sources, *([to] if to and to.kind == "R" else []))):
        return None
    if not (is_shared(where) if shared else where.kind == "mem" and _in_global(where)):
        return None
    return _Atomic(instruction, size, update, where, to, tuple(sources))


def _count(instruction: MachineInstruction) -> MachineStep | None:
    """ATOMS.POPC.INC.32, which adds 1 for each lane and gives nothing back."""
    operands = instruction.operands
    chosen = _update("ADD", ())
    if instruction.opcode != "ATOMS" or chosen is None or len(operands) != 2:
        return None
    to, where = operands
    if to != Operand("R", -1) or not is_shared(where):
        return None
    size, add = chosen
    return _Atomic(instruction, size, lambda before: add(before, 1), where, to, ())


def _in_global(where: Operand) -> bool:
    uniform, base = where.uniform, where.base
    if base is not None and (base.suffix in SCALES or (base.number > 0 and base.number % 2)):
        return False
    return uniform is None or (not uniform.suffix and (base is None or where.wide))


def _update(op: str, kind: tuple[str, ...]) -> tuple[int, Callable[..., int]] | None:
    """The bytes of an atomic operation, and its update."""
    if kind in _FLOATS and op == "ADD":
        size, modifiers = _FLOATS[kind]
        return size, find("add", modifiers)[0].array_function().one
    if kind not in ((), ("64",), ("S32",), ("S64",)):
        return None
    if kind in (("S32",), ("S64",)) and op not in ("MIN", "MAX") and (op, kind) != ("ADD", ("S32",)):
        return None
    size = 8 if kind in (("64",), ("S64",)) else 4
    letter = "s" if kind and kind[0].startswith("S") else "u" if op in ("ADD", "MIN", "MAX", "INC", "DEC") else "b"
    found = find("atom", ("global", _INTEGER[op], f"{letter}{8 * size}"))
    return (size, update_of(found[0])) if found else None


class _Fence(MachineStep):
    """FENCE.VIEW.ASYNC and what follows a fence: accesses happen in order here, so they change nothing."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        fibre.pc += BYTES
        return True


class _MemoryBarrier(_Fence):
    """MEMBAR: what threads did before it, their next atomic operations and strong stores to shared memory release.

    And CCTL.IVALL, behind an acquiring access: threads acquire what they have read. So they do at a MEMBAR.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        if machine.blocks is not None:  # else no thread has accessed shared memory
            lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
            if count:
                every, blocks = machine._all if lanes is None else lanes, SharedBlocks.of(machine)
                end = blocks.fence if self.instruction.opcode == "MEMBAR" else blocks.end_fence
                end(every, _scope(self.instruction))
        return super().run(machine, fibre)


_FENCES: dict[str, list[tuple[str, ...]]] = {
    "MEMBAR": [(a, b) for a in ("SC", "ALL") for b in ("CTA", "GPU", "SYS")],
    "ERRBAR": [()],
    "CGAERRBAR": [()],
    "CCTL": [("IVALL",)],
    "FENCE": [("VIEW", "ASYNC"), ("VIEW", "ASYNC", "S"), ("VIEW", "ASYNC", "T")],
}


def _fence(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    if instruction.opcode == "CCTL" and instruction.modifiers in _PREFETCHES:
        where = instruction.operands
        return _Fence(instruction) if len(where) == 1 and where[0].kind == "mem" and _in_global(where[0]) else None
    known = instruction.modifiers in _FENCES[instruction.opcode] and not instruction.operands
    if not known:
        return None
    if instruction.modifiers == ("VIEW", "ASYNC", "T"):
        from ptxdiff.sass.tensor_memory import StoresWaitedFor

        return StoresWaitedFor(instruction)
    return (_MemoryBarrier if instruction.opcode in ("MEMBAR", "CCTL") else _Fence)(instruction)


_PREFETCHES = (("E", "PF1"), ("E", "PF2"), ("E", "DML2"), ("E", "C", "LDCU", "IV", "DEEP"))
"""CCTL that brings data to a cache, says how long it stays there, or (.IV) drops a tensor map that has changed."""


def shared_step(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    """The step of an instruction of this module; None for other opcodes. Raises Unsupported for an unknown form."""
    made = _MAKERS.get(instruction.opcode)
    if made is None:
        return None
    step = made(instruction, code)
    if step is None:
        raise Unsupported(f"{instruction.text} is not known in this form")
    return step


_MAKERS: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep | None]] = {
    "BAR": _barrier,
    "B2R": _barrier_result,
    **dict.fromkeys(("LDS", "STS"), _access),
    **dict.fromkeys(("ATOMS", "ATOMG", "ATOM", "RED", "REDG"), _atomic),
    **dict.fromkeys(_FENCES, _fence),
}
