"""Generic addresses in machine code: LD, ST, ATOM, RED and QSPC, which find the memory that an address is of.

Windows for shared memory, for the local memory of a thread and for the parameters have the places that the PTX emulator
gives them; all other addresses are those of global memory. ptxas has the windows from special registers or from the
driver's words in constant bank 0 (`driver_words`).

A strong access to shared memory (volatile, relaxed, acquire or release in PTX) does not race with another one. A strong
store releases what happened before its thread's last fence (MEMBAR), and a strong load orders its thread after what was
released where it reads: at once if its scope is the block (STRONG.SM), for which ptxas writes no fence behind
`ld.acquire`; else at the next CCTL.IVALL or MEMBAR. So do atomic operations (`SharedBlocks.atomic`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.memory.space import LOCAL_WINDOW, PARAMETER_WINDOW, SHARED_WINDOW
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.control import MemoryAccess, _memory, as_words, global_addresses, global_rows, refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Machine, MachineStep, parameters_at
from ptxdiff.sass.shared import SharedBlocks, _Atomic, shared_step, stored
from ptxdiff.sass.text import BYTES, MachineFault, MachineInstruction, Operand, plain

_LOW = 0xFFFFFFFF


def _window(of: Any) -> Any:
    """The upper word of an address, or of an array of them."""
    return of >> 32


class GenericAccess(MemoryAccess):
    """LD and ST: each lane accesses global or local memory, shared memory of its cluster, or reads a parameter."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        instruction, size = self.instruction, self.size
        lanes, count = machine.guarded(instruction.guard, fibre.lanes)
        fibre.pc += BYTES
        if not count:
            return True
        every = machine._all if lanes is None else lanes
        addresses = global_addresses(machine, lanes, count, self.where)
        loads = self.loads
        rows = np.zeros((count, size), np.uint8) if loads else stored(machine, self.data, size, lanes, count)
        window = _window(addresses)
        elsewhere = np.ones(count, np.bool_)
        for number, access in _WINDOWS.items():
            here = window == number
            if here.any():
                elsewhere &= ~here
                given = None if loads else np.ascontiguousarray(rows[here])
                found = access(machine, self, addresses[here], every[here], given)
                if loads:
                    rows[here] = found
        if elsewhere.all():
            rows = global_rows(machine, instruction, addresses, size, None if loads else rows)
        elif elsewhere.any():
            given = None if loads else np.ascontiguousarray(rows[elsewhere])
            rows[elsewhere] = global_rows(machine, instruction, addresses[elsewhere], size, given)
        if loads and self.data.number >= 0:
            for k, word in enumerate(as_words(rows, size, self.signed)):
                machine.write("R", self.data.number + k, lanes, word)
        return True


def _shared(machine: Machine, step: MemoryAccess, addresses: Array, lanes: Array, rows: Array | None) -> Array:
    instruction, size = step.instruction, step.size
    blocks, strong = SharedBlocks.of(machine), "STRONG" in instruction.modifiers
    places = blocks.places(instruction, addresses & _LOW, size, lanes, reaches=True)
    if rows is None:
        if strong:
            blocks.acquire(instruction, places, lanes)
        return blocks.load(instruction, places, size, lanes, strong)
    if strong:
        table = blocks.update(instruction, places, size, lanes)
        table[places // size] = rows
        blocks.publish(instruction, places, lanes)
    else:
        blocks.store(instruction, places, rows, lanes)
    return rows


def _local(machine: Machine, step: MemoryAccess, addresses: Array, lanes: Array, rows: Array | None) -> Array:
    return step._local(machine, lanes, addresses & _LOW, rows)


def _parameters(machine: Machine, step: MemoryAccess, addresses: Array, lanes: Array, rows: Array | None) -> Array:
    launch, size = machine.launch, step.size
    at, bank = addresses - parameters_at(launch.code.base), launch.bank
    outside = (at < 0).any() or (at + size > len(launch.parameters)).any()
    if rows is not None or outside or (addresses % size).any():
        raise MachineFault(f"{step.instruction.text}: an access to the parameters that is no load of them")
    places = launch.code.base + at[:, None] + np.arange(size)
    launch.look_at(bank, places)
    return np.asarray(bank.data[places])


_WINDOWS: dict[int, Callable[[Machine, MemoryAccess, Array, Array, Array | None], Array]] = {
    _window(SHARED_WINDOW): _shared,
    _window(LOCAL_WINDOW): _local,
    _window(PARAMETER_WINDOW): _parameters,
}


class GenericAtomic(_Atomic):
    """ATOM and RED: as of global memory, or all lanes update shared memory of their cluster, in the order of lanes."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run. Raises Unsupported where lanes update different memories, or local memory."""
        instruction, size = self.instruction, self.size
        lanes, count = machine.guarded(instruction.guard, fibre.lanes)
        addresses = global_addresses(machine, lanes, count, self.where)
        window = _window(addresses)
        near = window == _window(SHARED_WINDOW)
        if not np.isin(window, list(_WINDOWS)).any():
            return super().run(machine, fibre)
        if not near.all():
            raise refuse(instruction, "updates several memories at once, or one that is no global or shared memory")
        fibre.pc += BYTES
        every = machine._all if lanes is None else lanes
        columns = [self._column(machine, source, lanes, count) for source in self.sources]
        blocks, kind = SharedBlocks.of(machine), np.dtype(f"u{size}")
        places = blocks.places(instruction, addresses & _LOW, size, every, reaches=True)
        memory = blocks.atomic(instruction, places, size, every).view(kind)[:, 0]
        index = (places // size).tolist()
        cells, old = self._updated({at: int(memory[at]) for at in set(index)}, index, columns)
        memory[list(cells)] = np.array(list(cells.values()), kind)
        if self.to is not None:
            self._give(machine, lanes, old, columns)
        return True


class MemoryQuery(MachineStep):
    """QSPC: whether an address is one of a kind of memory."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            to, _, where = self.instruction.operands
            every = machine._all if lanes is None else lanes
            addresses = global_addresses(machine, lanes, count, where)
            window, word = _window(addresses), self.instruction.modifiers[-1]
            found: Array = window == _window(LOCAL_WINDOW if word == "L" else SHARED_WINDOW)
            if word == "S":
                found &= SharedBlocks.of(machine).own(addresses & _LOW, every)
            elif word == "G":
                found = ~np.isin(window, list(_WINDOWS))
            machine.write("P", to.number, lanes, found.astype(np.uint8))
        fibre.pc += BYTES
        return True


class SharedWindow(MachineStep):
    """SR_SWINHI: the upper word of a generic address of shared memory."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place, high = self.instruction.operands[0], _window(SHARED_WINDOW)
            if place.kind == "UR":
                warps = np.unique((machine._all if lanes is None else lanes) // _WARP)
                machine.write_uniform("UR", place.number, warps, np.full(len(warps), high, np.uint32))
            else:
                machine.write("R", place.number, lanes, np.full(count, high, np.uint32))
        fibre.pc += BYTES
        return True


def shared_window(instruction: MachineInstruction) -> MachineStep | None:
    """The step of a read of SR_SWINHI; None for other instructions."""
    kinds = {"S2R": "R", "S2UR": "UR"}
    operands = instruction.operands
    if instruction.opcode not in kinds or operands[1:] != (Operand("word", name="SR_SWINHI"),):
        return None
    if instruction.modifiers or not plain(operands[0], kinds[instruction.opcode]):
        raise refuse(instruction)
    return SharedWindow(instruction)


def _access(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    step = _memory(instruction, code)
    assert isinstance(step, MemoryAccess)
    return GenericAccess(instruction, step.size, step.signed, step.where, step.data)


def _atomic(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    step = shared_step(instruction, code)
    assert isinstance(step, _Atomic)
    return GenericAtomic(instruction, step.size, step.update, step.where, step.to, step.sources)


def _query(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    words, operands = instruction.modifiers, instruction.operands
    if words not in (("E", "S"), ("E", "D"), ("E", "L"), ("E", "G")) or len(operands) != 3:
        raise refuse(instruction)
    to, unused, where = operands
    known = plain(to, "P") and unused == Operand("R", -1) and where.kind == "mem" and not where.name
    if not known or not _is_whole(where):
        raise refuse(instruction)
    return MemoryQuery(instruction)


def _is_whole(where: Operand) -> bool:
    """Whether an address is a pair of registers, or a pair of uniform ones, with an offset."""
    pair = where.base or where.uniform
    both = where.base is not None and where.uniform is not None
    return pair is not None and not both and pair.suffix in ("", "64") and pair.number >= 0 and not pair.number % 2


GENERIC: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    **dict.fromkeys(("LD", "ST"), _access),
    **dict.fromkeys(("ATOM", "RED"), _atomic),
    "QSPC": _query,
}
