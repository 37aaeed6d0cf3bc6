"""Exchanges between the lanes of a warp: SHFL, VOTE, MATCH, REDUX, ELECT.

They have no mask of members: those take part that run the instruction together. ptxas makes the lanes of a mask
converge before. A lane that reads another one that is not there gets undefined bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxdiff.emulator.kernel.warp.exchange import integer_redux, shuffled
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep
from ptxdiff.sass.text import BYTES, MachineInstruction, Operand, Unsupported

_BITS = np.uint32(1) << np.arange(32, dtype=np.uint32)
_MODES = {"BFLY": "bfly", "IDX": "idx", "UP": "up", "DOWN": "down"}
_REDUCED = {"SUM": "add", "MIN": "min", "MAX": "max", "OR": "or", "XOR": "xor"}


class _Exchange(MachineStep):
    """A step whose lanes see each other: `exchange` gets tables of warps x 32 and the lanes that take part."""

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            here = np.ones((machine.warps, _WARP), np.bool_)
            if lanes is not None:
                here[:] = False
                here.reshape(-1)[lanes] = True
            self.exchange(machine, lanes, here)
        fibre.pc += BYTES
        return True

    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        """Read all lanes, and write those of `lanes`."""
        raise NotImplementedError


def table(machine: Machine, operand: Operand) -> Array:
    """The values of an operand in all lanes, as a table of warps x 32."""
    if operand.kind == "int":
        return np.full((machine.warps, _WARP), (operand.value or 0) & 0xFFFFFFFF, np.uint32)
    return machine.read(operand.kind, operand.number, None).reshape(-1, _WARP)


def write(machine: Machine, place: Operand, lanes: Lanes, values: Array) -> None:
    """Write those lanes of a table of warps x 32 that take part; of a uniform place, their warps."""
    if place.kind in ("UR", "UP"):
        warps = None if lanes is None else np.unique(lanes // _WARP)
        each = values[:, 0]
        machine.write_uniform(place.kind, place.number, warps, each if warps is None else each[warps])
    else:
        flat = np.ascontiguousarray(values).reshape(-1)
        machine.write(place.kind, place.number, lanes, flat if lanes is None else flat[lanes])


def _everyone(values: Array) -> Array:
    return np.repeat(values[:, None], _WARP, axis=1)


class _Shuffle(_Exchange):
    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        inside_place, place, value, distance, control = self.instruction.operands
        by, limits = (table(machine, o).astype(np.int64) for o in (distance, control))
        source, inside = shuffled(_MODES[self.instruction.modifiers[0]], by & 31, limits)
        rows = np.arange(machine.warps)[:, None]
        found = table(machine, value)[rows, source]
        absent = ~here[rows, source]
        if absent.any():
            found = np.where(absent, machine.random.integers(0, 1 << 32, found.shape, np.uint32), found)
        write(machine, place, lanes, found)
        write(machine, inside_place, lanes, inside.astype(np.uint8))


class _Vote(_Exchange):
    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        *places, source = self.instruction.operands
        held = table(machine, source) != 0
        if source.inverted:
            held = ~held
        some, every = (held & here).any(axis=1), (held | ~here).all(axis=1)
        mode = self.instruction.modifiers[0]
        answer = {"ANY": some, "ALL": every, "EQ": every | ~some}[mode].astype(np.uint8)
        ballot = ((held & here) * _BITS).sum(axis=1, dtype=np.uint32)
        for place in places:
            write(machine, place, lanes, _everyone(answer if place.kind in ("P", "UP") else ballot))


class _Match(_Exchange):
    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        *places, source = self.instruction.operands
        values: Array = table(machine, source).astype(np.uint64)
        if "U64" in self.instruction.modifiers:
            high = machine.read("R", source.number + 1 if source.number >= 0 else -1, None)
            values = values | high.reshape(-1, _WARP).astype(np.uint64) << 32
        equal = (values[:, :, None] == values[:, None, :]) & here[:, None, :]
        found = (equal * _BITS).sum(axis=2, dtype=np.uint32)
        if "ALL" in self.instruction.modifiers:
            members = (here * _BITS).sum(axis=1, dtype=np.uint32)
            unanimous = ((found == members[:, None]) | ~here).all(axis=1)
            write(machine, places[0], lanes, _everyone(unanimous.astype(np.uint8)))
            found = _everyone(np.where(unanimous, members, 0).astype(np.uint32))
        write(machine, places[-1], lanes, found)


class _Redux(_Exchange):
    def __init__(self, instruction: MachineInstruction, op: str, signed: bool) -> None:
        super().__init__(instruction)
        self.op, self.signed = op, signed

    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        place, source = self.instruction.operands
        found = integer_redux(self.op, self.signed, np.ascontiguousarray(table(machine, source)), here)
        write(machine, place, lanes, _everyone(found))


class _Elect(_Exchange):
    """The lowest lane that takes part: its number, and whether a lane is it."""

    def exchange(self, machine: Machine, lanes: Lanes, here: Array) -> None:
        chosen, place, _ = self.instruction.operands
        leader = np.argmax(here, axis=1).astype(np.uint32)
        write(machine, place, lanes, _everyone(leader))
        write(machine, chosen, lanes, (np.arange(_WARP) == leader[:, None]).astype(np.uint8))


def exchange_step(instruction: MachineInstruction) -> MachineStep | None:
    """The step of an exchange; None for other opcodes. Raises Unsupported for a form that is not known."""
    made = _MAKERS.get(instruction.opcode)
    if made is None:
        return None
    step = made(instruction)
    if step is None:
        raise Unsupported(f"{instruction.text} is not known in this form")
    return step


def _shapes(instruction: MachineInstruction, *shapes: str) -> bool:
    """Whether the kinds of the operands, without signs, are one of these; `R/int` stands for either."""
    operands = instruction.operands
    for shape in shapes:
        kinds = [k.split("/") for k in shape.split(",")]
        if len(kinds) == len(operands) and all(
            o.kind in k and not (o.negated or o.absolute or o.suffix or (o.inverted and o.kind not in ("P", "UP")))
            for o, k in zip(operands, kinds, strict=True)
        ):
            return True
    return False


def _shuffle(instruction: MachineInstruction) -> MachineStep | None:
    fits = len(instruction.modifiers) == 1 and instruction.modifiers[0] in _MODES
    fits = fits and _shapes(instruction, "P,R,R,R/int,R/int") and not instruction.operands[0].inverted
    return _Shuffle(instruction) if fits else None


def _vote(instruction: MachineInstruction) -> MachineStep | None:
    uniform = instruction.opcode == "VOTEU"
    predicate, register = ("UP", "UR") if uniform else ("P", "R")
    shapes = (f"{predicate},P/UP", f"{register},{predicate},P/UP", f"{register},P/UP") if uniform else (
        "P,P/UP", "R,P,P/UP")  # fmt: skip
    if instruction.modifiers not in (("ANY",), ("ALL",), ("EQ",)) or not _shapes(instruction, *shapes):
        return None
    places = instruction.operands[:-1]
    if any(o.inverted for o in places) or (places[0].kind in ("R", "UR") and instruction.modifiers != ("ANY",)):
        return None
    if uniform and instruction.guard is not None and instruction.guard.kind != "UP":
        return None
    return _Vote(instruction)


def _match(instruction: MachineInstruction) -> MachineStep | None:
    mode, *wide = instruction.modifiers or ("",)
    source = instruction.operands[-1]
    fits = mode in ("ANY", "ALL") and wide in ([], ["U64"])
    fits = fits and _shapes(instruction, "R,R" if mode == "ANY" else "P,R,R")
    fits = fits and not (wide and source.number > 0 and source.number % 2)
    return _Match(instruction) if fits else None


def _redux(instruction: MachineInstruction) -> MachineStep | None:
    words = list(instruction.modifiers)
    signed = words[-1:] == ["S32"]
    words = words[:-1] if signed else words
    op = "and" if not words else _REDUCED.get(words[0]) if len(words) == 1 else None
    if op is None or not _shapes(instruction, "UR,R") or (signed and op not in ("min", "max", "add")):
        return None
    if instruction.opcode == "CREDUX" and op not in ("min", "max"):
        return None
    return _Redux(instruction, op, signed)


def _elect(instruction: MachineInstruction) -> MachineStep | None:
    fits = not instruction.modifiers and _shapes(instruction, "P,R/UR,P")
    fits = fits and instruction.operands[2].number == 7 and not instruction.operands[2].inverted
    return _Elect(instruction) if fits else None


_MAKERS: dict[str, Callable[[MachineInstruction], MachineStep | None]] = {
    "SHFL": _shuffle,
    "VOTE": _vote,
    "VOTEU": _vote,
    "MATCH": _match,
    "REDUX": _redux,
    "CREDUX": _redux,
    "ELECT": _elect,
}
