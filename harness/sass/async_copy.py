"""Barriers in shared memory (mbarriers: SYNCS), bulk copies (UBLKCP) and copies of boxes of tensors (UTMALDG, UTMASTG).

The state of a barrier is the emulator's (`mbarrier_phases`). Its 64 bits are opaque here: ptxas writes them once, in
SYNCS.EXCH, and they say how many arrivals a phase takes. In what an arrival gives, only the parity of the phase, bit
63, is known. A thread that saw a phase complete is ordered after all that arrived until then.

A bulk copy is made at once and its bytes arrive. Until a thread has seen the phase complete at which they do, an access
to them in shared memory is a fault. Machine code that overwrites too early what a copy to global memory reads is not
detected.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptxdiff.emulator.kernel.async_copy.mbarrier import COUNT
from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier
from ptxdiff.emulator.kernel.async_copy.tensor_maps import BYTES as MAP_BYTES
from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap, decoded, rows_of, swizzled
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass.control import global_rows, refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep, parameters_at
from ptxdiff.sass.matrices import Act
from ptxdiff.sass.shared import SharedBlocks, is_shared, shared_addresses
from ptxdiff.sass.text import BYTES, MachineFault, MachineInstruction, Operand, Unsupported, plain

_SIZE = 8
_CHUNK = 16


def _places(machine: Machine, instruction: MachineInstruction, lanes: Lanes, count: int, where: Operand) -> Array:
    """The places of barriers. Arrivals that give no state (.RED) may be at those of another block of the cluster."""
    every = machine._all if lanes is None else lanes
    addresses = shared_addresses(machine, lanes, count, where)
    reaches = instruction.modifiers[:1] == ("ARRIVE",) and "RED" in instruction.modifiers
    return SharedBlocks.of(machine).places(instruction, addresses, _SIZE, every, reaches=reaches)


def _barrier_at(shared: SharedBlocks, instruction: MachineInstruction, place: int) -> Barrier:
    found = shared.mbarriers.get(place)
    if found is None:
        at = place % shared.memory.size
        raise MachineFault(f"{instruction.text}: no mbarrier was made at address 0x{at:x} of shared memory")
    return found


def _exchange(instruction: MachineInstruction, where: Operand, value: Operand) -> MachineStep:
    """SYNCS.EXCH.64: make a barrier. Its first value holds 2**20 - count, in bits 1 and 43 and above."""
    if not plain(value, "UR") or value.number < 0:
        raise refuse(instruction)

    def make(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        every = machine._all if lanes is None else lanes
        low, high = (machine.read("UR", value.number + k, lanes).tolist() for k in (0, 1))
        places = _places(machine, instruction, lanes, count, where).tolist()
        for place, lane, first, second in zip(places, every.tolist(), low, high, strict=True):
            arrivals = COUNT + 1 - (first >> 1)
            if first & 1 or second != (COUNT + 1 - arrivals) << 11 & 0xFFFFFFFF or not 0 < arrivals <= COUNT:
                raise Unsupported(
                    f"{instruction.text}: 0x{second:08x}{first:08x} is not the first value of an mbarrier"
                )
            old = shared.mbarriers.get(place)
            own = old is None or old.init_lane // _WARP == lane // _WARP
            if old is not None and not own and (old.pending != old.expected or old.bytes):
                raise MachineFault(f"{instruction.text}: makes an mbarrier where one is in use")
            agent = shared.order.agent(("mbarrier", place % (shared.memory.size * shared.cluster)))
            made = Barrier(arrivals, arrivals, init_time=shared.order.clock, init_lane=lane, agent=agent)
            shared.mbarriers[place] = made
            shared.memory.bytes[place : place + _SIZE] = machine.random.integers(0, 256, _SIZE, np.uint8)

    return Act(instruction, make)


_ARRIVALS: dict[tuple[str, ...], tuple[str, str]] = {
    ("TRANS64",): ("one", "register"),
    ("TRANS64", "A1T0"): ("one", ""),
    ("TRANS64", "ART0"): ("register", ""),
    ("TRANS64", "RED", "A1T0"): ("one", ""),
    ("TRANS64", "RED", "ART0"): ("register", ""),
    ("TRANS64", "RED", "A0TR"): ("", "register"),
    ("TRANS64", "OPTOUT", "A1T0"): ("one", ""),
    ("TRANS64", "OPTOUT", "ART0"): ("register", ""),
}
"""By modifiers: where the number of arrivals is from, and that of expected bytes."""


def _arrive(instruction: MachineInstruction, to: Operand, where: Operand, number: Operand) -> MachineStep:
    """SYNCS.ARRIVE: arrive, or expect bytes, or both."""
    known = _ARRIVALS.get(instruction.modifiers[1:])
    if known is None or not plain(to, "R") or not plain(number, "R") or (to.number > 0 and to.number % 2):
        raise refuse(instruction)
    if ("register" in known) != (number.number >= 0):
        raise refuse(instruction)
    arriving, expecting = known
    drops = "OPTOUT" in instruction.modifiers

    def arrive(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        every = machine._all if lanes is None else lanes
        places = _places(machine, instruction, lanes, count, where).tolist()
        numbers = machine.read("R", number.number, lanes).tolist()
        state = machine.random.integers(0, 1 << 32, (2, count), np.uint32)
        shared.order.tick()
        for at, (place, lane, value) in enumerate(zip(places, every.tolist(), numbers, strict=True)):
            found = _barrier_at(shared, instruction, place)
            state[1, at] = (int(state[1, at]) & 0x7FFFFFFF) | (found.phase & 1) << 31
            if expecting:
                found.bytes += value
            if not arriving:
                continue
            arrivals = 1 if arriving == "one" else value
            if not 0 < arrivals <= found.pending:
                raise MachineFault(f"{instruction.text}: {arrivals} arrivals, and the phase takes {found.pending} more")
            found.pending -= arrivals
            found.expected -= arrivals if drops else 0
            found.arrive(shared.order, shared.order.release(np.array([lane])))
            found.settle(shared.order)
        if to.number >= 0:
            for k in (0, 1):
                machine.write("R", to.number + k, lanes, state[k])

    return Act(instruction, arrive)


class _PhaseCheck(MachineStep):
    """SYNCS.PHASECHK: whether the phase of a parity, bit 31 of a register, is complete. A try lets others run first."""

    def __init__(self, instruction: MachineInstruction, to: Operand, where: Operand, parity: Operand) -> None:
        super().__init__(instruction)
        self.to, self.where, self.parity = to, where, parity
        self.tries = "TRYWAIT" in instruction.modifiers

    def run(self, machine: Machine, fibre: Fibre) -> bool:
        """See MachineStep.run."""
        instruction = self.instruction
        lanes, count = machine.guarded(instruction.guard, fibre.lanes)
        fibre.pc += BYTES
        if not count:
            return True
        shared = SharedBlocks.of(machine)
        every = machine._all if lanes is None else lanes
        places = _places(machine, instruction, lanes, count, self.where)
        parity = machine.read("R", self.parity.number, lanes) >> np.uint32(31)
        answers = np.zeros(count, np.uint8)
        for place in np.unique(places).tolist():
            found = _barrier_at(shared, instruction, place)
            done = (places == place) & (parity != found.phase & 1)
            answers[done] = 1
            last = found.history[-1] if found.history else None
            if done.any() and last is not None:
                found.observed = max(found.observed, last.phase)
                shared.land(place)
                shared.order.acquire(every[done], last.released)
        machine.write("P", self.to.number, lanes, answers)
        if answers.any() or not self.tries:
            return True
        total = machine.lanes if fibre.lanes is None else len(fibre.lanes)
        if not machine.fibres:
            if count == total:
                barrier = _barrier_at(shared, instruction, int(places[0]))
                raise MachineFault(f"deadlock: {instruction.text} waits, and {barrier.words}")
            return True
        machine.launch.diverged = True
        machine.fibres.insert(0, fibre)
        return False


def _syncs(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    words, operands = instruction.modifiers, instruction.operands
    if words == ("CCTL", "IV") and len(operands) == 1 and is_shared(operands[0]):
        return Act(instruction, lambda machine, lanes, count: _forget(machine, instruction, lanes, count))
    if len(operands) != 3 or not is_shared(operands[1]):
        raise refuse(instruction)
    to, where, value = operands
    if words == ("EXCH", "64") and to == Operand("UR", -1):
        return _exchange(instruction, where, value)
    if words[:1] == ("ARRIVE",):
        return _arrive(instruction, to, where, value)
    if words in (("PHASECHK", "TRANS64"), ("PHASECHK", "TRANS64", "TRYWAIT")) and plain(to, "P") and plain(value, "R"):
        return _PhaseCheck(instruction, to, where, value)
    raise refuse(instruction)


def _forget(machine: Machine, instruction: MachineInstruction, lanes: Lanes, count: int) -> None:
    """SYNCS.CCTL.IV: the bytes of a barrier are memory again."""
    shared = SharedBlocks.of(machine)
    for place in _places(machine, instruction, lanes, count, instruction.operands[0]).tolist():
        _barrier_at(shared, instruction, place)
        del shared.mbarriers[place]


def _copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UBLKCP: each warp copies bytes. To shared memory: the next register has the address of the barrier they reach."""
    operands, guard = instruction.operands, instruction.guard
    if instruction.modifiers not in (("S", "G"), ("G", "S")) or len(operands) != 3:
        raise refuse(instruction)
    to, source, size = operands
    if not _is_uniform(to) or not _is_uniform(source) or not plain(size, "UR") or size.number < 0:
        raise refuse(instruction)
    if guard is not None and guard.kind != "UP":
        raise refuse(instruction, "has a predicate of lanes")
    loads = instruction.modifiers[0] == "S"

    def copy(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        for warp in np.unique((machine._all if lanes is None else lanes) // _WARP).tolist():
            near, far = (_value(machine, o, warp) for o in ((to, source) if loads else (source, to)))
            chunks = _value(machine, size, warp)
            if chunks >> 16:
                raise Unsupported(f"{instruction.text}: a copy to several blocks")
            threads = np.full(chunks, warp * _WARP)
            address = (far | _value(machine, source if loads else to, warp, 1) << 32) + _CHUNK * np.arange(chunks)
            places = shared.places(instruction, near + _CHUNK * np.arange(chunks), _CHUNK, threads)
            if not loads:
                rows = shared.load(instruction, places, _CHUNK, threads, False)
                global_rows(machine, instruction, address, _CHUNK, rows)
                continue
            shared.store(instruction, places, global_rows(machine, instruction, address, _CHUNK), threads)
            _arrived(machine, instruction, _value(machine, to, warp, 1), warp, places)

    return Act(instruction, copy)


def _arrived(machine: Machine, instruction: MachineInstruction, barrier: int, warp: int, places: Array) -> None:
    """Let the bytes of a copy of a warp to places, `_CHUNK` each, arrive at the mbarrier at an address."""
    shared, lane = SharedBlocks.of(machine), np.array([warp * _WARP])
    place = int(shared.places(instruction, np.array([barrier]), _SIZE, lane)[0])
    found = _barrier_at(shared, instruction, place)
    shared.order.tick()
    shared.begin_copy(places, place, found.phase)
    found.bytes -= _CHUNK * len(places)
    found.copies = True
    found.arrive(shared.order, shared.order.release(lane))
    found.settle(shared.order)


_RANKS = {f"{rank}D": rank for rank in range(1, 6)}


def _box_copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTMALDG and UTMASTG: each warp copies a box of a tensor, from or to shared memory.

    The registers from the first operand's on have the address in shared memory, for a load that of the mbarrier, and
    the coordinates; those of the second have the address of the tensor map.
    """
    words, operands, guard = instruction.modifiers, instruction.operands, instruction.guard
    if len(words) != 1 or words[0] not in _RANKS or len(operands) != 2 or not all(map(_is_uniform, operands)):
        raise refuse(instruction)
    if guard is not None and guard.kind != "UP":
        raise refuse(instruction, "has a predicate of lanes")
    (box, where), rank, loads = operands, _RANKS[words[0]], instruction.opcode == "UTMALDG"

    def copy(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        for warp in np.unique((machine._all if lanes is None else lanes) // _WARP).tolist():
            found = _tensor_map(
                machine, instruction, _value(machine, where, warp) | _value(machine, where, warp, 1) << 32
            )
            if len(found.box) != rank:
                raise MachineFault(f"{instruction.text}: a tensor map of {len(found.box)} dimensions")
            corner = [_value(machine, box, warp, 1 + loads + k) for k in range(rank)]
            corner = [c - (1 << 32) if c >> 31 else c for c in corner]
            threads = np.full(found.bytes // _CHUNK, warp * _WARP)
            places = shared.places(instruction, swizzled(found, _value(machine, box, warp)), _CHUNK, threads)
            row = found.box[0] * found.size
            address, inside, low, high = rows_of(found, corner)
            part = slice(low * found.size, high * found.size)
            each = (address[inside][:, None] + np.arange(part.start, part.stop)).reshape(-1)
            if loads:
                fill = np.array([found.fill], f"u{found.size}").view(np.uint8)
                data = np.tile(fill, len(address) * found.box[0]).reshape(-1, row)
                if len(each):
                    data[inside, part] = global_rows(machine, instruction, each, 1).reshape(-1, part.stop - part.start)
                shared.store(instruction, places, data.reshape(-1, _CHUNK), threads)
                _arrived(machine, instruction, _value(machine, box, warp, 1), warp, places)
            else:
                data = shared.load(instruction, places, _CHUNK, threads, False).reshape(-1, row)
                if len(each):
                    global_rows(machine, instruction, each, 1, np.ascontiguousarray(data[inside, part]).reshape(-1, 1))

    return Act(instruction, copy)


def _tensor_map(machine: Machine, instruction: MachineInstruction, address: int) -> TensorMap:
    """The tensor map at a generic address, which must be among the parameters.

    The bits of a parameter are the emulator's. A kernel that makes a map writes the device's, which are not known.
    """
    if address % _MAP_ALIGNMENT:
        raise MachineFault(f"{instruction.text}: a tensor map at 0x{address:x}, no multiple of {_MAP_ALIGNMENT}")
    at = address - parameters_at(machine.launch.code.base)
    if not 0 <= at <= len(machine.launch.parameters) - MAP_BYTES:
        raise Unsupported(f"{instruction.text}: a tensor map that is no parameter: its bits are not known")
    found = decoded(machine.launch.parameters[at : at + MAP_BYTES])
    if isinstance(found, str):
        raise Unsupported(f"{instruction.text}: its tensor map: {found}")
    if found.padded:
        raise Unsupported(f"{instruction.text}: a tensor map of padded elements of four bits")
    return found


_MAP_ALIGNMENT = 64


def _is_uniform(operand: Operand) -> bool:
    uniform = operand.uniform
    known = operand.kind == "mem" and operand.base is None and not operand.offset and not operand.name
    return known and uniform is not None and uniform.number >= 0 and not uniform.suffix


def _value(machine: Machine, operand: Operand, warp: int, further: int = 0) -> int:
    register = operand.uniform if operand.kind == "mem" else operand
    assert register is not None
    return int(machine.uniform_register(register.number + further)[warp])


def _nothing(machine: Machine, lanes: Lanes, count: int) -> None:
    """Copies are complete when they are issued, and time does not pass."""


def _waits(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTMACMDFLUSH, which closes a group of copies, and NANOSLEEP, also with SYNCS."""
    words, operands = instruction.modifiers, instruction.operands
    if instruction.opcode == "UTMACMDFLUSH":
        if words or operands:
            raise refuse(instruction)
        return Act(instruction, _nothing)
    if words in ((), ("SYNCS",)) and len(operands) == 1 and plain(operands[0], "int", "R"):
        return Act(instruction, _nothing)
    raise refuse(instruction)


ASYNC_COPIES: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    "SYNCS": _syncs,
    "UBLKCP": _copy,
    **dict.fromkeys(("UTMALDG", "UTMASTG"), _box_copy),
    **dict.fromkeys(("UTMACMDFLUSH", "NANOSLEEP"), _waits),
}
