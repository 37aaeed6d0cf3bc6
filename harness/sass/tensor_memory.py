"""Tensor memory of a block: its allocation, loads and stores of it by warps, and commits (UTCATOMSWS, LDTM, STTM,
UTCBAR).

The memory, and the cell of each register, are those of tcgen05 (`ptxdiff.emulator.kernel.tcgen05`). Operations are
complete when they are issued, so what waits for them does nothing, and machine code that does not wait is not detected:
the PTX emulator looks for it, and for races in tensor memory.

Cells that were never written hold bits chosen at random, as registers do. ptxas keeps book of allocations in three
words of the shared memory that belongs to the driver: at 0x54 the parts of 32 columns that are held, at 0x58 the first
part of each allocation, at 0x5c whether the block allocates no more.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.tcgen05.loads import PER_COUNT, image
from ptxdiff.emulator.kernel.tcgen05.memory import CELLS, COLUMNS, TensorMemory, cell
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass import async_copy
from ptxdiff.sass.control import refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep
from ptxdiff.sass.matrices import Act, whole_warps
from ptxdiff.sass.shared import SharedBlocks
from ptxdiff.sass.text import BYTES, MachineFault, MachineInstruction, Operand, plain

_PART = 32
"""Columns that a bit of an allocation stands for."""
_QUARTERS = 4


class BlocksTensorMemory:
    """The tensor memory of the blocks that run together on a machine."""

    def __init__(self, machine: Machine) -> None:
        blocks = machine.lanes // machine.threads
        self.memory = TensorMemory(blocks)
        self.memory.split[:] = 1  # each cell has its own records
        self.memory.undefined[:] = 0
        self.memory.words = machine.random.integers(0, 1 << 32, blocks * CELLS, np.uint32)
        self.machine = machine
        self.collectors: dict[tuple[int, str], tuple[str, Array, int]] = {}
        self.accumulators: dict[tuple[object, ...], object] = {}
        self.storing = np.zeros(blocks * CELLS, np.int32)
        """By cell, the number of the warp behind the one whose store to it is not waited for; 0: no such store."""
        self.stores: dict[int, list[Array]] = {}  # the cells of these stores, by warp

    @classmethod
    def of(cls, machine: Machine) -> BlocksTensorMemory:
        """That of a machine."""
        if machine.tensor is None:
            machine.tensor = cls(machine)
        assert isinstance(machine.tensor, cls)
        return machine.tensor

    def allocate(self, blocks: list[int], parts: int) -> int | None:
        """The first of as many parts that were free in all of some blocks; None if there are none."""
        # The step that allocates is for the emulator's messages alone.
        first = self.memory.allocate(None, blocks, parts * _PART)  # type: ignore[arg-type]
        if first is None:
            return None
        some = np.zeros((128, COLUMNS), np.bool_)
        some[:, first : first + parts * _PART] = True
        for block in blocks:
            self._forget(block * CELLS + np.flatnonzero(some))
        return first // _PART

    def free(self, instruction: MachineInstruction, block: int, kept: int) -> None:
        """Free all allocations without a part in a mask. Raises MachineFault if it keeps a part of one."""
        for held in list(self.memory.held[block]):
            mask = (1 << held.count // _PART) - 1 << held.first // _PART
            if kept & mask == mask:
                continue
            if kept & mask:
                raise MachineFault(f"{instruction.text}: frees a part of {held.count} columns of tensor memory")
            self.memory.free(held.step, block, held)
            self.memory.undefined[block * CELLS : (block + 1) * CELLS] = 0

    def _forget(self, cells: Array) -> None:
        self.memory.words[cells] = self.machine.random.integers(0, 1 << 32, len(cells), np.uint32)
        self.memory.undefined[cells] = 0
        self.storing[cells] = 0

    def stored(self, warps: Array, cells: Array) -> None:
        """Note stores of warps, by warp, until they wait for them."""
        self.storing[cells] = (warps + 1).reshape(-1, 1, 1)
        for warp, some in zip(warps.tolist(), cells, strict=True):
            self.stores.setdefault(warp, []).append(some.reshape(-1))

    def waited(self, warps: Array) -> None:
        """Warps wait for their stores."""
        for warp in warps.tolist():
            for cells in self.stores.pop(warp, ()):
                mine = cells[self.storing[cells] == warp + 1]
                self.storing[mine] = 0

    def refuse_unfinished(self, instruction: MachineInstruction, cells: Array, warps: Array | None = None) -> None:
        """Raise MachineFault for cells to which another warp stores, and has not waited for that.

        warps: those that access the cells, by warp; None: the tensor cores.
        """
        if not self.stores:
            return
        by = self.storing[cells]
        bad = by != 0 if warps is None else (by != 0) & (by != (warps + 1).reshape(-1, 1, 1))
        if bad.any():
            number, warp = int(cells[bad][0]), int(by[bad][0]) - 1
            at = f"lane {number % CELLS // COLUMNS}, column {number % COLUMNS}"
            raise MachineFault(
                f"race: {instruction.text} accesses {at} of tensor memory, to which warp "
                f"{warp % (self.machine.threads // _WARP)} stores without a wait for it"
            )

    def settle(self, cells: Array) -> None:
        """Give the undefined bits of cells bits chosen at random."""
        memory = self.memory
        bad = memory.undefined[cells]
        if bad.any():
            noise = self.machine.random.integers(0, 1 << 32, bad.shape, np.uint32)
            memory.words[cells] = memory.words[cells] & ~bad | noise & bad
            memory.undefined[cells] = 0

    def refuse_free(self, instruction: MachineInstruction, cells: Array) -> None:
        """Raise MachineFault for cells that are not allocated."""
        bad = ~self.memory.open[cells // CELLS, cells % COLUMNS]
        if bad.any():
            number = int(cells[bad][0])
            at = f"lane {number % CELLS // COLUMNS}, column {number % COLUMNS}"
            raise MachineFault(f"{instruction.text}: {at} of tensor memory is not allocated")


# Allocation -------------------------------------------------------------------------------------------------------


def _allocation(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTCATOMSWS.FIND_AND_SET.ALIGN: find free parts of 32 columns and hold them: whether there were some, and the
    first. UTCATOMSWS.AND: hold only those of a mask from then on. .2CTA: parts that are free in both blocks of a
    pair."""
    words, operands, guard = instruction.modifiers, instruction.operands, instruction.guard
    if guard is not None and guard.kind != "UP":
        raise refuse(instruction, "has a predicate of lanes")
    if words == ("AND",) and len(operands) == 2 and operands[0] == Operand("UR", -1) and plain(operands[1], "UR"):
        kept = operands[1]

        def free(machine: Machine, lanes: Lanes, count: int) -> None:
            tensor, held = BlocksTensorMemory.of(machine), machine.uniform_register(kept.number)
            for warp in _warps(machine, lanes):
                tensor.free(instruction, warp * _WARP // machine.threads, int(held[warp]))

        return Act(instruction, free)
    pair = words[:1] == ("2CTA",)
    known = words[pair:] == ("FIND_AND_SET", "ALIGN") and len(operands) == 3
    if not known or not plain(operands[0], "UP") or not all(plain(o, "UR") for o in operands[1:]):
        raise refuse(instruction)
    found, to, asked = operands

    def allocate(machine: Machine, lanes: Lanes, count: int) -> None:
        tensor = BlocksTensorMemory.of(machine)
        for warp in _warps(machine, lanes):
            parts = int(machine.uniform_register(asked.number)[warp])
            if parts not in (1, 2, 4, 8, 16):
                raise MachineFault(f"{instruction.text}: {parts} parts of 32 columns of tensor memory")
            block = warp * _WARP // machine.threads
            first = tensor.allocate(_members(machine, instruction, block) if pair else [block], parts)
            machine.write_uniform("UP", found.number, np.array([warp]), np.array([first is not None], np.uint8))
            # What the register gets where there are none is not known; the code asks again.
            value = machine.random.integers(0, 1 << 32) if first is None else first
            machine.write_uniform("UR", to.number, np.array([warp]), np.array([value], np.uint32))

    return Act(instruction, allocate)


def _members(machine: Machine, instruction: MachineInstruction, block: int) -> list[int]:
    """The blocks of a block's pair: those of its cluster whose ranks differ in the lowest bit alone."""
    cluster = SharedBlocks.of(machine).cluster
    first = block // cluster * cluster
    other = first + (block - first ^ 1)
    if other - first >= cluster:
        raise MachineFault(f"{instruction.text}: a block of rank {block - first} of {cluster} has no other of a pair")
    return sorted([block, other])


def _warps(machine: Machine, lanes: Lanes) -> list[int]:
    warps: list[int] = np.unique((machine._all if lanes is None else lanes) // _WARP).tolist()
    return warps


def _no_more(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UVIRTCOUNT.DEALLOC.SMPOOL, where tcgen05.relinquish_alloc_permit is: other kernels may allocate now."""
    sizes = instruction.operands
    if instruction.modifiers != ("DEALLOC", "SMPOOL") or len(sizes) != 1 or not plain(sizes[0], "int"):
        raise refuse(instruction)
    return Act(instruction, _nothing)


def _nothing(machine: Machine, lanes: Lanes, count: int) -> None:
    """Time does not pass, and there is no other kernel."""


def _trap(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """BPT.TRAP 0x1 ends a kernel with an error: PTX's trap, and what ptxas makes of a wrong deallocation."""
    if instruction.modifiers != ("TRAP",) or instruction.operands != (Operand("int", value=1),):
        raise refuse(instruction)

    def trap(machine: Machine, lanes: Lanes, count: int) -> None:
        lane = 0 if lanes is None else int(lanes[0])
        raise MachineFault(f"thread {lane % machine.threads} runs a trap at 0x{instruction.address:x}")

    return Act(instruction, trap)


# Loads and stores -------------------------------------------------------------------------------------------------

_SHAPES = {"": "32x32b", "16dp64bit": "16x64b", "16dp128bit": "16x128b", "16dp256bit": "16x256b",
           "16dp32bit_t0_t15": "16x32bx2", "16dp32bit_t16_t31": "16x32bx2"}  # fmt: skip
_WORDS = re.compile(
    r"(16dp64bit|16dp128bit|16dp256bit|16dp32bit_t0_t15|16dp32bit_t16_t31|)\.?(?:x(2|4|8|16|32|64|128))?"
    r"\.?(PACK16BIT|EXPAND16BIT|)"
)

_REDUCTION = re.compile(r"STAT((?:\.\w+)*)\.(MIN|MAX)(?:(?:(ABS)?\.F32(\.NAN)?)|(\.S32)|)")


def _reduction(words: re.Match[str]) -> Callable[[list[Array]], Array]:
    """What makes one word for each thread of those that it loads: the instructions min and max of PTX."""
    whole = words[0]
    kind = "f32" if ".F32" in whole else "s32" if words[5] else "u32"
    function = find(words[2].lower(), ("NaN", kind) if words[4] else (kind,))[0].array_function()

    def reduced(values: list[Array]) -> Array:
        if words[3]:
            values = [value & np.uint32(0x7FFFFFFF) for value in values]
        # The first value meets itself, which makes a single NaN canonical, as in `tcgen05.ld.red`.
        result = np.asarray(function(len(values[0]), values[0], values[0]))
        for value in values[1:]:
            result = np.asarray(function(len(result), result, value))
        return result.astype(np.uint32)

    return reduced


def _access(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """LDTM and STTM: registers of a warp, and cells of its quarter of the lanes.

    LDTM.STAT also writes the least or the greatest word that each thread loads.
    """
    loads = instruction.opcode == "LDTM"
    given_words, operands = ".".join(instruction.modifiers), instruction.operands
    reducing = _REDUCTION.fullmatch(given_words) if loads else None
    if reducing is not None:
        given_words = reducing[1].removeprefix(".")
    words = _WORDS.fullmatch(given_words)
    if words is None or len(operands) != 2 + (reducing is not None):
        raise refuse(instruction)
    if words[3] == ("EXPAND16BIT" if loads else "PACK16BIT") or (reducing is not None and words[3]):
        raise refuse(instruction)
    data, where = operands[-2:] if loads else operands[::-1]
    shape, packed = _SHAPES[words[1]], bool(words[3])
    count_of = PER_COUNT[shape] * int(words[2] or 1)
    # RZ stands for all registers of a store. Those of other accesses are within the 255 that there are.
    zeros = not loads and data.number == -1
    if (
        where.kind != "tmem"
        or where.suffix
        or not plain(data, "R")
        or not (zeros or 0 <= data.number <= 255 - count_of)
    ):
        raise refuse(instruction)
    reduced = None if reducing is None else _reduction(reducing)
    if reduced is not None and (
        not plain(operands[0], "R") or data.number <= operands[0].number < data.number + count_of
    ):
        raise refuse(instruction)
    lane, column = image(shape, int(words[2] or 1), packed, 0)
    takes_part = np.ones(_WARP, np.bool_)
    if words[1].startswith("16dp32bit"):
        takes_part = np.arange(_WARP) // 16 == (words[1] == "16dp32bit_t16_t31")

    def cells_of(machine: Machine, warps: Array) -> Array:
        given = machine.uniform_register(where.number)[warps].astype(np.int64) + where.offset & 0xFFFFFFFF
        row, first = given >> 16, given & 0xFFFF
        quarter = warps % (machine.threads // _WARP) % _QUARTERS * 32
        if ((row != quarter) & ((shape == "32x32b") | (row != quarter + 16))).any():
            raise MachineFault(f"{instruction.text}: a warp accesses lanes of tensor memory that are not its own")
        columns = column + first[:, None, None]
        if columns.max() + packed >= COLUMNS:
            raise MachineFault(f"{instruction.text}: a column of tensor memory above {COLUMNS - 1}")
        blocks = warps * _WARP // machine.threads
        return np.asarray(blocks[:, None, None] * CELLS + cell(lane + row[:, None, None], columns))[:, :, takes_part]

    def access(machine: Machine, lanes: Lanes, count: int) -> None:
        warps = whole_warps(machine, lanes, instruction)
        tensor, cells = BlocksTensorMemory.of(machine), cells_of(machine, warps)
        tensor.refuse_free(instruction, cells)
        tensor.refuse_unfinished(instruction, cells, warps)
        if packed:
            tensor.refuse_free(instruction, cells + 1)
            tensor.refuse_unfinished(instruction, cells + 1, warps)
        words_of, mine = tensor.memory.words, machine._all if lanes is None else lanes
        own = mine.reshape(-1, _WARP)[:, takes_part]
        loaded: list[Array] = []
        for number in range(count_of):
            some, register = cells[:, number], -1 if zeros else data.number + number
            if loads:
                found = words_of[some]
                if packed:
                    found = found & np.uint32(0xFFFF) | words_of[some + 1] << np.uint32(16)
                whole = takes_part.all()
                machine.write("R", register, lanes if whole else own.reshape(-1), found.reshape(-1).copy())
                loaded.append(found.reshape(-1))
                continue
            given = machine.read("R", register, own.reshape(-1)).reshape(own.shape)
            if packed:
                noise = machine.random.integers(0, 1 << 16, (2, *given.shape), np.uint32) << np.uint32(16)
                words_of[some] = given & np.uint32(0xFFFF) | noise[0]
                words_of[some + 1] = given >> np.uint32(16) | noise[1]
            else:
                words_of[some] = given
        if not loads:
            tensor.stored(warps, np.concatenate([cells, cells + 1], axis=1) if packed else cells)
        if reduced is not None:
            machine.write("R", operands[0].number, own.reshape(-1), reduced(loaded))

    return Act(instruction, access)


class StoresWaitedFor(MachineStep):
    """FENCE.VIEW.ASYNC.T, where tcgen05.wait::st is: the warp's stores to tensor memory are complete.

    ptxas writes nothing for tcgen05.wait::ld, and nothing for the fences of tcgen05 before and after a barrier.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count and machine.tensor is not None:
            BlocksTensorMemory.of(machine).waited(np.array(_warps(machine, lanes)))
        fibre.pc += BYTES
        return True


# Commits ----------------------------------------------------------------------------------------------------------


def _commit(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTCBAR: the operations that a thread has issued arrive at an mbarrier when they are complete, so at once.

    .MULTICAST: at the same place in each block of a mask. .2CTA changes nothing: they are complete in both blocks.
    """
    operands, guard = instruction.operands, instruction.guard
    several = instruction.modifiers[-1:] == ("MULTICAST",)
    if instruction.modifiers not in ((), ("2CTA",), ("MULTICAST",), ("2CTA", "MULTICAST")):
        raise refuse(instruction)
    if len(operands) != 2 + several or operands[1] != Operand("UR", -1) or (several and not plain(operands[2], "UR")):
        raise refuse(instruction)
    if not async_copy._is_uniform(operands[0]) or (guard is not None and guard.kind != "UP"):
        raise refuse(instruction)
    where = operands[0].uniform
    assert where is not None

    def commit(machine: Machine, lanes: Lanes, count: int) -> None:
        shared, every = SharedBlocks.of(machine), machine._all if lanes is None else lanes
        warps, first = np.unique(every // _WARP, return_index=True)
        for warp, lane in zip(warps.tolist(), every[first].tolist(), strict=True):
            at = int(machine.uniform_register(where.number)[warp])
            addresses = [at]
            if several:
                addresses = shared.near(instruction, at, lane, int(machine.uniform_register(operands[2].number)[warp]))
            for address in addresses:
                _arrive(machine, instruction, address, lane)

    return Act(instruction, commit)


def _arrive(machine: Machine, instruction: MachineInstruction, address: int, lane: int) -> None:
    """One arrival of a lane at the mbarrier at an address."""
    shared, one = SharedBlocks.of(machine), np.array([lane])
    place = int(shared.places(instruction, np.array([address]), async_copy._SIZE, one, reaches=True)[0])
    found = async_copy._barrier_at(shared, instruction, place)
    if found.pending < 1:
        raise MachineFault(f"{instruction.text}: an arrival that the phase of the mbarrier does not take")
    shared.order.tick()
    found.pending -= 1
    found.arrive(shared.order, shared.order.release(one))
    found.settle(shared.order)


TENSOR_MEMORY: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    "UTCATOMSWS": _allocation,
    "UVIRTCOUNT": _no_more,
    "BPT": _trap,
    "LDTM": _access,
    "STTM": _access,
    "UTCBAR": _commit,
}
