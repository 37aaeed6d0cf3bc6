"""Clusters of blocks in machine code: their shared memory, which each of them can access, and their barrier.

An address of shared memory has the rank of a block above `RANK_BITS`. LDS, STS and all else that accesses only its own
block's memory finds that block's own rank there. Other blocks' memory is accessed with generic addresses (LD, ST,
ATOM), whose upper word is SR_SWINHI, by arrivals at mbarriers (SYNCS.ARRIVE with .RED) and by STAS, a store whose bytes
arrive at an mbarrier beside them.

Threads of a cluster are one team of `HappensBefore`. UCGABAR_ARV releases and UCGABAR_WAIT acquires, with fences before
it or without. An access to a block that may not have begun is a fault, and so is one to a block that has ended; one to
a block that may have ended is not seen.

In a launch without clusters the steps of this module do not exist, and what needs them is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier
from ptxdiff.emulator.kernel.memory.space import RANK_BITS
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.async_copy import _barrier_at
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, CLUSTER_SIZES, Fibre, Machine, MachineLaunch, MachineStep, RefusedStep
from ptxdiff.sass.matrices import whole_warps
from ptxdiff.sass.shared import SharedBlocks, stored
from ptxdiff.sass.text import BYTES, MachineFault, MachineInstruction, Operand, Unsupported, plain

MOST = 16
"""The most blocks of a cluster."""
_TURN, _PARITY = 0x48, 0x50
"""Places in the driver's shared memory for allocations by pairs of blocks: see `ClusterBlocks`."""
_BELOW = (1 << RANK_BITS) - 1
_READS = {"S2R": "R", "S2UR": "UR", "CS2R": ""}
"""By instruction that reads a special register: the kind of register that gets it, in a cluster."""
_STAS = {(): 4, ("64",): 8, ("128",): 16}
_BARRIER = 8


def checked(cluster: Sequence[int], grid: Sequence[int]) -> int:
    """The blocks of a cluster. Raises Unsupported for clusters that do not run, or that the grid is not made of."""
    size = math.prod(cluster)
    if min(cluster) < 1 or size > MOST:
        raise Unsupported(f"clusters of {tuple(cluster)} blocks: a cluster has 1 to {MOST} blocks")
    if any(blocks % of for blocks, of in zip(grid, cluster, strict=True)):
        raise Unsupported(f"a grid of {tuple(grid)} blocks is not made of clusters of {tuple(cluster)}")
    return size


class ClusterBlocks(SharedBlocks):
    """Shared memory and barriers of the blocks of whole clusters that run together.

    rank: of each lane's block. phase: of each cluster's barrier, whose present phase the lanes in `arrived_for` have
    arrived for; -1: they have not, or have waited. arriving, released: what the arrivals of this phase and of the last
    one released. passed: the lanes that have passed a barrier. at_wait: those that wait.
    """

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        lanes, count = machine.lanes, machine.lanes // machine.threads // self.cluster
        self.rank = (machine.first + np.arange(lanes) // machine.threads) % self.cluster
        self.team = self.cluster * machine.threads
        self.phase = np.zeros(count, np.int64)
        self.arrived_for = np.full(lanes, -1, np.int64)
        self.arriving: list[Array | None] = [None] * count
        self.released: list[Array | None] = [None] * count
        self.passed = np.zeros(lanes, np.bool_)
        self.at_wait = np.zeros(lanes, np.bool_)
        if self.allocates:
            self._begin_turns()

    def _begin_turns(self) -> None:
        """Let the block of even rank in each pair allocate tensor memory first.

        ptxas writes turns: a block waits at the mbarrier at 0x48 for a phase whose parity stands at 0x50, and then lets
        the other block go on. What the driver leaves there at first is not known; with these values the turns begin.
        """
        for block in range(len(self.machine.alive) // self.machine.threads):
            first = block * self.memory.size
            place, lane = first + _TURN, block * self.machine.threads
            agent = self.order.agent(("mbarrier", place % (self.memory.size * self.cluster)))
            self.mbarriers[place] = Barrier(1, 1, init_time=self.order.clock, init_lane=lane, agent=agent)
            self.memory.bytes[first + _PARITY] = self.rank[lane] % 2 == 0

    def places(
        self, instruction: MachineInstruction, addresses: Array, size: int, lanes: Array, low: int | None = None,
        *, reaches: bool = False,
    ) -> Array:  # fmt: skip
        """See SharedBlocks.places. Raises MachineFault for a rank that is none, or of a block that is out of reach."""
        if low is not None:  # a descriptor of a matrix has no rank
            return super().places(instruction, addresses, size, lanes, low)
        rank, own = addresses >> RANK_BITS, self.rank[lanes]
        elsewhere = rank != own
        if elsewhere.any():
            named = int(rank[elsewhere][0])
            if not reaches or named >= self.cluster or (rank >= self.cluster).any():
                raise MachineFault(
                    f"{instruction.text}: an address of the block of rank {named} of {self.cluster}, "
                    f"in the block of rank {int(own[elsewhere][0])}"
                )
            self.reach(instruction, lanes[elsewhere], rank[elsewhere])
        found = super().places(instruction, addresses & _BELOW, size, lanes)
        return np.asarray(found + (rank - own) * self.memory.size)

    def own(self, addresses: Array, lanes: Array) -> Array:
        """See SharedBlocks.own."""
        return np.asarray(addresses >> RANK_BITS == self.rank[lanes])

    def near(self, instruction: MachineInstruction, address: int, lane: int, ranks: int) -> list[int]:
        """See SharedBlocks.near."""
        if not ranks or ranks >> self.cluster:
            raise MachineFault(f"{instruction.text}: copies to the blocks of mask 0x{ranks:x} of {self.cluster}")
        below = address & _BELOW
        return [below | rank << RANK_BITS for rank in range(self.cluster) if ranks >> rank & 1]

    def reach(self, instruction: MachineInstruction, lanes: Array, rank: Array) -> None:
        """Raise MachineFault for lanes that access a block of their cluster that may not have begun, or has ended."""
        threads = self.machine.threads
        target = lanes // threads - self.rank[lanes] + rank
        alive: Array = np.asarray(self.machine.alive.reshape(-1, threads).any(axis=1))
        ended = ~alive[target]
        early = ~self.passed[lanes]
        if early.any():  # another way of synchronisation is enough, too
            everyone = rank[:, None] * threads + np.arange(threads)
            early &= ~(self.order.components(lanes, everyone) > 0).any(axis=1)
        for bad, why in ((ended, "has ended"), (early, "may not have begun: no barrier of the cluster lies before")):
            if bad.any():
                number = int(rank[np.flatnonzero(bad)[0]])
                raise MachineFault(f"{instruction.text}: reaches the block of rank {number} of a cluster, which {why}")

    # The barrier --------------------------------------------------------------------------------------------------

    def arrive_at_cluster(self, instruction: MachineInstruction, lanes: Array) -> None:
        """Let lanes arrive. Raises MachineFault for one that has arrived and not waited."""
        if (self.arrived_for[lanes] >= 0).any():
            raise MachineFault(f"{instruction.text}: a thread arrives twice, and no UCGABAR_WAIT lies between")
        clusters = lanes // self.team
        self.arrived_for[lanes] = self.phase[clusters]
        self.order.tick()
        for number in np.unique(clusters).tolist():
            mine = self.order.release(lanes[clusters == number])
            self.arriving[number] = self.order.join(self.arriving[number], mine)
        self._complete_phases(np.unique(clusters))

    def wait_for_cluster(self, instruction: MachineInstruction, fibre: Fibre, lanes: Array) -> bool:
        """Let lanes wait; whether the fibre goes on. Raises MachineFault for one that has not arrived."""
        machine = self.machine
        if (self.arrived_for[lanes] < 0).any():
            raise MachineFault(f"{instruction.text}: a thread waits at a barrier at which it has not arrived")
        fibre.pc += BYTES
        mine = machine._all if fibre.lanes is None else fibre.lanes
        if len(lanes) == len(mine) and self._ready(lanes).all():
            self._pass(lanes)
            return True
        self.at_wait[lanes] = True
        machine.resume[lanes] = fibre.pc
        fibre.lanes = mine[~np.isin(mine, lanes, assume_unique=True)]
        self._let_go()
        if len(fibre.lanes):
            machine.launch.diverged = True
        return len(fibre.lanes) > 0

    def release(self, blocks: Array) -> None:
        """See SharedBlocks.release. Threads that have ended are not waited for at the barrier of their cluster."""
        super().release(blocks)
        self._complete_phases(np.unique(blocks // self.cluster))

    def _ready(self, lanes: Array) -> Array:
        return np.asarray(self.arrived_for[lanes] < self.phase[lanes // self.team])

    def _complete_phases(self, clusters: Array) -> None:
        """Begin the next phase of barriers at which all threads have arrived that have not ended.

        It orders what came before arrivals; nothing orders what a thread did that ended without one.
        """
        for number in clusters.tolist():
            mine = slice(number * self.team, number * self.team + self.team)
            alive = self.machine.alive[mine]
            here = self.arrived_for[mine] == self.phase[number]
            if not here[alive].all() or not here.any():
                continue
            self.phase[number] += 1
            self.released[number], self.arriving[number] = self.arriving[number], None
        self._let_go()

    def _let_go(self) -> None:
        waiting = np.flatnonzero(self.at_wait)
        waiting = waiting[self._ready(waiting)]
        if not len(waiting):
            return
        machine = self.machine
        self.at_wait[waiting] = False
        self._pass(waiting)
        for pc in np.unique(machine.resume[waiting]):
            group = waiting[machine.resume[waiting] == pc]
            machine.fibres.append(Fibre(int(pc), None if len(group) == machine.lanes else group))

    def _pass(self, lanes: Array) -> None:
        self.arrived_for[lanes] = -1
        self.passed[lanes] = True
        clusters = lanes // self.team
        for number in np.unique(clusters).tolist():
            released = self.released[number]
            if released is not None:
                self.order.acquire(lanes[clusters == number], released)


def _blocks(machine: Machine) -> ClusterBlocks:
    assert isinstance(machine.blocks, ClusterBlocks)
    return machine.blocks


class ClusterBarrier(MachineStep):
    """UCGABAR_ARV and UCGABAR_WAIT: whole warps arrive at the barrier of their cluster, or wait for the others."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        whole_warps(machine, lanes, self.instruction)
        every = machine._all if lanes is None else lanes
        if self.instruction.operands == _WAIT:
            return _blocks(machine).wait_for_cluster(self.instruction, fibre, every)
        _blocks(machine).arrive_at_cluster(self.instruction, every)
        fibre.pc += BYTES
        return True


_ARRIVE = (Operand("word", name="_ARV"),)
_WAIT = (Operand("word", name="_WAIT"),)
"""How the text of UCGABAR_ARV and UCGABAR_WAIT is read: the opcode ends before the line."""


def _block_coordinates(launch: MachineLaunch, blocks: Array, axis: int) -> Array:
    """The place along an axis of blocks that are numbered cluster by cluster, and by rank within one."""
    assert launch.cluster is not None
    size = math.prod(launch.cluster)
    parts = []
    for number, sizes in ((blocks // size, _clusters(launch)), (blocks % size, launch.cluster)):
        parts.append((number % sizes[0], number // sizes[0] % sizes[1], number // (sizes[0] * sizes[1]))[axis])
    return np.asarray(parts[0] * launch.cluster[axis] + parts[1])


def _clusters(launch: MachineLaunch) -> tuple[int, ...]:
    """The clusters of the grid along x, y and z."""
    assert launch.cluster is not None
    return tuple(blocks // of for blocks, of in zip(launch.grid, launch.cluster, strict=True))


class ClusterRegister(MachineStep):
    """What a launch in clusters changes of special registers: see `_REGISTERS`."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place, name = self.instruction.operands
            every = machine._all if lanes is None else lanes
            if name.name == "SR_CgaCtaId":
                value = _blocks(machine).rank[every].astype(np.uint32)
            else:
                numbers = machine.first + every // machine.threads
                value = _block_coordinates(machine.launch, numbers, _AXES[name.name]).astype(np.uint32)
            if place.kind == "UR":
                warps, first = np.unique(every // _WARP, return_index=True)
                machine.write_uniform("UR", place.number, warps, value[first])
            else:
                machine.write("R", place.number, lanes, value)
        fibre.pc += BYTES
        return True


_AXES = {"SR_CTAID.X": 0, "SR_CTAID.Y": 1, "SR_CTAID.Z": 2}
_REGISTERS = frozenset({"SR_CgaCtaId", *_AXES})
"""The rank of a block in its cluster, and its place in the grid."""


class ClusterSize(MachineStep):
    """SR_CgaSize: an opaque number that tells where the driver's words on clusters lie (`driver_words`).

    ptxas multiplies it by -0xa0 for an index. It is chosen at random for each warp, of two that have these words, so
    code that does anything else with it gives different results.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place = self.instruction.operands[0]
            every = machine._all if lanes is None else lanes
            warps, of_lanes = np.unique(every // _WARP, return_inverse=True)
            bits = machine.undecided(self.instruction, 1)[warps * _WARP]
            chosen = CLUSTER_SIZES[0] + bits.astype(np.uint32)
            if place.kind == "UR":
                machine.write_uniform("UR", place.number, warps, chosen)
            else:
                machine.write("R", place.number, lanes, chosen[of_lanes])
        fibre.pc += BYTES
        return True


_SIZE_REGISTER = Operand("word", name="SR_CgaSize")
_BLACKWELL = 0x380
"""Where parameters begin in constant bank 0 on targets that have this register."""


class StoreThatArrives(MachineStep):
    """STAS: each lane stores to a block of its cluster, and the bytes arrive at an mbarrier there.

    The first register of the address has that of the data, the next one that of the mbarrier.
    """

    def __init__(self, instruction: MachineInstruction, size: int) -> None:
        super().__init__(instruction)
        self.size = size

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        instruction, size = self.instruction, self.size
        lanes, count = machine.guarded(instruction.guard, fibre.lanes)
        fibre.pc += BYTES
        if not count:
            return True
        every = machine._all if lanes is None else lanes
        where, data = instruction.operands
        assert where.base is not None
        to, barrier = (machine.read("R", where.base.number + k, lanes).astype(np.int64) for k in (0, 1))
        if (to >> RANK_BITS != barrier >> RANK_BITS).any():
            raise MachineFault(f"{instruction.text}: the bytes go to another block than their mbarrier's")
        blocks = _blocks(machine)
        places = blocks.places(instruction, to, size, every, reaches=True)
        barriers = blocks.places(instruction, barrier, _BARRIER, every, reaches=True)
        blocks.store(instruction, places, stored(machine, data, size, lanes, count), every)
        blocks.order.tick()
        for place, lane in zip(barriers.tolist(), every.tolist(), strict=True):
            found = _barrier_at(blocks, instruction, place)
            found.bytes -= size
            found.copies = True
            found.arrive(blocks.order, blocks.order.release(np.array([lane])))
            found.settle(blocks.order)
        return True


def in_clusters(steps: Mapping[int, MachineStep], code: MachineCode) -> dict[int, MachineStep]:
    """The steps of a kernel for a launch in clusters."""
    return {address: _in_cluster(step, code) or step for address, step in steps.items()}


def _in_cluster(step: MachineStep, code: MachineCode) -> MachineStep | None:
    """The step that takes a step's place in a launch in clusters; None: none."""
    instruction = step.instruction
    opcode, words, operands = instruction.opcode, instruction.modifiers, instruction.operands
    if opcode == "UCGABAR" and not words and operands in (_ARRIVE, _WAIT):
        return ClusterBarrier(instruction)
    if opcode in _READS and len(operands) == 2 and operands[1].kind == "word" and operands[1].name in _REGISTERS:
        if words or not plain(operands[1], "word") or not plain(operands[0], _READS[opcode]):
            return RefusedStep(instruction, f"{instruction.text} is not known in this form in a cluster")
        return ClusterRegister(instruction)
    if (
        operands[1:] == (_SIZE_REGISTER,)
        and code.base == _BLACKWELL
        and (opcode, words) in (("S2R", ()), ("S2UR", ()), ("CS2R", ("32",)))
    ):
        return ClusterSize(instruction) if plain(operands[0], "UR" if opcode == "S2UR" else "R") else None
    if opcode == "STAS" and words in _STAS and len(operands) == 2:
        where, data = operands
        size = _STAS[words]
        base = where.base
        known = where.kind == "mem" and where.wide and where.uniform is None and not where.offset and not where.name
        even = base is not None and base.number >= 0 and not base.number % 2
        even = even and not (data.number > 0 and data.number % (size // 4))
        if known and even and base is not None and plain(replace(base, suffix=""), "R") and plain(data, "R"):
            return StoreThatArrives(instruction, size)
    return None
