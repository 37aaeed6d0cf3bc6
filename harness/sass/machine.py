"""Runs machine code for many threads at once: lanes with program counters, uniform registers, convergence barriers.

Lanes that run together form a fibre: they have one program counter, and those of one warp are converged. A branch that
some lanes take splits a fibre. Lanes of one warp join again only at a convergence barrier (BSYNC, WARPSYNC), as on the
device; lanes of different warps that are at the same place are run together, which changes nothing.

Which fibre runs first is the schedule's choice (`SCHEDULES`). A correct kernel gives the same bits for each.

Registers that were never written, and shared, local and tensor memory, hold bits chosen at random by `seed`. What
depends on them differs between two runs with different seeds; that is how undefined bits are found.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from ptxdiff.emulator import TimeLimit
from ptxdiff.emulator.kernel.memory.space import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW, GlobalMemory
from ptxdiff.emulator.numeric.vectorise import Array, ArrayFunction
from ptxdiff.sass import isa  # noqa: F401  declares the rows
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.rows import DESTINATIONS, ROWS, SOURCES, functions_of, is_uniform, match, undecided_of
from ptxdiff.sass.text import BYTES, MachineFault, MachineInstruction, Operand, Unsupported
from ptxdiff.sass.unwritten import parts_of, spread_of

SCHEDULES = ("fall-through first", "taken first", "in turns")
"""The orders in which the sides of a branch run."""

_STEPS_BETWEEN_LOOKS = 128  # at the clock
_STEPS_OF_A_TURN = 1 << 13
_WARP = 32
SEED = 0x5EED
"""Of the bits of a launch that nothing has written, unless it names another one. 0 gives zeros: see `Filling`."""
COLLECTIVE = 3
"""Kinds of waiting from here on: for a collective region, by its address."""
_LOCAL_TOP = 0xFFFDC0
"""Where the stack of a thread begins, which grows downwards. An H200 with driver 580 showed the low half, in code by
ptxas 12.9.86 that stores half of the stack pointer by mistake; the upper half is the driver's own matter."""


class Blocks(Protocol):
    """What blocks share: see `ptxdiff.sass.shared`."""

    def release(self, blocks: Array) -> None:
        """Let lanes go on whose barriers of a block are complete."""


Lanes = Array | None  # indices of lanes in order; None: all
ALL_PARTS = {"R": 0xF, "UR": 0xF, "P": 1, "UP": 1}
"""The parts of a register or predicate whose bits may be known or not: the bytes of a register, one bit for each."""


@dataclass(eq=False)
class Fibre:
    """Lanes that run together."""

    pc: int
    lanes: Lanes


@dataclass
class MachineLaunch:
    """What is the same for all blocks of a launch. parameters: the parameter area. schedules: those of the blocks, in
    turn. diverged: whether lanes that had not ended were ever at different places. met: whether a lane then ran a step
    in which it can notice another one (`is_private`), so that the bits may depend on the schedule. guessed: whether a
    step read bits that were chosen for what is not known. undecided: the text of an instruction of which a part of the
    result is not known, if one ran. shared: bytes of shared memory a block, reserved ones
    included. visited: addresses of the instructions that a lane came to. cluster: the blocks of a cluster along x, y
    and z; None: no clusters. parts: of the grid, one after the other, that do the same work: see `Filling`. exact:
    whether accesses to shared memory are noted by thread even if all barriers are of whole blocks: see
    `ThreadsEndEarly`."""

    code: MachineCode
    memory: GlobalMemory
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    parameters: bytes
    schedules: Sequence[str] = SCHEDULES[:1]
    seed: int = SEED
    due: float | None = None
    ran: dict[str, int] = field(default_factory=dict)
    approximate: set[str] = field(default_factory=set)
    exact: bool = False
    diverged: bool = False
    met: bool = False
    guessed: bool = False
    undecided: str = ""
    shared: int = 0
    visited: set[int] = field(default_factory=set)
    cluster: tuple[int, int, int] | None = None
    parts: int = 1
    _bank: ConstantBank | None = None

    @property
    def bank(self) -> ConstantBank:
        """Constant bank 0: what the driver keeps there, as far as it is known, and the parameters."""
        if self._bank is None:
            base, code = self.code.base, self.code
            end = base + -(-len(self.parameters) // 16) * 16
            data, known, given = np.zeros(end, np.uint8), np.zeros(end, np.bool_), np.ones(end, np.bool_)
            for at, words in driver_words(base, self.block, self.grid, self.cluster).items():
                value = b"".join(int(w).to_bytes(4, "little") for w in words)
                data[at : at + len(value)] = np.frombuffer(value, np.uint8)
                known[at : at + len(value)] = True
            data[base : base + len(self.parameters)] = np.frombuffer(self.parameters, np.uint8)
            known[base:] = True
            # An instruction may read more than a parameter, and use a part of what it read.
            if between := gaps_between(code.parameters):
                gaps = np.array(between, np.int64) + base
                data[gaps] = Filling(self, 0, 2).unread(0, 256, len(gaps), np.uint8)
                given[gaps] = False
            self._bank = ConstantBank(data, known, given)
        return self._bank

    def look_at(self, bank: ConstantBank, places: slice | Array) -> None:
        """Note that a step reads bytes of a constant bank."""
        if not self.guessed and not bank.given[places].all():
            self.guessed = True


@dataclass(frozen=True, eq=False)
class ConstantBank:
    """The bytes of a constant bank. known: of which the value is known, or chosen. given: those that are not chosen:
    the bytes of the parameter area that belong to no parameter have other bits in each filling."""

    data: Array
    known: Array
    given: Array


def gaps_between(parameters: Sequence[Parameter]) -> list[int]:
    """The bytes of the parameter area that belong to no parameter, up to a multiple of 16 behind the last one."""
    end = -(-max((p.offset + p.size for p in parameters), default=0) // 16) * 16
    covered = {at for p in parameters for at in range(p.offset, p.offset + p.size)}
    return [at for at in range(end) if at not in covered]


def parameters_at(base: int) -> int:
    """The generic address of the parameters, which begin at a place of constant bank 0.

    ptxas aligns each of them in the bank, so the bank begins at a multiple of every alignment.
    """
    return PARAMETER_WINDOW + base % 0x80


_UNDECIDED = 16
"""The first of the streams of random bits that belong to an instruction each, by its address."""
CLUSTER_SIZES = (1, 2)
"""Values of SR_CgaSize, of which one is chosen at random."""


def _reciprocal(power_of_two: int) -> tuple[int]:
    """The float32 pattern of its reciprocal."""
    return ((127 - power_of_two.bit_length() + 1) << 23,)


def driver_words(
    base: int, block: Sequence[int], grid: Sequence[int], cluster: Sequence[int] | None = None
) -> dict[int, tuple[int, ...]]:
    """What the driver writes before a kernel's parameters, by place, as far as it is known.

    The sizes of block and grid, the top of the stack, the windows of shared and local memory among generic addresses,
    the descriptor of global memory, which is opaque, and from sm_90 on the generic address of the parameters. For a
    launch in clusters also that it is one, the blocks of a cluster, along each axis and together, and on Hopper the
    clusters of the grid. ptxas reads these words for the special registers of PTX that say so. The reciprocals of the
    blocks along an axis are known where they are exact: how the driver rounds others is not. On Blackwell these words
    lie 0xa0 bytes lower for each unit of SR_CgaSize, of which nothing else is known: they are there for two values.
    """
    address = parameters_at(base)
    area = address & 0xFFFFFFFF, address >> 32
    if cluster is not None:
        count = tuple(g // c for g, c in zip(grid, cluster, strict=True))
        exact = {4 * axis: _reciprocal(of) for axis, of in enumerate(cluster) if of & of - 1 == 0}
        hopper: dict[int, tuple[int, ...]] = {0x140: (1, *cluster), 0x15C: count, 0x188: (math.prod(cluster),)}
        hopper |= {0x150 + at: word for at, word in exact.items()}
        blackwell: dict[int, tuple[int, ...]] = {0x36C: (1,)}
        for low in (-0xA0 * size for size in CLUSTER_SIZES):
            blackwell |= {0x2A0 + low: (*cluster,), 0x2CC + low: (math.prod(cluster),)}
            blackwell |= {0x2B0 + low + at: word for at, word in exact.items()}
        clusters = {0x210: hopper, 0x380: blackwell}.get(base, {})
        return {**driver_words(base, block, grid), **clusters}
    if base >= 0x380:
        windows = {0x2F8: (0, LOCAL_WINDOW >> 32)}
        return {0x360: (*block,), 0x370: (*grid,), 0x37C: (_LOCAL_TOP,), 0x358: (0, 0), 0x348: area, **windows}
    descriptor = {0x160: 0x118, 0x210: 0x208}.get(base)
    opaque = {descriptor: (0, 0)} if descriptor else {}
    if base == 0x210:
        opaque[0x198] = area
    windows = {0x18: (0, SHARED_WINDOW >> 32), 0x20: (0, LOCAL_WINDOW >> 32)}
    return {0x0: (*block,), 0xC: (*grid,), 0x28: (_LOCAL_TOP,), **windows, **opaque}


class Filling:
    """Bits chosen at random for what is not known: registers, and memory of a block or thread, before any write.

    Seeds that differ in the lowest bit give opposite bits. Two random ones would be equal half of the time, and a
    result that depends on one bit would not differ. So the second part of a launch in parts gets the opposite bits of
    the first, too, in numbers along whose first axis the parts lie. Seed 0 and the third part have no bit set: a shift
    by random bits, say, gives zero for nearly all of them, so that only a small number shows that it depends on them.
    """

    def __init__(self, launch: MachineLaunch, first: int, stream: int) -> None:
        self.launch = launch
        self._place = launch.seed >> 1, first, stream
        self._drawn: np.random.Generator | None = None  # most launches need no such bits
        self.followed = False  # whether the current step notes which of its results are these bits

    def integers(self, low: int, high: int, size: int | tuple[int, ...] | None = None, dtype: Any = np.int64) -> Any:
        """Numbers from `low`, which is zero, up to `high`, a power of two, as numpy's generators give them."""
        self.launch.guessed = self.launch.guessed or not self.followed
        return self.unread(low, high, size, dtype)

    def unread(self, low: int, high: int, size: int | tuple[int, ...] | None = None, dtype: Any = np.int64) -> Any:
        """The same for bits that nobody has read yet: who reads them later says so (`MachineLaunch.guessed`)."""
        if self._drawn is None:
            self._drawn = np.random.default_rng(self._place)
        drawn = self._drawn.integers(low, high, size, dtype)
        if not self.launch.seed:
            return drawn ^ drawn
        drawn = drawn ^ dtype(high - 1) if self.launch.seed & 1 else drawn
        each, rest = divmod(len(drawn) if size is not None else 0, self.launch.parts)
        if self.launch.parts > 1 and not rest:
            drawn[each : 2 * each] = drawn[:each] ^ dtype(high - 1)
            drawn[2 * each :] = 0
        return drawn


class Machine:
    """Some blocks of a launch, running together. first: the number of the first block; count: of the blocks."""

    def __init__(self, launch: MachineLaunch, first: int, count: int) -> None:
        self.launch = launch
        x, y, z = launch.block
        self.threads = x * y * z
        self.lanes = count * self.threads
        self.warps = self.lanes // _WARP
        self.first = first
        self.random = Filling(launch, first, 1)
        self._unknown = Filling(launch, first, 0)
        self.registers: dict[int, Array] = {}
        self.uniform: dict[int, Array] = {}
        self.predicates: dict[int, Array] = {}
        self.uniform_predicates: dict[int, Array] = {}
        self.barriers: dict[int, Array] = {}
        self.unwritten: dict[tuple[str, int], Array] = {}
        """Registers and predicates that hold bits that were never written, or a function of such bits, and for each
        lane, or warp, which parts do: one bit for each byte of a register (see `ALL_PARTS`)."""
        self.deciding: Mapping[int, int] = {}
        """Of registers of which not all parts decide what the current step does: those parts that do."""
        self.following = False  # whether the current step notes what it loads in doubt
        self.storing: Array | None = None  # which bytes that it stores to shared memory are in doubt, as rows
        self.loaded: Array | None = None  # and which of those that it loaded
        self.zeros = np.zeros(self.lanes, np.uint32)
        self.ones = np.ones(self.lanes, np.uint8)
        self.alive = np.ones(self.lanes, np.bool_)
        self.ended = False  # whether a lane has ended
        self.waiting = np.zeros(self.lanes, np.uint32)  # the lanes for which a lane waits; 0: it does not
        self.wait_kind = np.zeros(self.lanes, np.int64)
        self.resume = np.zeros(self.lanes, np.int64)
        self.fibres: list[Fibre] = [Fibre(0, None)]
        self.local: Array | None = None
        self.steps = 0
        self.tensor: object | None = None  # from the first access to tensor memory on
        self.blocks: Blocks | None = None  # from the first access to shared memory or barrier of a block on
        self._all = np.arange(self.lanes)
        known = [SCHEDULES.index(schedule) for schedule in launch.schedules]
        self._schedules = np.resize(np.roll(known, -first), count).repeat(self.threads)
        self._sources: dict[tuple[int, int], Array] = {}

    # Registers ----------------------------------------------------------------------------------------------------

    def unknown(self, count: int | tuple[int, int], bits: int) -> Array:
        """Numbers of some bits chosen at random, for what is not known. count: of them, or along each axis."""
        drawn: Array = self._unknown.integers(0, 1 << bits, count, np.uint32 if bits > 8 else np.uint8)
        return drawn

    def undecided(self, instruction: MachineInstruction, bits: int) -> Array:
        """Bits for all lanes in the place of those that an instruction leaves and that are not known. They are the same
        each time it runs, whatever ran before and whichever lanes are here, so that no schedule decides them."""
        self.launch.guessed, self.launch.undecided = True, instruction.text
        filling = Filling(self.launch, self.first, _UNDECIDED + instruction.address)
        drawn: Array = filling.unread(0, 1 << bits, self.lanes, np.uint32 if bits > 8 else np.uint8)
        return drawn

    def register(self, number: int) -> Array:
        """All lanes of a register."""
        return self.zeros if number < 0 else self._read_all("R", number, self.registers)

    def predicate(self, number: int) -> Array:
        """All lanes of a predicate."""
        return self.ones if number == 7 else self._read_all("P", number, self.predicates)

    def uniform_register(self, number: int) -> Array:
        """All warps of a uniform register."""
        return np.zeros(self.warps, np.uint32) if number < 0 else self._read_all("UR", number, self.uniform)

    def uniform_predicate(self, number: int) -> Array:
        """All warps of a uniform predicate."""
        return np.ones(self.warps, np.uint8) if number == 7 else self._read_all("UP", number, self.uniform_predicates)

    def _read_all(self, kind: str, number: int, table: dict[int, Array]) -> Array:
        """All lanes or warps of a register or predicate that a step reads."""
        found = self._row(kind, number, table)
        if self.unwritten:
            self._look_at(kind, number, None)
        return found

    def _look_at(self, kind: str, number: int, lanes: Lanes) -> None:
        """Note that the bits of some lanes of a register or predicate, or of warps, decide what a step does."""
        missing = self.unwritten.get((kind, number))
        parts = self.deciding.get(number, 0xF) if kind == "R" else 0xF
        if missing is not None and ((missing if lanes is None else missing[lanes]) & parts).any():
            self.launch.guessed = True

    def _row(self, kind: str, number: int, table: dict[int, Array]) -> Array:
        """All lanes or warps of a register or predicate, to be written. What was never written is chosen at random."""
        found = table.get(number)
        if found is None:
            count = self.lanes if kind in ("R", "P") else self.warps
            wide = kind in ("R", "UR")
            found = self._unknown.unread(0, 1 << 32 if wide else 2, count, np.uint32 if wide else np.uint8)
            table[number] = found
            self.unwritten[kind, number] = np.full(count, ALL_PARTS[kind], np.uint8)
        return found

    def _written(self, kind: str, number: int, lanes: Lanes) -> None:
        """Note that lanes or warps of a register or predicate are written. To be called if any is unwritten."""
        if lanes is None:
            self.unwritten.pop((kind, number), None)
        elif (missing := self.unwritten.get((kind, number))) is not None:
            missing[lanes] = 0
            if not missing.any():
                del self.unwritten[kind, number]

    def depend(self, kind: str, number: int, lanes: Lanes, parts: Array | int) -> None:
        """Note for each of some lanes which parts of a register or predicate are functions of bits that were never
        written. To be called behind the write."""
        if number >= 0 if kind == "R" else number != 7:
            missing = self.unwritten.setdefault((kind, number), np.zeros(self.lanes, np.uint8))
            missing[slice(None) if lanes is None else lanes] = parts

    def doubts(self, kind: str, number: int, lanes: Lanes) -> Array | None:
        """For each of some lanes which parts of a register or predicate of lanes are functions of bits that were never
        written; None: no part in any of them."""
        if number < 0 if kind == "R" else number == 7:
            return None
        self._row(kind, number, self.registers if kind == "R" else self.predicates)  # which notes what nobody wrote
        missing = self.unwritten.get((kind, number))
        if missing is None:
            return None
        found: Array = missing.copy() if lanes is None else missing[lanes]
        return found if found.any() else None

    def read(self, kind: str, number: int, lanes: Lanes) -> Array:
        """A register or predicate, uniform or not, for lanes of which the bits decide what a step does."""
        found = self.fetch(kind, number, lanes)
        if self.unwritten and kind in ("R", "P"):  # uniform ones were looked at
            self._look_at(kind, number, lanes)
        return found

    def fetch(self, kind: str, number: int, lanes: Lanes) -> Array:
        """A register or predicate, uniform or not, for lanes, as an operand of a function: the caller notes where its
        result depends on bits that were never written (`depend`)."""
        if kind == "R":
            found = self.zeros if number < 0 else self._row("R", number, self.registers)
            return found if lanes is None else found[lanes]
        if kind == "P":
            found = self.ones if number == 7 else self._row("P", number, self.predicates)
            return found if lanes is None else found[lanes]
        found = self.uniform_register(number) if kind == "UR" else self.uniform_predicate(number)
        return np.repeat(found, _WARP) if lanes is None else found[lanes // _WARP]

    def write(self, kind: str, number: int, lanes: Lanes, value: Array) -> None:
        """Write a register or predicate of lanes; `value` belongs to the machine from now on."""
        if number < 0 if kind == "R" else number == 7:
            return
        table = self.registers if kind == "R" else self.predicates
        if lanes is None:
            table[number] = value
        else:
            self._row(kind, number, table)[lanes] = value
        if self.unwritten:
            self._written(kind, number, lanes)

    def write_uniform(self, kind: str, number: int, warps: Lanes, value: Array) -> None:
        """Write a uniform register or predicate of warps."""
        if number < 0 or (kind == "UP" and number == 7):
            return
        place = self._row(kind, number, self.uniform if kind == "UR" else self.uniform_predicates)
        place[slice(None) if warps is None else warps] = value
        if self.unwritten:
            self._written(kind, number, warps)

    # Running ------------------------------------------------------------------------------------------------------

    def run(self, program: Mapping[int, MachineStep]) -> None:
        """Run until all lanes have ended. Raises Unsupported, MachineFault and TimeLimit."""
        self._run(lambda fibre, in_turns, others: self._take(fibre, program.get(fibre.pc)))

    def _take(self, fibre: Fibre, step: MachineStep | None) -> bool:
        """Run a fibre's next step, which is None where no instruction is; returns whether the fibre goes on."""
        if step is None:
            raise MachineFault(f"a jump to 0x{fibre.pc:x}, where no instruction is")
        self.steps += 1
        launch = self.launch
        launch.visited.add(fibre.pc)
        if launch.diverged and not launch.met and self._others_are_apart(fibre):
            launch.met = not is_private(step)
        return step.run(self, fibre) if step.follow is None else step.follow(step, self, fibre)

    def _others_are_apart(self, fibre: Fibre) -> bool:
        """Whether a lane that has not ended is not in a fibre."""
        return fibre.lanes is not None and len(fibre.lanes) != np.count_nonzero(self.alive)

    def _run(self, advance: Callable[[Fibre, bool, Collection[int]], bool]) -> None:
        """Run until all lanes have ended.

        advance: runs one step or several of a fibre, and returns whether it goes on. It is told whether fibres take
        turns after each step, and the places of other fibres, behind which it may not run.
        """
        turn = False
        while self.fibres:
            self.launch.diverged |= len(self.fibres) > 1
            fibre, whole = self._next(turn)
            in_turns = not whole and self._schedules[0 if fibre.lanes is None else fibre.lanes[0]] == 2
            others = {f.pc for f in self.fibres} if whole else ()
            count = len(self.fibres)
            while True:
                pc, before = fibre.pc, self.steps
                going = advance(fibre, in_turns, others)
                if self.steps // _STEPS_BETWEEN_LOOKS > before // _STEPS_BETWEEN_LOOKS:
                    self._look_at_clock(pc)
                if not going:
                    break
                over = self.steps // _STEPS_OF_A_TURN > before // _STEPS_OF_A_TURN  # one may wait for a flag
                turn = bool(self.fibres) and (in_turns or over)
                if turn:
                    self.fibres.insert(0, fibre)
                    break
                if len(self.fibres) > count or fibre.pc in others:
                    self.fibres.append(fibre)
                    break
        if self.alive.any():
            self._refuse_collective()
            stuck = int(np.flatnonzero(self.alive)[0])
            raise MachineFault(f"deadlock: thread {stuck % self.threads} waits at 0x{int(self.resume[stuck]):x}")

    def _refuse_collective(self) -> None:
        """Raise Unsupported if lanes wait before a collective region, and others of their warp for them elsewhere.

        An H200 lets lanes before two regions meet, and those before a region of all lanes go on without lanes that wait
        at a BSYNC; what they do then is not known.
        """
        kinds = np.where(self.alive & (self.waiting != 0), self.wait_kind, 0).reshape(self.warps, _WARP)
        last = kinds.max(axis=1)
        apart = (last >= COLLECTIVE) & (np.where(kinds, kinds, last[:, None]).min(axis=1) < last)
        if apart.any():
            lane = int(np.flatnonzero(apart)[0]) * _WARP + int(kinds[apart][0].argmax())
            at = int(self.wait_kind[lane]) - COLLECTIVE
            raise Unsupported(f"lanes wait at WARPSYNC.COLLECTIVE (0x{at:x}), and others of their warp elsewhere")

    def _next(self, turn: bool) -> tuple[Fibre, bool]:
        """The fibre that runs next, with others at its place; and whether all lanes of its warps are in it.

        turn: whether it is another's turn. Else those come first for which the other lanes of a warp wait. Of the rest,
        which need not wait for each other, it is the one that is furthest behind.
        """
        if len(self.fibres) == 1:
            fibre = self.fibres.pop()
            return fibre, self._whole(fibre)
        at = len(self.fibres) - 1
        if not turn:
            parts = (k for k in range(at, -1, -1) if not self._whole(self.fibres[k]))
            at = next(parts, min(range(at + 1), key=lambda k: self.fibres[k].pc))
        fibre = self.fibres.pop(at)
        self._join(fibre)
        return fibre, self._whole(fibre)

    def _whole(self, fibre: Fibre) -> bool:
        """Whether a fibre has all lanes of its warps that have not ended."""
        lanes = fibre.lanes
        if lanes is None:
            return True
        if not self.ended:
            if len(lanes) % _WARP:
                return False
            first = lanes[::_WARP]
            return not (first % _WARP).any() and bool((lanes[_WARP - 1 :: _WARP] - first == _WARP - 1).all())
        mine = np.zeros(self.warps, np.bool_)
        mine[lanes // _WARP] = True
        return len(lanes) == int(np.count_nonzero(self.alive.reshape(self.warps, _WARP)[mine]))

    def _look_at_clock(self, pc: int) -> None:
        due = self.launch.due
        if due is not None and time.monotonic() > due:
            raise TimeLimit(f"machine code still ran at 0x{pc:x} when its time was over")

    def _join(self, fibre: Fibre) -> None:
        """Run other warps at the same place along. Sides of a branch keep to their own schedule."""
        if fibre.lanes is None:
            return
        of, whole = self._schedules[fibre.lanes[0]], len(self.launch.schedules) == 1 or self._whole(fibre)
        mine = np.zeros(self.warps, np.bool_)
        mine[fibre.lanes // _WARP] = True
        for other in list(self.fibres):
            if other.pc != fibre.pc or other.lanes is None:
                continue
            if of != self._schedules[other.lanes[0]] and not (whole and self._whole(other)):
                continue
            theirs = other.lanes // _WARP
            if not mine[theirs].any():
                mine[theirs] = True
                fibre.lanes = np.sort(np.concatenate([fibre.lanes, other.lanes]))
                self.fibres.remove(other)
        if len(fibre.lanes) == self.lanes:
            fibre.lanes = None

    def guarded(self, guard: Operand | None, lanes: Lanes) -> tuple[Lanes, int]:
        """The lanes for which a guard holds, and how many they are."""
        if guard is None:
            return lanes, self.lanes if lanes is None else len(lanes)
        return self.holding(self.read(guard.kind, guard.number, lanes), guard, lanes)

    def holding(self, bits: Array, guard: Operand, lanes: Lanes) -> tuple[Lanes, int]:
        """The lanes for which a guard holds, and how many they are. bits: of its predicate, for these lanes."""
        found = np.flatnonzero(bits == 0 if guard.inverted else bits != 0)
        if lanes is not None:
            found = lanes[found]
        return (None if len(found) == self.lanes else found), len(found)

    def branch(self, fibre: Fibre, taken: Lanes, count: int, target: int) -> bool:
        """Let some lanes of a fibre jump; returns whether the fibre goes on."""
        total = self.lanes if fibre.lanes is None else len(fibre.lanes)
        if count == total:
            fibre.pc = target
            return True
        fibre.pc += BYTES
        if count:
            assert taken is not None
            self.launch.diverged = True
            lanes = self._all if fibre.lanes is None else fibre.lanes
            self._part([Fibre(target, taken), Fibre(fibre.pc, self._without(lanes, taken))])
            first = self.fibres.pop()
            fibre.pc, fibre.lanes = first.pc, first.lanes
        return True

    def _without(self, lanes: Array, others: Array) -> Array:
        """The lanes that are not among others."""
        kept = np.ones(self.lanes, np.bool_)
        kept[others] = False
        found: Array = lanes[kept[lanes]]
        return found

    def _by_schedule(self, fibre: Fibre) -> list[tuple[int, Fibre]]:
        """The parts of a fibre with one schedule each."""
        if len(self.launch.schedules) == 1 or fibre.lanes is None:
            return [(int(self._schedules[0]), fibre)]
        of = self._schedules[fibre.lanes]
        return [(k, Fibre(fibre.pc, fibre.lanes[of == k])) for k in np.unique(of).tolist()]

    def _part(self, sides: Sequence[Fibre]) -> None:
        """Add lanes that part, each side by its schedule. The last side runs first; "taken first" runs them the other
        way round."""
        parts = [part for side in sides for part in self._by_schedule(side)]
        self.fibres += [p for schedule, p in parts if schedule != 1] + [
            p for schedule, p in parts[::-1] if schedule == 1
        ]

    def split_by(self, fibre: Fibre, targets: Array) -> bool:
        """Let each lane of a fibre jump to its own target; returns whether the fibre goes on."""
        lanes = self._all if fibre.lanes is None else fibre.lanes
        places = np.unique(targets)
        if len(places) == 1:
            fibre.pc = int(places[0])
            return True
        self.launch.diverged = True
        self._part([Fibre(int(p), lanes[targets == p]) for p in places])
        return False

    def end(self, fibre: Fibre, lanes: Lanes) -> bool:
        """End lanes of a fibre; returns whether the fibre goes on."""
        self.ended = True
        if lanes is None:
            self.alive[:] = False
            return False
        self.alive[lanes] = False
        if self.waiting.any():
            self.release(np.unique(lanes // _WARP))
        if self.blocks is not None:
            self.blocks.release(np.unique(lanes // self.threads))
        mine = self._all if fibre.lanes is None else fibre.lanes
        fibre.lanes = mine[self.alive[mine]]
        fibre.pc += BYTES
        return len(fibre.lanes) > 0

    def active_masks(self, lanes: Lanes) -> Array:
        """For each of the lanes, the lanes of its warp among them, as a mask."""
        if lanes is None:
            return np.full(self.lanes, 0xFFFFFFFF, np.uint32)
        bits = np.uint32(1) << (lanes % _WARP).astype(np.uint32)
        masks = np.zeros(self.warps, np.uint32)
        np.bitwise_or.at(masks, lanes // _WARP, bits)
        found: Array = masks[lanes // _WARP]
        return found

    def wait(self, fibre: Fibre, lanes: Lanes, masks: Array, kind: int) -> bool:
        """Let lanes wait until all alive lanes of their masks wait with the same mask; whether the fibre goes on."""
        mine = self._all if lanes is None else lanes
        alive = self._bits(self.alive)[mine // _WARP]
        met = masks & alive == self.active_masks(lanes)
        if met.all():
            fibre.pc += BYTES
            return True
        # A warp whose lanes are all here goes on, as it would if no other warp were in the fibre.
        late = np.zeros(self.warps, np.bool_)
        late[mine[~met] // _WARP] = True
        staying = late[mine // _WARP]
        mine, masks = mine[staying], masks[staying]
        if not (masks >> (mine % _WARP).astype(np.uint32) & 1).all():
            raise MachineFault(f"a lane waits at 0x{fibre.pc:x} at a barrier that it does not take part in")
        self._wait_with(mine, masks)
        self.waiting[mine] = masks
        self.wait_kind[mine] = kind
        self.resume[mine] = fibre.pc + BYTES
        # Lanes whose guard does not hold go on, too.
        rest = self._all if fibre.lanes is None else fibre.lanes
        fibre.lanes = self._without(rest, mine)
        fibre.pc += BYTES
        self.release(np.unique(mine // _WARP))
        return len(fibre.lanes) > 0

    def _wait_with(self, lanes: Array, masks: Array) -> None:
        """Lanes are about to wait, with masks."""
        self.launch.met |= are_unlike(lanes, masks)

    def _bits(self, of: Array) -> Array:
        """A mask for each warp of a truth value for each lane."""
        return np.packbits(of.reshape(self.warps, _WARP), axis=1, bitorder="little").view(np.uint32).reshape(-1)

    def release(self, warps: Array) -> None:
        """Let the lanes of warps go on whose barriers are complete."""
        waits = self.waiting.reshape(self.warps, _WARP)[warps]
        kinds = self.wait_kind.reshape(self.warps, _WARP)[warps]
        alive = self._bits(self.alive)[warps]
        same = (waits[:, :, None] == waits[:, None, :]) & (kinds[:, :, None] == kinds[:, None, :])
        there = np.packbits(same, axis=2, bitorder="little").view(np.uint32)[:, :, 0]
        done = (waits != 0) & (waits & alive[:, None] & ~there == 0)
        lanes = (warps[:, None] * _WARP + np.arange(_WARP))[done]
        if not len(lanes):
            return
        self.waiting[lanes] = 0
        groups = [np.sort(lanes[self.resume[lanes] == pc]) for pc in np.unique(self.resume[lanes])]
        self._part([Fibre(int(self.resume[g[0]]), None if len(g) == self.lanes else g) for g in groups])


StepCode = tuple["type[MachineStep]", Callable[..., Any] | None]
"""What decides what a step does: its class, and the function that made its action, if it has one."""


class MachineStep:
    """An instruction, ready to run."""

    follow: Callable[[Self, Machine, Fibre], bool] | None = None
    """Runs the step, and follows bits that were never written through it; None: all bits that it reads decide what it
    does. See `ptxdiff.sass.unwritten`."""

    def __init__(self, instruction: MachineInstruction) -> None:
        self.instruction = instruction

    def at(self, instruction: MachineInstruction) -> Self:
        """The same step for an instruction of the same text and immediates at another place."""
        made = object.__new__(type(self))
        made.__dict__ = {**self.__dict__, "instruction": instruction}
        return made

    @property
    def move(self) -> str:
        """Its form, for steps without a row: opcode, modifiers and kinds of operands."""
        return " ".join((".".join((self.instruction.opcode, *self.instruction.modifiers)),
                         ",".join(map(_kind_of, self.instruction.operands)))).strip()  # fmt: skip

    @property
    def code(self) -> StepCode:
        """See `StepCode`."""
        return type(self), None

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """Run it for a fibre; returns whether the fibre goes on (else its lanes have ended, or are in other fibres)."""
        raise NotImplementedError


def _kind_of(operand: Operand) -> str:
    parts = [p.kind + p.suffix for p in (operand.base, operand.uniform) if p is not None]
    if operand.kind == "word":
        return operand.name
    if operand.kind in ("mem", "mem32"):
        return f"[{'+'.join(parts)}]"
    signs = "-" * operand.negated + "!" * operand.inverted + "|" * operand.absolute
    return signs + operand.kind + operand.suffix + (f"[{parts[0]}]" if parts else "")


class RefusedStep(MachineStep):
    """An instruction that is not in the table: only running it is an error."""

    def __init__(self, instruction: MachineInstruction, words: str) -> None:
        super().__init__(instruction)
        self.words = words

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        raise Unsupported(self.words)


class Computed(MachineStep):
    """An instruction with a row of the table."""

    def __init__(self, instruction: MachineInstruction) -> None:
        super().__init__(instruction)
        found = match(instruction)
        self.match = found
        self.form = found.form
        self.uniform = is_uniform(instruction.opcode)
        guard = instruction.guard
        if self.uniform and guard is not None and guard.kind != "UP" and guard.number != 7:
            raise Unsupported(f"{instruction.text}: a uniform instruction under a predicate of lanes")
        self.functions: tuple[ArrayFunction, ...] = functions_of(found)
        self.undecided: ArrayFunction | None = undecided_of(found)
        first, count = found.shape.unused, len(found.shape.destinations)
        places = instruction.operands[first : first + count]
        self.destinations = list(zip(found.shape.destinations, places, strict=True))
        self.sources = [SourceFetch(k, o, instruction) for k, o in found.operands]
        self.reads = [place for source in self.sources for place in source.registers]
        self.spread = spread_of(found, self.functions)
        self.writes = [
            (place.kind, place.number + further)
            for kind, place in self.destinations
            for further in range(1 + (kind == "R2" and place.number >= 0))
        ]
        written = [(o.kind, o.number) for k, o in self.destinations if o.number not in ((7,) if k == "P" else (-1,))]
        if len(set(written)) != len(written):
            raise Unsupported(f"{instruction.text} writes one predicate twice")

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        if self.uniform:
            self._run_uniform(machine, fibre)
        else:
            guard, lanes, doubtful = self.instruction.guard, fibre.lanes, None
            if guard is None:
                count = machine.lanes if lanes is None else len(lanes)
            else:
                lanes, count = machine.holding(machine.fetch(guard.kind, guard.number, lanes), guard, lanes)
                if guard.kind == "P" and ("P", guard.number) in machine.unwritten:
                    doubtful = machine.unwritten["P", guard.number] != 0  # kept: a result may be the guard itself
            if count:
                self._note(machine, count)
                values = [s.lanes(machine, lanes, count) for s in self.sources]
                results = [f(count, *values) for f in self.functions]
                unwritten = self._unwritten(machine, lanes, values) if machine.unwritten else None
                if self.undecided is not None:
                    unknown = self.undecided(count, *values)
                    if unknown.any():
                        drawn = machine.undecided(self.instruction, DESTINATIONS[self.destinations[0][0]])
                        results[0] = results[0] & ~unknown | (drawn if lanes is None else drawn[lanes]) & unknown
                for (kind, place), value in zip(self.destinations, results, strict=True):
                    if kind == "R2":
                        low, high = value.view(np.uint32).reshape(-1, 2).T
                        machine.write("R", place.number, lanes, np.ascontiguousarray(low))
                        if place.number >= 0:
                            machine.write("R", place.number + 1, lanes, np.ascontiguousarray(high))
                    else:
                        machine.write(place.kind, place.number, lanes, value)
                if unwritten is not None:
                    self._depend(machine, lanes, unwritten)
            if doubtful is not None:  # there it is not known whether a result was written
                here = fibre.lanes
                self._depend(machine, np.flatnonzero(doubtful) if here is None else here[doubtful[here]], 0xF)
        fibre.pc += BYTES
        return True

    def _depend(self, machine: Machine, lanes: Lanes, parts: Array | int) -> None:
        """Note for each of some lanes which parts of the results are functions of bits that were never written."""
        for kind, number in self.writes:
            machine.depend(kind, number, lanes, parts if kind == "R" else np.minimum(parts, 1))

    def _unwritten(self, machine: Machine, lanes: Lanes, values: Sequence[Array]) -> Array | None:
        """For each of some lanes which parts of the results depend on bits that were never written; None: no part.

        values: of the sources.
        """
        if not any(place in machine.unwritten for place in self.reads):
            return None
        parts = [source.doubts(machine, lanes) for source in self.sources]
        if all(part is None for part in parts):
            return None
        if self.spread is not None:
            found = self.spread(parts, values)
        else:
            known = [part for part in parts if part is not None]
            found = (known[0] if len(known) == 1 else np.bitwise_or.reduce(known)) != 0
            found = found * np.uint8(0xF)
        return found if found.any() else None

    def _note(self, machine: Machine, count: int) -> None:
        launch = machine.launch
        launch.ran[self.form] = launch.ran.get(self.form, 0) + count
        if self.match.row.approximate:
            launch.approximate.add(self.match.row.name)

    def _run_uniform(self, machine: Machine, fibre: Fibre) -> None:
        warps = None if fibre.lanes is None else np.unique(fibre.lanes // _WARP)
        guard = self.instruction.guard
        if guard is not None:
            held = machine.uniform_predicate(guard.number)
            held = held if warps is None else held[warps]
            chosen = np.flatnonzero(held == 0 if guard.inverted else held != 0)
            warps = chosen if warps is None else warps[chosen]
        count = machine.warps if warps is None else len(warps)
        if not count:
            return
        self._note(machine, count)
        values = [s.warps(machine, warps, count) for s in self.sources]
        results = [f(count, *values) for f in self.functions]
        for (kind, place), value in zip(self.destinations, results, strict=True):
            if kind == "R2":
                low, high = value.view(np.uint32).reshape(-1, 2).T
                machine.write_uniform("UR", place.number, warps, low)
                if place.number >= 0:
                    machine.write_uniform("UR", place.number + 1, warps, high)
            else:
                machine.write_uniform(place.kind, place.number, warps, value)


_ONES = {1: 1, 32: 0xFFFFFFFF, 64: 0xFFFFFFFFFFFFFFFF}
_SIGNS = {"f32": 0x80000000, "f16x2": 0x80008000, "f8x4": 0x80808080, "f64": 1 << 63, "f32x2": 0x8000000080000000}


_PARTS = frozenset({"e", "k", "K", "t", "y", "z", "l", "j", "S"})
"""Kinds of sources whose bits are a part of a register, or a wider number, or are looked at."""


class SourceFetch:
    """Reads one source with its signs."""

    def __init__(self, kind: str, operand: Operand, instruction: MachineInstruction) -> None:
        self.source = source = SOURCES[kind]
        self.kind, self.operand, self.text = kind, operand, instruction.text
        self.dtype = np.dtype({1: np.uint8, 32: np.uint32, 64: np.uint64}[source.width])
        self.wide = source.width == 64 and kind not in ("j", "l")
        self.constant: int | None = None
        self.place = id(self)
        if operand.kind in ("int", "float"):
            self.constant = self._immediate(instruction)
        self.same = self.constant is not None or operand.kind == "c"
        signs = operand.negated or operand.absolute or operand.inverted
        self.plain = not (self.same or self.wide or signs or operand.suffix) and kind not in _PARTS
        """Whether the definition reads the bits of one register or predicate as they are."""
        pair = self.wide and operand.suffix != "F32" and operand.number >= 0
        lane = operand.kind in ("R", "P")
        self.registers = [(operand.kind, operand.number + k) for k in range(1 + pair)] if lane else []
        self.parts = parts_of(kind, operand.suffix)

    def _immediate(self, instruction: MachineInstruction) -> int:
        operand, source, encoded = self.operand, self.source, instruction.immediate
        if source.immediate == "high":
            return encoded << 32
        if source.immediate == "both":
            return encoded << 32 | encoded
        if source.immediate == "encoding":
            return encoded
        value = operand.value
        assert value is not None
        if self.wide and instruction.opcode in ("MOV", "UMOV"):  # its 64 bits are all over the word; the text has them
            return value & _ONES[64]
        if value & 0xFFFFFFFF != encoded:
            raise Unsupported(f"{instruction.text}: its immediate is not the one of its encoding, 0x{encoded:x}")
        # A number of 64 bits is written with its sign, so of a larger one it is not known what its upper half is.
        if self.wide and not -(1 << 31) <= value < 1 << 31:
            raise Unsupported(f"{instruction.text}: how its immediate becomes a number of 64 bits is not known")
        if not self.wide and not -(1 << 32) < value < 1 << 32:
            raise Unsupported(f"{instruction.text}: an immediate beyond 32 bits")
        return value & (_ONES[64] if self.wide else 0xFFFFFFFF)

    def lanes(self, machine: Machine, lanes: Lanes, count: int) -> Array:
        """The value for lanes."""
        operand = self.operand
        if self.same:
            return self._same(machine, count)
        low = machine.fetch(operand.kind, operand.number, lanes)
        if self.plain:
            return low
        if not self.wide:
            return self._signed(low)
        if operand.suffix == "F32":
            return self._signed(_joined(low, low))
        high = machine.fetch(operand.kind, operand.number + 1 if operand.number >= 0 else -1, lanes)
        return self._signed(_joined(low, high))

    def doubts(self, machine: Machine, lanes: Lanes) -> Array | None:
        """For each of some lanes which parts of the value depend on bits that were never written; None: no part.

        A part is a byte of the value. Of a pair of registers it is both bytes at one place.
        """
        parts = [p for place in self.registers if (p := machine.doubts(*place, lanes)) is not None]
        if not parts:
            return None
        found = parts[0] if len(parts) == 1 else parts[0] | parts[1]
        found = self.parts(found)
        return found if found.any() else None

    def warps(self, machine: Machine, warps: Lanes, count: int) -> Array:
        """The value for warps, of a uniform instruction."""
        operand = self.operand
        if self.constant is not None or operand.kind == "c":
            return self._same(machine, count)
        if operand.kind == "UP":
            low = machine.uniform_predicate(operand.number)
        else:
            low = machine.uniform_register(operand.number)
        low = low.copy() if warps is None else low[warps]
        if not self.wide:
            return self._signed(low)
        if operand.suffix == "F32":
            return self._signed(_joined(low, low))
        high = machine.uniform_register(operand.number + 1 if operand.number >= 0 else -1)
        return self._signed(_joined(low, high if warps is None else high[warps]))

    def _same(self, machine: Machine, count: int) -> Array:
        key = self.place, 0
        held = machine._sources.get(key)
        if held is None or len(held) < count:
            if self.constant is not None:
                value = self.constant
            else:
                value = constant_word(machine.launch, self.operand, 8 if self.wide else 4)
            held = self._signed(np.full(max(count, 1), value, self.dtype if self.wide else self._plain()))
            machine._sources[key] = held
        return held if len(held) == count else held[:count]

    def _plain(self) -> Any:
        return np.uint8 if self.source.width == 1 else np.uint32

    def _signed(self, x: Array) -> Array:
        operand, source = self.operand, self.source
        literal = self.constant is not None
        if self.kind in ("p", "p-"):
            return x ^ 1 if operand.inverted else x
        if operand.suffix == "H0_H0" and self.kind in "hg":
            x = x & 0xFFFF | x << 16
        elif self.kind in ("X", "N", "Z"):
            x = x if self.kind == "N" else x << 32 | x >> 32
            x = x if self.kind == "X" else x ^ 1 << 63
        elif operand.suffix == "H1_H1" and self.kind in "hg":
            x = x >> 16 | x & 0xFFFF0000
        elif self.kind == "e":
            x = x >> 16 if operand.suffix == "H1_H1" else x & 0xFFFF
        elif self.kind in ("k", "K"):
            x = x >> 16 if operand.suffix else x & 0xFFFF
        elif self.kind == "t":
            x = x >> 16 if operand.suffix == "H1" else x & 0xFFFF
        elif self.kind == "S" and (x & 0xFFFF).any():
            raise Unsupported(f"{self.text}: what the lower half of its last operand does is not known")
        elif self.kind == "z":
            x = x >> 31
        elif self.kind == "y":
            x = x >> 8 * int(operand.suffix[1:] or 0) & 0xFF
        if self.kind == "l":
            number = x.view(np.int32).astype(np.int64)
            return (-number if operand.negated and not literal else number).view(np.uint64)
        if self.kind == "j":
            wide = x.astype(np.uint64)
            return (wide ^ 0xFFFFFFFF) + 1 if operand.negated and not literal else wide
        if literal or source.negation == "raw" or not (operand.negated or operand.absolute or operand.inverted):
            return x
        sign = _SIGNS.get(source.negation, 0)
        if source.negation == "f64":  # the sign of a NaN stays as it is
            magnitude = x & ~x.dtype.type(sign)
            changed = magnitude if operand.absolute else x
            changed = changed ^ x.dtype.type(sign) if operand.negated else changed
            return np.where(magnitude > 0x7FF0000000000000, x, changed)
        if operand.absolute:
            x = x & ~x.dtype.type(sign)
        if operand.inverted:
            x = ~x
        if operand.negated and source.negation == "8x4":
            x = (0x80808080 - (x & 0x7F7F7F7F)) ^ (~x & 0x80808080)
        elif operand.negated:
            x = -x if source.negation == "two" else x ^ x.dtype.type(sign)
        return x


def _joined(low: Array, high: Array) -> Array:
    pairs = np.empty((len(low), 2), np.uint32)
    pairs[:, 0], pairs[:, 1] = low, high
    return pairs.view(np.uint64).reshape(-1)


def constant_word(launch: MachineLaunch, operand: Operand, size: int) -> int:
    """A word of a constant bank. Raises Unsupported for one whose contents are not known."""
    at = operand.offset
    if operand.bank == 0:
        bank, places = launch.bank, slice(at, at + size)
        if at < 0 or at + size > len(bank.data) or not bank.known[places].all():
            raise Unsupported(f"c[0x0][0x{at:x}]: what the driver keeps there is not known")
        launch.look_at(bank, places)
        return int.from_bytes(bank.data[places].tobytes(), "little")
    held = launch.code.banks.get(operand.bank, b"")
    if at < 0 or at + size > len(held):
        raise Unsupported(f"c[0x{operand.bank:x}][0x{at:x}]: the cubin has no such constant")
    return int.from_bytes(held[at : at + size], "little")


def prepared(code: MachineCode) -> dict[int, MachineStep]:
    """The steps of a kernel by address. Instructions that are not in the table are refused when they run."""
    return {instruction.address: prepared_step(instruction, code) for instruction in code.function.instructions}


@dataclass(frozen=True)
class PreparedSteps:
    """The steps of a kernel, to be run several times. rows: those that its opcodes had in the table then."""

    by_address: Mapping[int, MachineStep]
    rows: Mapping[str, Any]

    @classmethod
    def of(cls, code: MachineCode) -> Self:
        """The steps of a kernel; see `prepared`."""
        opcodes = {instruction.opcode for instruction in code.function.instructions}
        return cls(prepared(code), {opcode: ROWS.get(opcode) for opcode in opcodes})

    def is_current(self) -> bool:
        """Whether the table has the same rows still."""
        return all(ROWS.get(opcode) is rows for opcode, rows in self.rows.items())


def prepared_step(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """The step of one instruction of a kernel; see `prepared`."""
    from ptxdiff.sass.control import special
    from ptxdiff.sass.following import follow

    if not instruction.text:
        words = f"0x{instruction.high:016x}{instruction.low:016x}, for which this nvdisasm has no text: a newer one may"
        return RefusedStep(instruction, f"{words} (TRITON_NVDISASM_PATH names it)")
    try:
        rows, found = _computed.get((instruction.text, instruction.low), (None, None))
        known = found is not None and rows is ROWS.get(instruction.opcode)
        step = found.at(instruction) if found and known else _again(instruction) or special(instruction, code)
        step = step and follow(step)
        if step is not None and instruction.opcode in _ALIKE:
            _alike.setdefault((instruction.text, instruction.low), step)
        return step or _new(instruction)
    except Unsupported as refusal:
        return RefusedStep(instruction, refusal.message)


_ALIKE = frozenset({
    "NOP", "EXIT", "LDC", "ULDC", "LDCU", "P2R", "R2P", "R2UR", "LDG", "STG", "LDL", "STL", "SHFL", "VOTE", "VOTEU",
    "REDUX", "CREDUX", "MATCH",
})  # fmt: skip
"""Opcodes without a row whose steps do not depend on what else the kernel has, nor on where the instruction stands."""
_alike: dict[tuple[str, int], MachineStep] = {}
"""Steps of these opcodes, by text and immediates."""


def _again(instruction: MachineInstruction) -> MachineStep | None:
    """The step of an instruction of `_ALIKE` that was met before, for this place."""
    found = _alike.get((instruction.text, instruction.low))
    return None if found is None else found.at(instruction)


_computed: dict[tuple[str, int], tuple[Any, Computed]] = {}
"""Instructions with a row, by their text and the half of their word that has their immediates. Also the rows that their
opcode had then."""
_MOST_COMPUTED = 1 << 16


def _new(instruction: MachineInstruction) -> Computed:
    if len(_computed) > _MOST_COMPUTED:
        _computed.clear()
        _alike.clear()
    made = Computed(instruction)
    _computed[instruction.text, instruction.low] = ROWS.get(instruction.opcode), made
    return made


_PRIVATE = frozenset({"BSSY", "BSYNC", "CALL", "CS2R", "LDC", "LDL", "NOP", "P2R", "R2P", "RET", "RPCMOV", "S2R", "STL",
                      "WARPSYNC", "YIELD", "BRA"})  # fmt: skip
"""Opcodes of steps without a row in which no lane can notice another one. EXIT and BREAK are none of them: they can
complete two barriers at once, whose lanes then go on together. Nor is BMOV: BREAK does not change what it kept."""


def is_private(step: MachineStep) -> bool:
    """Whether no lane can notice another one in a step: then it may run while lanes are apart, in any order.

    Up to the first other step a lane has the same values in every schedule: a private step, or one with a row, changes
    registers, predicates and local memory of its own lanes alone, or decides where they go on and which others they
    wait for. All lanes come together at the same instructions in every schedule, because a fibre splits by values and
    joins again where all lanes of a barrier wait. For that, lanes of a warp that wait together must wait for the same
    ones (`are_unlike`): else they complete two barriers at once, or one after the other, by who came before.
    """
    instruction = step.instruction
    if isinstance(step, Computed):
        return not step.uniform
    if isinstance(step, RefusedStep):
        return False
    # A branch with a modifier can ask what the other lanes of a warp do, and so does a collective wait.
    return instruction.opcode in _PRIVATE and not (
        instruction.opcode in ("BRA", "WARPSYNC")
        and {"ANY", "CONV", "DIV", "U", "COLLECTIVE", "EXCLUSIVE"}.intersection(instruction.modifiers)
    )


def are_unlike(lanes: Array, masks: Array) -> bool:
    """Whether lanes of one warp wait with different masks."""
    return bool(((masks[1:] != masks[:-1]) & (lanes[1:] // _WARP == lanes[:-1] // _WARP)).any())


def unsupported(steps: Mapping[int, MachineStep]) -> Iterable[str]:
    """The words of each instruction that is not in the table."""
    return [s.words for s in steps.values() if isinstance(s, RefusedStep)]


__all__ = [
    "DESTINATIONS",
    "SCHEDULES",
    "Machine",
    "MachineLaunch",
    "MachineStep",
    "are_unlike",
    "is_private",
    "prepared",
    "unsupported",
]
