"""Instructions of warps and blocks: exchange between lanes, barriers, shared memory, atomic operations, copies.

A copy of global to shared memory (LDGSTS) is made at once, so what waits for it does nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.control import (
    CACHES,
    ORDERS,
    SIZES,
    Maker,
    addresses_of,
    aligned,
    as_words,
    global_bytes,
    only,
    plain,
    refuse,
    size_of,
)
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.errors import MachineFault
from ptxdiff.sass.machine import WARP, Fibre, Lanes, Machine, MachineStep
from ptxdiff.sass.text import BYTES, MachineInstruction, Operand

Action = Callable[[Machine, Lanes, int], None]


class Act(MachineStep):
    """An instruction that the lanes of its guard carry out together, and that changes no program counter else."""

    def __init__(self, instruction: MachineInstruction, action: Action) -> None:
        super().__init__(instruction)
        self.action = action

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if count:
            self.action(machine, lanes, count)
        fibre.pc += BYTES
        return True


def _value(machine: Machine, operand: Operand, lanes: Lanes, count: int) -> Array:
    """The 32 bits of a register or an integer, for lanes."""
    if operand.kind == "int":
        return np.full(count, (operand.value or 0) & 0xFFFFFFFF, np.uint32)
    return machine.read(operand.kind, operand.number, lanes)


def _every(machine: Machine, lanes: Lanes) -> Array:
    return np.arange(machine.lanes) if lanes is None else lanes


def _held(machine: Machine, operand: Operand, lanes: Lanes) -> Array:
    """The truth values of a predicate."""
    return np.asarray((machine.read(operand.kind, operand.number, lanes) != 0) ^ operand.inverted)


def _predicate(operand: Operand, *kinds: str) -> bool:
    return operand.kind in kinds and not (operand.negated or operand.absolute or operand.suffix)


# Exchange within a warp -------------------------------------------------------------------------------------------


def _shfl(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """PTX ISA, shfl.sync: the clamp operand holds a clamp and, from bit 8 on, a mask of segments."""
    only(instruction, "IDX", "UP", "DOWN", "BFLY")
    operands = instruction.operands
    if len(instruction.modifiers) != 1 or len(operands) != 5 or not _predicate(operands[0], "P"):
        raise refuse(instruction)
    there, to, source, by, clamp = operands
    if not plain(to, "R") or not plain(source, "R") or not plain(by, "R", "int") or not plain(clamp, "R", "int"):
        raise refuse(instruction)
    mode = instruction.modifiers[0]

    def exchange(machine: Machine, lanes: Lanes, count: int) -> None:
        every = _every(machine, lanes)
        lane = every % WARP
        b = _value(machine, by, lanes, count).astype(np.int64) & 31
        c = _value(machine, clamp, lanes, count).astype(np.int64)
        segment, limit = c >> 8 & 31, c & 31
        highest = lane & segment | limit & ~segment
        if mode == "UP":
            other = lane - b
            inside = other >= highest
        else:
            other = {"DOWN": lane + b, "BFLY": lane ^ b}.get(mode, lane & segment | b & ~segment)
            inside = other <= highest
        other = np.where(inside, other, lane)
        takes_part = np.zeros(machine.lanes, np.bool_)
        takes_part[every] = True
        at = every - lane + other
        found = machine.register(source.number)[at]
        absent = ~takes_part[at]
        if absent.any():  # the value of a lane that does not take part is undefined
            found[absent] = machine.random.integers(0, 1 << 32, int(absent.sum()), np.uint32)
        machine.write("R", to.number, lanes, found)
        machine.write("P", there.number, lanes, inside.astype(np.uint8))

    return Act(instruction, exchange)


def _ballots(machine: Machine, lanes: Lanes, held: Array) -> Array:
    """For each warp, a mask of the lanes that hold."""
    truth = np.zeros(machine.lanes, np.bool_)
    truth[_every(machine, lanes)] = held
    return np.packbits(truth.reshape(-1, WARP), axis=1, bitorder="little").view(np.uint32).reshape(-1)


def _vote(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    only(instruction, "ALL", "ANY", "EQ")
    uniform = instruction.opcode == "VOTEU"
    *places, source = instruction.operands
    ballot = places[0] if len(places) == 2 else None
    if len(instruction.modifiers) != 1 or len(places) not in (1, 2) or not _predicate(source, "P", "UP"):
        raise refuse(instruction)
    if not _predicate(places[-1], "UP" if uniform else "P") or places[-1].inverted:
        raise refuse(instruction)
    if ballot is not None and not plain(ballot, "UR" if uniform else "R"):
        raise refuse(instruction)
    mode = instruction.modifiers[0]

    def count_votes(machine: Machine, lanes: Lanes, count: int) -> None:
        every = _every(machine, lanes)
        there = _ballots(machine, lanes, np.ones(count, np.bool_))
        votes = _ballots(machine, lanes, _held(machine, source, lanes))
        truth = {"ALL": votes == there, "ANY": votes != 0}.get(mode, (votes == there) | (votes == 0))
        if uniform:
            warps = np.unique(every // WARP)
            machine.write_uniform("UP", places[-1].number, warps, truth[warps].astype(np.uint8))
            if ballot is not None:
                machine.write_uniform("UR", ballot.number, warps, votes[warps])
            return
        machine.write("P", places[-1].number, lanes, truth[every // WARP].astype(np.uint8))
        if ballot is not None:
            machine.write("R", ballot.number, lanes, votes[every // WARP])

    return Act(instruction, count_votes)


_REDUCTIONS: Mapping[tuple[str, ...], tuple[Any, type[Any], int]] = {
    (): (np.bitwise_and, np.uint32, 0xFFFFFFFF),
    ("OR",): (np.bitwise_or, np.uint32, 0),
    ("XOR",): (np.bitwise_xor, np.uint32, 0),
    ("SUM",): (np.add, np.uint32, 0),
    ("SUM", "S32"): (np.add, np.uint32, 0),
    ("MIN",): (np.minimum, np.uint32, 0xFFFFFFFF),
    ("MAX",): (np.maximum, np.uint32, 0),
    ("MIN", "S32"): (np.minimum, np.int32, 0x7FFFFFFF),
    ("MAX", "S32"): (np.maximum, np.int32, -0x80000000),
}
"""By modifiers: the function, the type of its operands, and the value that changes nothing."""


def _redux(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    found = _REDUCTIONS.get(instruction.modifiers)
    operands = instruction.operands
    if found is None or len(operands) != 2 or not plain(operands[0], "UR") or not plain(operands[1], "R"):
        raise refuse(instruction)
    function, kind, neutral = found

    def reduce(machine: Machine, lanes: Lanes, count: int) -> None:
        warp_of = _every(machine, lanes) // WARP
        reduced = np.full(machine.warps, neutral, kind)
        function.at(reduced, warp_of, machine.read("R", operands[1].number, lanes).view(kind))
        warps = np.unique(warp_of)
        machine.write_uniform("UR", operands[0].number, warps, reduced[warps].view(np.uint32))

    return Act(instruction, reduce)


def _match(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    every_lane = instruction.modifiers == ("ALL",)
    *places, source = instruction.operands
    wanted = ("P", "R") if every_lane else ("R",)
    if instruction.modifiers not in (("ALL",), ("ANY",)) or tuple(p.kind for p in places) != wanted:
        raise refuse(instruction)
    if not plain(source, "R") or any(not plain(p, "P", "R") for p in places):
        raise refuse(instruction)

    def compare(machine: Machine, lanes: Lanes, count: int) -> None:
        every = _every(machine, lanes)
        there = np.zeros(machine.lanes, np.bool_)
        there[every] = True
        values = machine.register(source.number).reshape(-1, WARP)
        same = (values[:, :, None] == values[:, None, :]) & there.reshape(-1, 1, WARP)
        masks = np.packbits(same, axis=2, bitorder="little").view(np.uint32).reshape(-1)[every]
        if every_lane:
            alike = masks == machine.active_masks(lanes)
            machine.write("P", places[0].number, lanes, alike.astype(np.uint8))
            masks = np.where(alike, masks, np.uint32(0))
        machine.write("R", places[-1].number, lanes, masks)

    return Act(instruction, compare)


# Barriers of blocks -----------------------------------------------------------------------------------------------


class _Barrier(MachineStep):
    """BAR: all threads of a block, or a number of them, arrive; those that wait go on together."""

    def __init__(self, instruction: MachineInstruction, vote: Operand | None) -> None:
        super().__init__(instruction)
        self.vote = vote
        self.waits = "ARV" not in instruction.modifiers
        self.operation = next((w for w in instruction.modifiers if w in ("POPC", "AND", "OR")), "")
        self.numbers = [o for o in instruction.operands if o is not vote]

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
        if not count:
            fibre.pc += BYTES
            return True
        given = []
        for operand in self.numbers:
            values = np.unique(_value(machine, operand, lanes, count))
            if len(values) > 1:
                raise refuse(self.instruction, "names several barriers for threads that run together")
            given.append(int(values[0]))
        vote = None if self.vote is None else _held(machine, self.vote, lanes)
        return machine.meet(
            fibre, lanes, given[0], given[1] if len(given) > 1 else None, self.waits, vote, self.operation
        )


def _bar(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    only(instruction, "SYNC", "ARV", "RED", "POPC", "AND", "OR", "DEFER_BLOCKING")
    words, operands = set(instruction.modifiers) - {"DEFER_BLOCKING"}, instruction.operands
    reduces = "RED" in words
    if words not in ({"SYNC"}, {"ARV"}, {"RED", "POPC"}, {"RED", "AND"}, {"RED", "OR"}):
        raise refuse(instruction)
    vote = operands[-1] if reduces and operands else None
    numbers = operands[:-1] if reduces else operands
    if not 1 <= len(numbers) <= 2 or not all(plain(o, "R", "int") for o in numbers):
        raise refuse(instruction)
    if vote is not None and not _predicate(vote, "P"):
        raise refuse(instruction)
    if words == {"ARV"} and len(numbers) != 2:
        raise refuse(instruction)
    return _Barrier(instruction, vote)


def _barrier_result(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    operands = instruction.operands
    kinds = [o.kind for o in operands]
    if (
        instruction.modifiers != ("RESULT",)
        or kinds not in (["R"], ["R", "P"])
        or not all(plain(o, "R", "P") for o in operands)
    ):
        raise refuse(instruction)

    def fetch(machine: Machine, lanes: Lanes, count: int) -> None:
        result = machine.barrier_result[_every(machine, lanes)]
        machine.write("R", operands[0].number, lanes, result)
        if len(operands) > 1:
            machine.write("P", operands[1].number, lanes, (result != 0).astype(np.uint8))

    return Act(instruction, fetch)


_ORDERING: Mapping[str, frozenset[tuple[str, ...]]] = {
    "MEMBAR": frozenset({(s, w) for s in ("SC", "ALL") for w in ("CTA", "GPU", "SYS", "VC")}),
    "ERRBAR": frozenset({()}),
    "CGAERRBAR": frozenset({()}),
    "CCTL": frozenset({("IVALL",)}),
    "FENCE": frozenset({("VIEW", "ASYNC"), ("VIEW", "ASYNC", "S")}),
    "LDGDEPBAR": frozenset({()}),
    "DEPBAR": frozenset({("LE",)}),
    "NANOSLEEP": frozenset({()}),
}
"""Instructions that order or wait, and change no value, by their modifiers."""


def _orders(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    if instruction.modifiers not in _ORDERING[instruction.opcode]:
        raise refuse(instruction, "has a modifier that is not known")
    return Act(instruction, lambda machine, lanes, count: None)


# Shared memory ----------------------------------------------------------------------------------------------------


def shared_index(machine: Machine, instruction: MachineInstruction, lanes: Array, addresses: Array, size: int) -> Array:
    """Where accesses of `size` bytes lie in the shared memory of all blocks, in units of their size."""
    room = machine.launch.shared
    addresses = addresses & 0xFFFFFFFF
    if (addresses % size).any():
        at = int(addresses[addresses % size != 0][0])
        raise MachineFault(f"{instruction.text}: shared address 0x{at:x} is not a multiple of {size}")
    if (addresses + size > room).any():
        at = int(addresses[addresses + size > room][0])
        raise MachineFault(f"{instruction.text}: 0x{at:x} lies outside the {room} bytes of shared memory")
    return np.asarray((lanes // machine.threads * room + addresses) // size)


def shared_units(machine: Machine, size: int) -> Array:
    """The shared memory of all blocks, in units of some bytes."""
    return np.asarray(machine.shared.reshape(-1, size))


def _stored(machine: Machine, data: Operand, lanes: Lanes, count: int, size: int) -> Array:
    """The bytes that lanes store from registers, a row for each."""
    words = np.zeros((count, max(size // 4, 1)), np.uint32)
    for k in range(words.shape[1]):
        if data.number >= 0:
            words[:, k] = machine.read("R", data.number + k, lanes)
    return words.view(np.uint8)[:, :size]


def is_shared(where: Operand) -> bool:
    """Whether an operand is an address of shared memory."""
    return (
        where.kind == "mem"
        and not where.wide
        and not where.name
        and (where.uniform is None or not where.uniform.suffix)
    )


def _shared(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    only(instruction, *SIZES)
    loads = instruction.opcode == "LDS"
    if len(instruction.operands) != 2:
        raise refuse(instruction)
    data, where = instruction.operands if loads else instruction.operands[::-1]
    if not is_shared(where) or not plain(data, "R"):
        raise refuse(instruction)
    size, signed = size_of(instruction)
    aligned(instruction, data, size)

    def access(machine: Machine, lanes: Lanes, count: int) -> None:
        addresses = addresses_of(machine, where, lanes, count, wide=False)
        index = shared_index(machine, instruction, _every(machine, lanes), addresses, size)
        if not loads:
            shared_units(machine, size)[index] = _stored(machine, data, lanes, count, size)
            return
        for k, word in enumerate(as_words(shared_units(machine, size)[index], size, signed)):
            if data.number >= 0:
                machine.write("R", data.number + k, lanes, word)

    return Act(instruction, access)


def _copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """LDGSTS: from global to shared memory; where the predicate is false, zeros."""
    only(instruction, "E", "BYPASS", "64", "128", "ZFILL", *CACHES)
    operands = instruction.operands
    if "E" not in instruction.modifiers or "ZFILL" in instruction.modifiers or len(operands) not in (2, 3):
        raise refuse(instruction)
    to, source = operands[:2]
    chosen = operands[2] if len(operands) == 3 else None
    if not is_shared(to) or source.kind != "mem" or (chosen is not None and not _predicate(chosen, "P")):
        raise refuse(instruction)
    size, _ = size_of(instruction)

    def copy(machine: Machine, lanes: Lanes, count: int) -> None:
        index = shared_index(
            machine, instruction, _every(machine, lanes), addresses_of(machine, to, lanes, count, wide=False), size
        )
        rows = np.zeros((count, size), np.uint8)
        read = np.ones(count, np.bool_) if chosen is None else _held(machine, chosen, lanes)
        if read.any():
            addresses = addresses_of(machine, source, lanes, count, wide=True)
            rows[read] = global_bytes(machine, instruction, addresses[read], size)
        shared_units(machine, size)[index] = rows

    return Act(instruction, copy)


# Atomic operations ------------------------------------------------------------------------------------------------


def _float_sum(old: int, new: int, ftz: bool) -> int:
    """The sum of two float32 codes, to nearest even; a NaN is the canonical one. ftz: subnormals are zeros."""
    codes = np.array([old, new], np.uint32)
    if ftz:
        codes = np.where(codes & 0x7F800000 == 0, codes & 0x80000000, codes)
    with np.errstate(all="ignore"):
        total = codes.view(np.float32)[0] + codes.view(np.float32)[1]
    if np.isnan(total):
        return 0x7FFFFFFF
    code = int(np.float32(total).view(np.uint32))
    return code & 0x80000000 if ftz and code & 0x7F800000 == 0 else code


def _signed(value: int, bits: int) -> int:
    return value - (1 << bits) if value >> bits - 1 else value


_UPDATES: Mapping[str, Callable[[int, int, int, bool], int]] = {
    "ADD": lambda old, new, bits, signed: old + new,
    "MIN": lambda old, new, bits, signed: min(old, new, key=lambda v: _signed(v, bits) if signed else v),
    "MAX": lambda old, new, bits, signed: max(old, new, key=lambda v: _signed(v, bits) if signed else v),
    "INC": lambda old, new, bits, signed: 0 if old >= new else old + 1,
    "DEC": lambda old, new, bits, signed: new if old == 0 or old > new else old - 1,
    "AND": lambda old, new, bits, signed: old & new,
    "OR": lambda old, new, bits, signed: old | new,
    "XOR": lambda old, new, bits, signed: old ^ new,
    "EXCH": lambda old, new, bits, signed: new,
}
"""The new value of a location, from the old one and the operand."""
_TYPES = ("S32", "64", "S64", "F32", "FTZ", "RN")


def _atomic(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """ATOMS, ATOMG, ATOM, RED, REDG. Lanes come in their order; another order is another schedule."""
    opcode, words = instruction.opcode, instruction.modifiers
    shared, returns = opcode == "ATOMS", opcode.startswith("ATOM")
    only(instruction, *_UPDATES, "CAS", *_TYPES, *(() if shared else ("E", *ORDERS, *CACHES)))
    name = next((w for w in words if w in _UPDATES or w == "CAS"), "")
    types = tuple(w for w in words if w in _TYPES)
    floating = types == ("F32", "FTZ", "RN")
    if not name or types not in ((), ("S32",), ("64",), ("S64",), ("F32", "FTZ", "RN")) or (floating and name != "ADD"):
        raise refuse(instruction)
    operands = list(instruction.operands)
    if returns and not shared:
        flag = operands.pop(0)
        if not _predicate(flag, "P") or flag.number != 7:
            raise refuse(instruction)
    to = operands.pop(0) if returns else None
    if len(operands) != (3 if name == "CAS" else 2) or (to is not None and not plain(to, "R")):
        raise refuse(instruction)
    where, *data = operands
    if where.kind != "mem" or not all(plain(d, "R") for d in data) or (shared and not is_shared(where)):
        raise refuse(instruction)
    if not shared and "E" not in words:
        raise refuse(instruction)
    wide, signed = types in (("64",), ("S64",)), types in (("S32",), ("S64",))
    size, bits = (8, 64) if wide else (4, 32)
    kind: Any = np.uint64 if wide else np.uint32
    update = _UPDATES.get(name)

    def change(machine: Machine, lanes: Lanes, count: int) -> None:
        addresses = addresses_of(machine, where, lanes, count, wide=not shared)
        given = [_stored(machine, d, lanes, count, size).copy().view(kind)[:, 0].tolist() for d in data]
        before = np.empty(count, kind)
        index = shared_index(machine, instruction, _every(machine, lanes), addresses, size) if shared else None
        for at in range(count):
            one = slice(at, at + 1)
            row = (
                shared_units(machine, size)[index[one]]
                if index is not None
                else global_bytes(machine, instruction, addresses[one], size)
            )
            old = int(np.ascontiguousarray(row).view(kind)[0, 0])
            before[at] = old
            if update is None:
                new = given[1][at] if old == given[0][at] else old
            elif floating:
                new = _float_sum(old, given[0][at], ftz=True)
            else:
                new = update(old, given[0][at], bits, signed) & (1 << bits) - 1
            changed = np.array([new], kind).view(np.uint8).reshape(1, size)
            if index is not None:
                shared_units(machine, size)[index[one]] = changed
            else:
                global_bytes(machine, instruction, addresses[one], size, changed)
        if to is not None and to.number >= 0:
            for k, word in enumerate(as_words(before.view(np.uint8).reshape(count, size), size, 0)):
                machine.write("R", to.number + k, lanes, word)

    return Act(instruction, change)


BLOCKS: dict[str, Maker] = {
    "SHFL": _shfl,
    "VOTE": _vote,
    "VOTEU": _vote,
    "REDUX": _redux,
    "CREDUX": _redux,
    "MATCH": _match,
    "BAR": _bar,
    "B2R": _barrier_result,
    **dict.fromkeys(_ORDERING, _orders),
    **dict.fromkeys(("LDS", "STS"), _shared),
    "LDGSTS": _copy,
    **dict.fromkeys(("ATOMS", "ATOMG", "ATOM", "RED", "REDG"), _atomic),
}
