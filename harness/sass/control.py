"""Instructions that are no function of their operands: control flow, memory, special registers, constant banks.

Each maker in `CONTROL` knows all the modifiers that its opcode may have. Those that choose caches decide no value and
are known by name; any other word refuses the instruction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from ptxdiff.emulator import BUFFER_SPACING, Buffer
from ptxdiff.emulator.machine.special_registers import lane_mask
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import (
    _LOCAL_TOP,
    _WARP,
    COLLECTIVE,
    ConstantBank,
    Fibre,
    Lanes,
    Machine,
    MachineStep,
    constant_word,
)
from ptxdiff.sass.shared import shared_step, stored
from ptxdiff.sass.text import BYTES, SCALES, MachineFault, MachineInstruction, Operand, Unsupported, plain
from ptxdiff.sass.warp import exchange_step

_CACHES = frozenset({"EF", "EL", "LU", "EU", "NA", "SYS", "CONSTANT", "LTC64B", "LTC128B", "LTC256B"})
"""Words of loads and stores that say how caches keep the data. They decide no value."""
STRENGTHS = frozenset({"STRONG", "GPU", "SM", "CTA"})
"""Words that say who sees an access when. All accesses happen in order here."""
_SIZES = {"U8": (1, 0), "S8": (1, 1), "U16": (2, 0), "S16": (2, 1), "64": (8, 0), "128": (16, 0)}


def special(instruction: MachineInstruction, code: MachineCode) -> MachineStep | None:
    """The step of an instruction that has no row of the table; None for all others. Raises Unsupported."""
    if spilled := _spill(instruction):
        return spilled
    if window := _shared_window(instruction):
        return window
    if instruction.opcode == "UIADD3" and (total := _uniform_sum_64(instruction)):
        return total
    for table in _tables():
        if made := table.get(instruction.opcode):
            return made(instruction, code)
    return exchange_step(instruction) or shared_step(instruction, code)


def _shared_window(instruction: MachineInstruction) -> MachineStep | None:
    from ptxdiff.sass.generic import shared_window

    return shared_window(instruction)


@cache
def _tables() -> tuple[Mapping[str, Callable[[MachineInstruction, MachineCode], MachineStep]], ...]:
    """What makes the steps of an opcode, for opcodes of which one table has all forms."""
    from ptxdiff.sass.async_copy import ASYNC_COPIES
    from ptxdiff.sass.generic import GENERIC
    from ptxdiff.sass.matrices import MATRICES
    from ptxdiff.sass.tensor_memory import TENSOR_MEMORY
    from ptxdiff.sass.tensor_products import TENSOR_PRODUCTS
    from ptxdiff.sass.warpgroup import WARPGROUPS

    return CONTROL, GENERIC, MATRICES, WARPGROUPS, TENSOR_MEMORY, TENSOR_PRODUCTS, ASYNC_COPIES


def refuse(instruction: MachineInstruction, why: str = "is not known in this form") -> Unsupported:
    """The refusal of an instruction."""
    return Unsupported(f"{instruction.text} {why}")


def _only(instruction: MachineInstruction, *allowed: str) -> None:
    """Refuse modifiers other than these, and modifiers written twice."""
    words = instruction.modifiers
    if not set(words) <= set(allowed) or len(set(words)) != len(words):
        raise refuse(instruction, "has a modifier that is not known")


# Control flow -----------------------------------------------------------------------------------------------------


class Nop(MachineStep):
    """No operation."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        fibre.pc += BYTES
        return True


def _nop(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction)
    if instruction.operands:
        raise refuse(instruction)
    return Nop(instruction)


class Exit(MachineStep):
    """The end of lanes."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        return machine.end(fibre, lanes)


class ExitUnder(MachineStep):
    """The end of lanes for which the guard and another predicate hold: what ptxas makes of `and.pred` and `@p exit`."""

    def __init__(self, instruction: MachineInstruction, condition: Operand) -> None:
        super().__init__(instruction)
        self.condition = condition

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            lanes, count = machine.guarded(self.condition, lanes)
        if not count:
            fibre.pc += BYTES
            return True
        return machine.end(fibre, lanes)


def _exit(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction)
    if not instruction.operands:
        return Exit(instruction)
    condition = instruction.operands[0]
    if len(instruction.operands) != 1 or condition.kind != "P" or condition.negated or condition.absolute:
        raise refuse(instruction)
    return ExitUnder(instruction, condition)


class Branch(MachineStep):
    """A jump, with a condition beside its guard or none."""

    def __init__(self, instruction: MachineInstruction, target: int, condition: Operand | None) -> None:
        super().__init__(instruction)
        self.target, self.condition = target, condition

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count and self.condition is not None:
            lanes, count = machine.guarded(self.condition, lanes)
        if "ANY" in self.instruction.modifiers and lanes is not None:  # all lanes of a warp jump if one does
            here = machine._all if fibre.lanes is None else fibre.lanes
            lanes = here[np.isin(here // _WARP, lanes // _WARP)]
            count = len(lanes)
        return machine.branch(fibre, lanes, count, self.target)


class UnanimousBranch(MachineStep):
    """BRA.U with a predicate of each lane: the lanes of a warp jump if all of them that run here would; else none does.

    ptxas shows it: where it falls through, the same predicate is tested once more, by a branch within BSSY and BSYNC.
    """

    def __init__(self, instruction: MachineInstruction, target: int) -> None:
        super().__init__(instruction)
        self.target = target

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count and lanes is not None:
            here = machine._all if fibre.lanes is None else fibre.lanes
            stay = machine._without(here, lanes)
            lanes = here[~np.isin(here // _WARP, stay // _WARP)]
            count = len(lanes)
        return machine.branch(fibre, lanes, count, self.target)


class ConvergedBranch(MachineStep):
    """BRA.CONV: the lanes of a warp jump if all of them are there. BRA.DIV: they jump if one is missing."""

    def __init__(self, instruction: MachineInstruction, target: int) -> None:
        super().__init__(instruction)
        self.target = target

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run. Raises Unsupported for a warp of which lanes have ended (do they count?), and for a mask
        of other lanes than all."""
        lanes, mask = machine._all if fibre.lanes is None else fibre.lanes, self.instruction.operands[0]
        if (machine._bits(machine.alive)[lanes // _WARP] != 0xFFFFFFFF).any():
            raise refuse(self.instruction, "runs for a warp of which lanes have ended")
        if mask != _EVERY and (machine.read("UR", mask.number, lanes) != 0xFFFFFFFF).any():
            raise refuse(self.instruction, "runs with a mask that lacks a lane")
        whole = machine.active_masks(fibre.lanes) == 0xFFFFFFFF
        taken = lanes[whole if "CONV" in self.instruction.modifiers else ~whole]
        return machine.branch(fibre, taken, len(taken), self.target)


def _target(instruction: MachineInstruction, code: MachineCode, operand: Operand) -> int:
    if operand.kind != "label" or operand.name not in code.function.labels:
        raise refuse(instruction, "jumps to a place that is not known")
    return code.function.labels[operand.name]


def _branch(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    if instruction.modifiers in (("CONV",), ("DIV",)):
        if len(instruction.operands) != 2 or instruction.guard is not None:
            raise refuse(instruction)
        mask = instruction.operands[0]
        if mask != _EVERY and not (plain(mask, "UR") and mask.number >= 0):
            raise refuse(instruction)
        return ConvergedBranch(instruction, _target(instruction, code, instruction.operands[1]))
    if instruction.modifiers not in ((), ("U",), ("U", "ANY")):
        raise refuse(instruction, "has a modifier that is not known")
    *conditions, target = instruction.operands
    guard = instruction.guard
    if instruction.modifiers == ("U",) and guard is not None and guard.kind == "P" and guard.number != 7:
        if conditions:
            raise refuse(instruction)
        return UnanimousBranch(instruction, _target(instruction, code, target))
    if len(conditions) > 1 or any(c.kind not in ("P", "UP") or c.negated for c in conditions):
        raise refuse(instruction)
    return Branch(instruction, _target(instruction, code, target), conditions[0] if conditions else None)


_EVERY = Operand("UR", -1, inverted=True)
"""The lanes of a mask that a uniform register holds: `~URZ`."""


def _call(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, "REL", "NOINC")
    if set(instruction.modifiers) != {"REL", "NOINC"} or len(instruction.operands) != 1:
        raise refuse(instruction)
    return Branch(instruction, _target(instruction, code, instruction.operands[0]), None)


class Return(MachineStep):
    """A jump to an address in a pair of registers. Lanes for which the guard does not hold go on behind it."""

    def __init__(self, instruction: MachineInstruction, register: int, base: int) -> None:
        super().__init__(instruction)
        self.register, self.base = register, base

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        every = machine._all if fibre.lanes is None else fibre.lanes
        targets = np.full(len(every), fibre.pc + BYTES, np.int64)
        if count:
            low = machine.read("R", self.register, lanes).astype(np.int64)
            high = machine.read("R", self.register + 1, lanes).astype(np.int64)
            leave = slice(None) if lanes is None else np.isin(every, lanes, assume_unique=True)
            targets[leave] = (high << 32 | low) + self.base
        return machine.split_by(fibre, targets)


class UniformJump(Return):
    """A jump to an address in a pair of uniform registers."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        low, high = (machine.read("UR", self.register + k, fibre.lanes).astype(np.int64) for k in (0, 1))
        return machine.split_by(fibre, (high << 32 | low) + self.base)


def _return(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    if instruction.modifiers != ("REL", "NODEC"):
        raise refuse(instruction)
    if len(instruction.operands) != 2 or not plain(instruction.operands[0], "R"):
        raise refuse(instruction)
    register, label = instruction.operands
    base = 0 if label.name == code.name else _target(instruction, code, label)
    return Return(instruction, register.number, base)


def _table_branch(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """BRX and BRXU: a jump to an address that a table in constant bank 2 holds, from the beginning of the kernel on.

    The distance is written from the next instruction on, so the number beside the register takes that away.
    """
    if instruction.modifiers or instruction.guard is not None or len(instruction.operands) != 2:
        raise refuse(instruction)
    register, distance = instruction.operands
    kind, step = ("R", Return) if instruction.opcode == "BRX" else ("UR", UniformJump)
    if not plain(register, kind) or register.number < 0 or register.number % 2 or not plain(distance, "int"):
        raise refuse(instruction)
    if distance.value != -(instruction.address + BYTES):
        raise refuse(instruction, "jumps from another place than the beginning of the kernel")
    return step(instruction, register.number, 0)


class Bssy(MachineStep):
    """Lanes note in a barrier with which others they are to meet."""

    def __init__(self, instruction: MachineInstruction, barrier: int) -> None:
        super().__init__(instruction)
        self.barrier = barrier

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            _barrier(machine, self.barrier)[slice(None) if lanes is None else lanes] = machine.active_masks(lanes)
        fibre.pc += BYTES
        return True


def _barrier(machine: Machine, number: int) -> Array:
    return machine.barriers.setdefault(number, np.zeros(machine.lanes, np.uint32))


class Break(MachineStep):
    """Lanes leave a barrier: no other lane of the warp waits for them there."""

    def __init__(self, instruction: MachineInstruction, barrier: int, condition: Operand | None) -> None:
        super().__init__(instruction)
        self.barrier, self.condition = barrier, condition

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count and self.condition is not None:
            lanes, count = machine.guarded(self.condition, lanes)
        if count:
            every = machine._all if lanes is None else lanes
            masks = _barrier(machine, self.barrier)
            leaving = np.zeros(machine.lanes, np.bool_)
            leaving[every] = True
            gone = machine._bits(leaving)
            for warp in np.flatnonzero(gone).tolist():
                here = slice(_WARP * warp, _WARP * warp + _WARP)
                mine = masks[here][leaving[here]]
                old = masks[here].copy()
                shared = np.isin(old, mine)
                masks[here] = np.where(shared, old & ~gone[warp], old)
                waits = (machine.wait_kind[here] == 1) & np.isin(machine.waiting[here], mine)
                machine.waiting[here] = np.where(waits, machine.waiting[here] & ~gone[warp], machine.waiting[here])
            machine.release(np.flatnonzero(gone))
        fibre.pc += BYTES
        return True


def _break(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, "RELIABLE")
    *conditions, barrier = instruction.operands
    if len(conditions) > 1 or any(c.kind != "P" or c.negated for c in conditions) or not plain(barrier, "B"):
        raise refuse(instruction)
    return Break(instruction, barrier.number, conditions[0] if conditions else None)


def _bssy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, "RECONVERGENT", "RELIABLE")
    if len(instruction.operands) != 2 or not plain(instruction.operands[0], "B"):
        raise refuse(instruction)
    barrier, label = instruction.operands
    target = _target(instruction, code, label)
    at = {i.address: i for i in code.function.instructions}
    syncs = [at.get(target), at.get(target - BYTES)]
    if not any(i is not None and i.opcode == "BSYNC" and i.operands[:1] == (barrier,) for i in syncs):
        raise refuse(instruction, "names a place without a BSYNC of its barrier")
    return Bssy(instruction, barrier.number)


class Bsync(MachineStep):
    """Lanes wait for the others of a barrier."""

    def __init__(self, instruction: MachineInstruction, barrier: int) -> None:
        super().__init__(instruction)
        self.barrier = barrier

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        masks = _barrier(machine, self.barrier)
        return machine.wait(fibre, lanes, masks.copy() if lanes is None else masks[lanes], 1)


def _bsync(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, "RECONVERGENT", "RELIABLE")
    if len(instruction.operands) != 1 or not plain(instruction.operands[0], "B"):
        raise refuse(instruction)
    return Bsync(instruction, instruction.operands[0].number)


class _Bmov(MachineStep):
    def __init__(self, instruction: MachineInstruction, barrier: int, register: int, saves: bool, clears: bool) -> None:
        super().__init__(instruction)
        self.barrier, self.register, self.saves, self.clears = barrier, register, saves, clears

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place: Any = slice(None) if lanes is None else lanes
            masks = _barrier(machine, self.barrier)
            if self.saves:
                machine.write("R", self.register, lanes, masks[place].copy())
                if self.clears:
                    masks[place] = 0
            else:
                masks[place] = machine.read("R", self.register, lanes)
        fibre.pc += BYTES
        return True


class BarrierSet(MachineStep):
    """A barrier gets a mask of lanes: a constant, or that of another barrier, which is cleared.

    ptxas writes a chain of these, which clears all barriers, before each kernel for sm_87.
    """

    def __init__(self, instruction: MachineInstruction, barrier: int, source: Operand) -> None:
        super().__init__(instruction)
        self.barrier, self.source = barrier, source

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place: Any = slice(None) if lanes is None else lanes
            if self.source.kind == "B":
                masks = _barrier(machine, self.source.number)
                moved: Any = masks[place].copy()
                masks[place] = 0
            else:
                moved = int(self.source.value or 0)
            _barrier(machine, self.barrier)[place] = moved
        fibre.pc += BYTES
        return True


def _bmov(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, "32", "CLEAR")
    kinds = [o.kind for o in instruction.operands]
    # The other two, a copy that keeps its source and a constant with CLEAR, are not known.
    if "32" in instruction.modifiers and kinds == (["B", "B"] if "CLEAR" in instruction.modifiers else ["B", "int"]):
        to, source = instruction.operands
        if not plain(to, "B") or not plain(source, "B", "int"):
            raise refuse(instruction)
        return BarrierSet(instruction, to.number, source)
    if "32" not in instruction.modifiers or kinds not in (["R", "B"], ["B", "R"]):
        raise refuse(instruction)
    if not all(plain(o, "R", "B") for o in instruction.operands):
        raise refuse(instruction)
    saves, clears = kinds[0] == "R", "CLEAR" in instruction.modifiers
    if clears and not saves:
        raise refuse(instruction)
    first, second = (o.number for o in instruction.operands)
    return _Bmov(instruction, *((second, first) if saves else (first, second)), saves, clears)


class WarpSync(MachineStep):
    """Lanes wait for those of a mask."""

    def __init__(self, instruction: MachineInstruction, mask: Operand | None) -> None:
        super().__init__(instruction)
        self.mask = mask

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        if self.mask is None or self.mask.kind == "int":
            value = 0xFFFFFFFF if self.mask is None else int(self.mask.value or 0)
            masks = np.full(count, value, np.uint32)
        else:
            masks = machine.read(self.mask.kind, self.mask.number, lanes).copy()
        return machine.wait(fibre, lanes, masks, 2)


class CollectiveSync(MachineStep):
    """All lanes of a warp wait for each other at one instruction, before what they do together."""

    def __init__(self, instruction: MachineInstruction, mask: int) -> None:
        super().__init__(instruction)
        self.mask = mask

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run. Raises Unsupported for a part of a warp: it would need uniform registers of its own."""
        lanes, masks = fibre.lanes, machine.read("R", self.mask, fibre.lanes)
        alive = machine._bits(machine.alive)[(machine._all if lanes is None else lanes) // _WARP]
        if ((masks & alive) != alive).any():
            raise refuse(self.instruction, "runs for a part of a warp")
        # Who waits elsewhere, or with another mask, waits for something else.
        return machine.wait(fibre, lanes, masks.copy(), _COLLECTIVE + self.instruction.address)


class CollectiveSyncOfAll(MachineStep):
    """As CollectiveSync, of all lanes of a warp; it has no mask."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        count = machine.lanes if fibre.lanes is None else len(fibre.lanes)
        masks = np.full(count, 0xFFFFFFFF, np.uint32)
        return machine.wait(fibre, fibre.lanes, masks, _COLLECTIVE + self.instruction.address)


_COLLECTIVE = COLLECTIVE  # its name here is part of what teaches WARPSYNC


def _collective(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """WARPSYNC.COLLECTIVE names the end of its region, which an ENDCOLLECTIVE precedes; WARPSYNC.EXCLUSIVE has none."""
    operands = instruction.operands
    if instruction.modifiers == ("COLLECTIVE", "ALL") and len(operands) == 1 and instruction.guard is None:
        _region(instruction, code, operands[0])
        return CollectiveSyncOfAll(instruction)
    if instruction.guard is not None or not operands or not plain(operands[0], "R"):
        raise refuse(instruction)
    mask, *end = operands
    if instruction.modifiers == ("COLLECTIVE",) and len(end) == 1:
        _region(instruction, code, end[0])
    elif instruction.modifiers != ("EXCLUSIVE",) or end:
        raise refuse(instruction)
    return CollectiveSync(instruction, mask.number)


def _region(instruction: MachineInstruction, code: MachineCode, end: Operand) -> None:
    """Refuse a collective region that an ENDCOLLECTIVE does not end, or that lanes can leave before."""
    last = _target(instruction, code, end) - BYTES
    region = [i for i in code.function.instructions if instruction.address < i.address <= last]
    if not region or region[-1].opcode != "ENDCOLLECTIVE" or any(i.opcode in _LEAVING for i in region):
        raise refuse(instruction, "names another place than the end of its region")


_LEAVING = frozenset({"BRA", "BRX", "BRXU", "BSSY", "BSYNC", "CALL", "EXIT", "JMP", "RET", "WARPSYNC"})


def _warpsync(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    if {"COLLECTIVE", "EXCLUSIVE"}.intersection(instruction.modifiers):
        return _collective(instruction, code)
    _only(instruction, "ALL")
    operands = instruction.operands
    if instruction.modifiers == ("ALL",) and not operands:
        return WarpSync(instruction, None)
    if instruction.modifiers or len(operands) != 1 or not plain(operands[0], "R", "UR", "int"):
        raise refuse(instruction)
    return WarpSync(instruction, operands[0])


# Special registers, constants, predicates as bits -------------------------------------------------------------------


class SpecialRegister(MachineStep):
    """A special register is read."""

    def __init__(self, instruction: MachineInstruction, name: str, wide: bool) -> None:
        super().__init__(instruction)
        self.name, self.wide = name, wide
        self.place = instruction.operands[0]

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            value = special_register(machine, self.name)
            value = value if value is not None else machine.zeros
            if self.place.kind == "UR":
                warps = None if lanes is None else np.unique(lanes // _WARP)
                each = value.reshape(-1, _WARP)[:, 0]
                machine.write_uniform("UR", self.place.number, warps, each if warps is None else each[warps])
            else:
                machine.write("R", self.place.number, lanes, value.copy() if lanes is None else value[lanes])
                if self.wide and self.place.number >= 0:
                    machine.write("R", self.place.number + 1, lanes, np.zeros(count, np.uint32))
        fibre.pc += BYTES
        return True


COORDINATES = {f"SR_{name}.{axis}": (name, i) for name in ("TID", "CTAID") for i, axis in enumerate("XYZ")}

_MASKS = {f"SR_{name.upper()}MASK": name for name in ("eq", "lt", "le", "gt", "ge")}
_OF_A_BLOCK = ("SR_CTAID", "SR_CgaCtaId")


def special_register(machine: Machine, name: str) -> Array | None:
    """The values of a special register in all lanes; None for SRZ, which is 0."""
    if name == "SRZ":
        return None
    x, y, _ = machine.launch.block
    lane = np.arange(machine.lanes)
    thread, block = lane % machine.threads, machine.first + lane // machine.threads
    if name == "SR_LANEID":
        return (thread % _WARP).astype(np.uint32)
    if name == "SR_CgaCtaId":
        return np.zeros(machine.lanes, np.uint32)  # the block's number in a cluster: no clusters run here
    if name in _MASKS:
        return lane_mask(_MASKS[name], (thread % _WARP).astype(np.uint64)).astype(np.uint32)
    which, axis = COORDINATES[name]
    of, sizes = (thread, (x, y)) if which == "TID" else (block, machine.launch.grid[:2])
    parts = (of % sizes[0], of // sizes[0] % sizes[1], of // (sizes[0] * sizes[1]))
    return parts[axis].astype(np.uint32)


def _special_register(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    wide = instruction.opcode == "CS2R" and "32" not in instruction.modifiers
    _only(instruction, *(["32"] if instruction.opcode == "CS2R" else []))
    if len(instruction.operands) != 2 or instruction.operands[1].kind != "word":
        raise refuse(instruction)
    place, name = instruction.operands[0], instruction.operands[1].name
    if name == "SR_LMEMHIOFF" and instruction.opcode == "S2R" and plain(place, "R"):
        return _stack_limit(instruction, code)
    if name not in COORDINATES and name not in ("SRZ", "SR_LANEID", "SR_CgaCtaId", *_MASKS):
        raise refuse(instruction, "reads a special register that is not known")
    if not plain(place, "UR" if instruction.opcode == "S2UR" else "R"):
        raise refuse(instruction)
    if place.kind == "UR" and not name.startswith(_OF_A_BLOCK):
        raise refuse(instruction, "gives a warp the value of a single lane")
    return SpecialRegister(instruction, name, wide)


class StackLimit(MachineStep):
    """SR_LMEMHIOFF: the lowest address that the stack pointer may have, with which a kernel compares it."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            limit = np.full(count, _LOCAL_TOP - local_bytes(machine.launch.code), np.uint32)
            machine.write("R", self.instruction.operands[0].number, lanes, limit)
        fibre.pc += BYTES
        return True


def _stack_limit(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """Its value is the driver's, so it is known only where the next instruction compares the stack pointer with it."""
    following = [i for i in code.function.instructions if i.address == instruction.address + BYTES]
    compares = following and (following[0].opcode, following[0].modifiers) == ("ISETP", ("GE", "U32", "AND"))
    if not compares or following[0].operands[2:4] != (Operand("R", 1), instruction.operands[0]):
        raise refuse(instruction, "is not compared with the stack pointer by the next instruction")
    return StackLimit(instruction)


class ConstantLoad(MachineStep):
    """LDC, ULDC and LDCU: a load from a constant bank, at an address that may have a register in it."""

    def __init__(self, instruction: MachineInstruction, size: int, signed: int) -> None:
        super().__init__(instruction)
        self.size, self.signed = size, signed
        self.place, self.source = instruction.operands
        self.index = self.source.base or self.source.uniform

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        guard, source = self.instruction.guard, self.source
        lanes, count = machine.guarded(guard, fibre.lanes)
        if count:
            if self.index is None:
                value = constant_word(machine.launch, source, self.size)
                words = [np.full(count, w, np.uint32) for w in self._words(value)]
            else:
                index = machine.read(self.index.kind, self.index.number, lanes).view(np.int32).astype(np.int64)
                words = self._gather(machine, source.offset + index)
            for k, word in enumerate(words):
                if self.place.number < 0:
                    break
                if self.place.kind == "UR":
                    warps, first = np.unique((machine._all if lanes is None else lanes) // _WARP, return_index=True)
                    machine.write_uniform("UR", self.place.number + k, warps, word[first])
                else:
                    machine.write("R", self.place.number + k, lanes, word)
        fibre.pc += BYTES
        return True

    def _words(self, value: int) -> list[int]:
        if self.size < 4:
            bits = 8 * self.size
            return [(value - (1 << bits) if self.signed and value >> bits - 1 else value) & 0xFFFFFFFF]
        return [value >> 32 * k & 0xFFFFFFFF for k in range(self.size // 4)]

    def _gather(self, machine: Machine, at: Array) -> list[Array]:
        bank = _bank(machine, self.source.bank)
        if (at < 0).any() or (at + self.size > len(bank.data)).any() or (at % self.size).any():
            raise MachineFault(f"{self.instruction.text}: an address outside of the constant bank")
        index = at[:, None] + np.arange(self.size)
        if not bank.known[index].all():
            raise Unsupported(f"{self.instruction.text}: what the driver keeps there is not known")
        machine.launch.look_at(bank, index)
        return as_words(bank.data[index], self.size, self.signed)


def _bank(machine: Machine, number: int) -> ConstantBank:
    if number == 0:
        return machine.launch.bank
    held = np.frombuffer(machine.launch.code.banks.get(number, b""), np.uint8)
    every = np.ones(len(held), np.bool_)
    return ConstantBank(held, every, every)


def as_words(rows: Array, size: int, signed: int) -> list[Array]:
    """Registers from rows of bytes."""
    if size >= 4:
        words = np.ascontiguousarray(rows).view(np.uint32)
        return [np.ascontiguousarray(words[:, k]) for k in range(size // 4)]
    kind = np.dtype(f"{'i' if signed else 'u'}{size}")
    found = np.ascontiguousarray(rows).view(kind)[:, 0]
    return [found.astype(np.int32).view(np.uint32) if signed else found.astype(np.uint32)]


def _size_of(instruction: MachineInstruction) -> tuple[int, int]:
    picked = [w for w in instruction.modifiers if w in _SIZES]
    if len(picked) > 1:
        raise refuse(instruction)
    return _SIZES[picked[0]] if picked else (4, 0)


def _constant(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction, *_SIZES)
    operands = instruction.operands
    uniform = instruction.opcode != "LDC"
    if len(operands) != 2 or not plain(operands[0], "UR" if uniform else "R") or operands[1].kind != "c":
        raise refuse(instruction)
    source = operands[1]
    if source.uniform is not None and plain(source.uniform, "UR") and source.uniform.number < 0:  # URZ, which is 0
        source = replace(source, uniform=None)
        instruction = instruction._replace(operands=(operands[0], source))
    if source.negated or source.absolute or source.inverted or source.suffix:
        raise refuse(instruction)
    if source.base is not None and (uniform or source.uniform is not None or not plain(source.base, "R")):
        raise refuse(instruction)
    if source.uniform is not None and (not uniform or not plain(source.uniform, "UR")):
        raise refuse(instruction)
    guard = instruction.guard
    if uniform and guard is not None and guard.kind != "UP":
        raise refuse(instruction)
    size, signed = _size_of(instruction)
    _even(instruction, operands[0], size)
    return ConstantLoad(instruction, size, signed)


def _even(instruction: MachineInstruction, place: Operand, size: int) -> None:
    """Refuse registers of a wide access that do not begin at a multiple of their number."""
    if place.number > 0 and size > 4 and place.number % (size // 4):
        raise refuse(instruction, "has registers that are not aligned")


class PredicatesAsBits(MachineStep):
    """P2R and R2P: predicates as the lowest bits of a register, where a mask has a bit."""

    def __init__(self, instruction: MachineInstruction, mask: int) -> None:
        super().__init__(instruction)
        self.mask = mask

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            operands = self.instruction.operands
            if self.instruction.opcode == "P2R":
                value: Array = machine.read("R", operands[2].number, lanes) & np.uint32(~self.mask & 0xFFFFFFFF)
                for k in range(7):
                    if self.mask >> k & 1:
                        value = value | machine.read("P", k, lanes).astype(np.uint32) << k
                machine.write("R", operands[0].number, lanes, value)
            else:
                value = machine.read("R", operands[1].number, lanes)
                for k in range(7):
                    if self.mask >> k & 1:
                        machine.write("P", k, lanes, (value >> k & 1).astype(np.uint8))
        fibre.pc += BYTES
        return True


_UPPER_BYTES = {"B1": 8, "B2": 16, "B3": 24}


class PredicatesFromByte(MachineStep):
    """R2P: predicates get the lowest bits of an upper byte of a register, where a mask has a bit."""

    def __init__(self, instruction: MachineInstruction, mask: int, first: int) -> None:
        super().__init__(instruction)
        self.mask, self.first = mask, first

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            value = machine.read("R", self.instruction.operands[1].number, lanes) >> self.first
            for k in range(7):
                if self.mask >> k & 1:
                    machine.write("P", k, lanes, (value >> k & 1).astype(np.uint8))
        fibre.pc += BYTES
        return True


def _predicates_as_bits(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction)
    operands = instruction.operands
    saves = instruction.opcode == "P2R"
    if not saves and len(operands) == 3 and operands[1].suffix in _UPPER_BYTES:
        place, register, bits = operands
        known = plain(place, "word") and plain(replace(register, suffix=""), "R") and plain(bits, "int")
        if not known or place.name != "PR" or not 0 < (bits.value or 0) < 0x80:
            raise refuse(instruction)
        return PredicatesFromByte(instruction, bits.value or 0, _UPPER_BYTES[register.suffix])
    wanted = ("R", "word", "R", "int") if saves else ("word", "R", "int")
    if len(operands) != len(wanted) or not all(plain(o, k) for o, k in zip(operands, wanted, strict=True)):
        raise refuse(instruction)
    mask = operands[-1].value or 0
    if operands[1 if saves else 0].name != "PR" or not 0 <= mask < 0x80:
        raise refuse(instruction)
    return PredicatesAsBits(instruction, mask)


class UniformSum64(MachineStep):
    """UIADD3.64: a pair of uniform registers plus a constant or another pair.

    Forms with a sign, a negative constant or a carry have rows of the table instead.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            warps = np.unique((machine._all if lanes is None else lanes) // _WARP)
            place, *terms = (o for o in self.instruction.operands if o.kind != "UP")
            total = sum((self._term(machine, term, warps) for term in terms), np.zeros(len(warps), np.uint64))
            machine.write_uniform("UR", place.number, warps, (total & 0xFFFFFFFF).astype(np.uint32))
            if place.number >= 0:
                machine.write_uniform("UR", place.number + 1, warps, (total >> 32).astype(np.uint32))
        fibre.pc += BYTES
        return True

    @staticmethod
    def _term(machine: Machine, term: Operand, warps: Array) -> Array:
        if term.kind == "int":
            return np.full(len(warps), (term.value or 0) & 0xFFFFFFFFFFFFFFFF, np.uint64)
        if term.number < 0:
            return np.zeros(len(warps), np.uint64)
        low, high = (machine.uniform_register(term.number + k)[warps].astype(np.uint64) for k in (0, 1))
        return high << 32 | low


def _uniform_sum_64(instruction: MachineInstruction) -> MachineStep | None:
    """The step of UIADD3.64; None for forms of UIADD3 that may have a row of the table."""
    if instruction.modifiers != ("64",):
        return None
    operands = instruction.operands
    if operands[1:3] == (Operand("UP", 7),) * 2:  # its carries, which are not kept
        operands = operands[:1] + operands[3:]
    registers = [o for o in operands if o.kind != "int"]
    if len(operands) != 4 or operands[0].kind == "int" or not all(plain(o, "UR", "int") for o in operands):
        return None
    if any(o.number > 0 and o.number % 2 for o in registers):
        raise refuse(instruction, "has a pair of registers that begins at an odd number")
    if any(not 0 <= (o.value or 0) < 1 << 31 for o in operands if o.kind == "int"):
        return None
    return UniformSum64(instruction)


class ToUniform(MachineStep):
    """A register that is equal in all lanes of a warp becomes a uniform one."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            place, source = self.instruction.operands
            value = machine.read("R", source.number, lanes)
            every = machine._all if lanes is None else lanes
            warps, first = np.unique(every // _WARP, return_index=True)
            counts = np.diff(np.append(first, count))
            if not np.array_equal(np.repeat(value[first], counts), value):
                raise Unsupported(f"{self.instruction.text}: the lanes of a warp have different values")
            machine.write_uniform("UR", place.number, warps, value[first])
        fibre.pc += BYTES
        return True


def _to_uniform(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    _only(instruction)
    operands = instruction.operands
    if len(operands) != 2 or not plain(operands[0], "UR") or not plain(operands[1], "R"):
        raise refuse(instruction)
    return ToUniform(instruction)


_RETURN_PLACES = {"Rpc.LO": 256, "Rpc.HI": 257}
"""The halves of the register of a return address, as registers behind the 255 of a lane."""


class ReturnRegister(MachineStep):
    """RPCMOV.32: a register is kept in the register of a return address, or comes from it.

    ptxas does so where registers are scarce. Calls and returns here use other registers.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            to, source = (_RETURN_PLACES.get(o.name, o.number) for o in self.instruction.operands)
            machine.write("R", to, lanes, machine.read("R", source, lanes).copy())
        fibre.pc += BYTES
        return True


def _return_register(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    operands = instruction.operands
    kinds = [o.name if plain(o, "word") and o.name in _RETURN_PLACES else plain(o, "R") for o in operands]
    if instruction.modifiers != ("32",) or len(kinds) != 2 or [isinstance(k, str) for k in kinds].count(True) != 1:
        raise refuse(instruction)
    if False in kinds:
        raise refuse(instruction)
    return ReturnRegister(instruction)


class Spill(MachineStep):
    """MOV.SPILL: a uniform register is kept in a register of the lanes, where uniform ones are scarce."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            to, source = self.instruction.operands
            machine.write("R", to.number, lanes, machine.read("UR", source.number, lanes).copy())
        fibre.pc += BYTES
        return True


def _spill(instruction: MachineInstruction) -> MachineStep | None:
    """MOV.SPILL, and R2UR.FILL, which brings the register back; None for other instructions."""
    name = instruction.opcode, instruction.modifiers
    if name not in (("MOV", ("SPILL",)), ("R2UR", ("FILL",))):
        return None
    kinds = ("R", "UR") if instruction.opcode == "MOV" else ("UR", "R")
    operands = instruction.operands
    if len(operands) != 2 or not all(plain(o, k) for o, k in zip(operands, kinds, strict=True)):
        raise refuse(instruction)
    return Spill(instruction) if instruction.opcode == "MOV" else ToUniform(instruction)


# Memory -----------------------------------------------------------------------------------------------------------


def global_addresses(machine: Machine, lanes: Lanes, count: int, where: Operand, narrow: bool = False) -> Array:
    """The addresses of an operand. narrow: its register is one of 32 bits, for local memory."""
    found: Array = np.full(count, where.offset, np.int64)
    base, uniform = where.base, where.uniform
    if base is not None:
        low = machine.read("R", base.number, lanes).astype(np.int64)
        if not narrow:
            high = machine.read("R", base.number + 1 if base.number >= 0 else -1, lanes).astype(np.int64)
            low = high << 32 | low
        else:
            low = low.astype(np.int32).astype(np.int64)
        found += low
    if uniform is not None:
        low = machine.read("UR", uniform.number, lanes).astype(np.int64)
        high = machine.read("UR", uniform.number + 1, lanes).astype(np.int64)
        found += high << 32 | low
    return found


def global_rows(
    machine: Machine, instruction: MachineInstruction, addresses: Array, size: int, rows: Array | None = None
) -> Array:
    """Load rows of bytes from global memory, or store them. Raises MachineFault for an address outside."""
    memory = machine.launch.memory
    if (addresses % size).any():
        at = int(addresses[addresses % size != 0][0])
        raise MachineFault(f"{instruction.text}: address 0x{at:x} is not a multiple of {size}")
    found = np.zeros((len(addresses), size), np.uint8) if rows is None else rows
    spaces = addresses // BUFFER_SPACING
    first = int(spaces[0])
    each = [first] if (spaces == first).all() else np.unique(spaces).tolist()
    for space in each:
        part = slice(None) if len(each) == 1 else np.flatnonzero(spaces == space)
        mine = addresses[part]
        buffer = memory.find(int(mine.min()))
        offsets = mine - (buffer.base if buffer is not None else 0)
        if buffer is None:
            bad = np.ones(len(mine), np.bool_)
        else:
            bad = (offsets < buffer.residue) | (offsets + size > buffer.residue + buffer.size)
        if bad.any():
            place = memory.describe(int(mine[bad][0]), size)
            raise MachineFault(f"{instruction.text}: {place}")
        assert buffer is not None
        index = offsets // size
        table = _rows_of(buffer.bytes, size)
        if rows is None:
            found[part] = table[index]
            machine.launch.guessed = machine.launch.guessed or _has_undefined(buffer, index, size)
            continue
        if not buffer.writable:
            raise MachineFault(f"{instruction.text}: a store to {buffer.name}, which is read only")
        table[index] = rows[part]
        _written(buffer, index, size)
    return found


def local_bytes(code: MachineCode) -> int:
    """The bytes of local memory of a thread, below the place where its stack begins."""
    return -(-max(code.local, 16) // 16) * 16


class MemoryAccess(MachineStep):
    """A load or store of global or local memory."""

    def __init__(self, instruction: MachineInstruction, size: int, signed: int, where: Operand, data: Operand) -> None:
        super().__init__(instruction)
        self.size, self.signed, self.where, self.data = size, signed, where, data
        self.loads = instruction.opcode.startswith("LD")
        self.local = instruction.opcode.endswith("L")

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            addresses = global_addresses(machine, lanes, count, self.where, self.local)
            every = machine._all if lanes is None else lanes
            if self.loads:
                if self.local:
                    rows = self._local(machine, every, addresses)
                else:
                    rows = global_rows(machine, self.instruction, addresses, self.size)
                for k, word in enumerate(as_words(rows, self.size, self.signed)):
                    if self.data.number >= 0:
                        machine.write("R", self.data.number + k, lanes, word)
            else:
                rows = stored(machine, self.data, self.size, lanes, count)
                if self.local:
                    self._local(machine, every, addresses, rows)
                else:
                    global_rows(machine, self.instruction, addresses, self.size, rows)
        fibre.pc += BYTES
        return True

    def _local(self, machine: Machine, lanes: Array, addresses: Array, rows: Array | None = None) -> Array:
        size, top = self.size, _LOCAL_TOP
        room = -(-max(machine.launch.code.local, 16) // 16) * 16
        if machine.local is None:
            machine.local = machine.random.integers(0, 256, (machine.lanes, room), np.uint8)
        offsets = addresses - (top - room)
        if ((offsets < 0) | (offsets + size > room)).any():
            raise MachineFault(f"{self.instruction.text}: an address outside of the thread's local memory")
        if (addresses % size).any():
            raise MachineFault(f"{self.instruction.text}: an address that is not a multiple of {size}")
        index = offsets[:, None] + np.arange(size)
        if rows is None:
            found: Array = machine.local[lanes[:, None], index]
            return found
        machine.local[lanes[:, None], index] = rows
        return rows


class ShortAddress(MemoryAccess):
    """A load or store of global memory at a register of 32 bits, without sign, plus a uniform one of 64.

    ptxas writes it for `cvt.u64.u32` of any word; for `cvt.s64.s32` it makes a pair of registers.
    """

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            assert self.where.base is not None
            short = machine.read("R", self.where.base.number, lanes).astype(np.int64)
            addresses = short + global_addresses(machine, lanes, count, replace(self.where, base=None))
            if self.loads:
                rows = global_rows(machine, self.instruction, addresses, self.size)
                for k, word in enumerate(as_words(rows, self.size, self.signed)):
                    if self.data.number >= 0:
                        machine.write("R", self.data.number + k, lanes, word)
            else:
                rows = stored(machine, self.data, self.size, lanes, count)
                global_rows(machine, self.instruction, addresses, self.size, rows)
        fibre.pc += BYTES
        return True


def _written(buffer: Buffer, index: Array, size: int) -> None:
    if buffer.undefined is not None:
        _rows_of(buffer.undefined, size)[index] = 0


def _has_undefined(buffer: Buffer, index: Array, size: int) -> bool:
    """Whether rows of a buffer have bytes that were never written."""
    return buffer.undefined is not None and bool(_rows_of(buffer.undefined, size)[index].any())


def _rows_of(data: Array, size: int) -> Array:
    """The whole rows of an array of bytes."""
    return data[: len(data) // size * size].reshape(-1, size)


def _memory(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    local = instruction.opcode.endswith("L")
    _only(instruction, *_SIZES, *_CACHES, *(() if local else ("E", *STRENGTHS)))
    if not local and "E" not in instruction.modifiers:
        raise refuse(instruction)
    loads = instruction.opcode.startswith("LD")
    if len(instruction.operands) != 2:
        raise refuse(instruction)
    data, where = instruction.operands if loads else instruction.operands[::-1]
    short = where.kind == "mem32" and instruction.opcode in ("LDG", "STG")
    if not plain(data, "R") or (where.base is not None and where.base.suffix in SCALES):
        raise refuse(instruction)
    if where.kind != "mem" and (not short or where.name):
        raise refuse(instruction)
    if local and (where.wide or where.uniform is not None or where.name):
        raise refuse(instruction)
    if where.uniform is not None and where.uniform.number < 0 and not short:
        where = replace(where, uniform=None)  # URZ
    uniform = where.uniform
    if uniform is not None and (uniform.number < 0 or uniform.number % 2):
        raise refuse(instruction, "has registers that are not aligned")
    if uniform is not None and (uniform.suffix or (where.base is not None and not (where.wide or short))):
        raise refuse(instruction)
    if where.base is not None and where.base.number > 0 and where.base.number % 2 and not (local or short):
        raise refuse(instruction, "has registers that are not aligned")
    size, signed = _size_of(instruction)
    _even(instruction, data, size)
    return (ShortAddress if short else MemoryAccess)(instruction, size, signed, where, data)


CONTROL: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    **dict.fromkeys(("NOP", "YIELD", "ENDCOLLECTIVE"), _nop),
    "EXIT": _exit,
    "BRA": _branch,
    "CALL": _call,
    "RET": _return,
    **dict.fromkeys(("BRX", "BRXU"), _table_branch),
    "BSSY": _bssy,
    "BSYNC": _bsync,
    "BREAK": _break,
    "BMOV": _bmov,
    "WARPSYNC": _warpsync,
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), _special_register),
    **dict.fromkeys(("LDC", "ULDC", "LDCU"), _constant),
    **dict.fromkeys(("P2R", "R2P"), _predicates_as_bits),
    "R2UR": _to_uniform,
    "RPCMOV": _return_register,
    **dict.fromkeys(("LDG", "STG", "LDL", "STL"), _memory),
}
