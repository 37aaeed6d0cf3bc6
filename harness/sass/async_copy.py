"""Barriers in shared memory (mbarriers: SYNCS, ARRIVES), bulk copies (UBLKCP) and reductions (UBLKRED), and boxes of
tensors (UTMALDG, UTMASTG, UTMAREDG).

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

from ptxdiff.emulator.isa import asynchronous  # noqa: F401  declares the forms of cp.reduce
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.kernel.async_copy.mbarrier import COUNT
from ptxdiff.emulator.kernel.async_copy.mbarrier_phases import Barrier
from ptxdiff.emulator.kernel.async_copy.tensor_maps import BYTES as MAP_BYTES
from ptxdiff.emulator.kernel.async_copy.tensor_maps import TensorMap, aimed, rows_of, swizzled
from ptxdiff.emulator.kernel.async_copy.tensor_reductions import reduction
from ptxdiff.emulator.kernel.memory.access import update_of
from ptxdiff.emulator.kernel.memory.space import PARAMETER_WINDOW, SHARED_WINDOW
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.emulator.text.types import TYPES
from ptxdiff.sass.control import global_rows, refuse
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.machine import _WARP, Fibre, Lanes, Machine, MachineStep, parameters_at
from ptxdiff.sass.matrices import Act
from ptxdiff.sass.shared import SharedBlocks, is_shared, shared_addresses
from ptxdiff.sass.tensor_maps import read_map
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
    ("TRANS64", "RED"): ("one", "register"),
    ("TRANS64", "RED", "A1T0"): ("one", ""),
    ("TRANS64", "RED", "ART0"): ("register", ""),
    ("TRANS64", "RED", "A0TR"): ("", "register"),
    ("TRANS64", "RED", "A0T1"): ("", "one"),
    ("TRANS64", "OPTOUT", "A1T0"): ("one", ""),
    ("TRANS64", "OPTOUT", "ART0"): ("register", ""),
}
"""By modifiers: where the number of arrivals is from, and that of expected bytes."""


_ARRIVALS_OF_WARPS: dict[tuple[str, ...], tuple[str, str]] = {
    ("TRANS64",): ("one", "register"),
    ("TRANS64", "ACT0"): ("each lane", ""),
    ("TRANS64", "ART0"): ("register", ""),
}
"""The same of USYNCS, which a warp carries out once. Source: what ptxas 13.5.37 makes of `mbarrier.arrive` for sm_107a.
It multiplies a count by the number of active lanes for ART0, and leaves anything in the register of ACT0."""


def _arrive_as_a_warp(instruction: MachineInstruction, to: Operand, where: Operand, number: Operand) -> MachineStep:
    """USYNCS.ARRIVE: the lanes of a warp that are here arrive together."""
    known = _ARRIVALS_OF_WARPS.get(instruction.modifiers[1:])
    if known is None or not plain(to, "UR") or not plain(number, "UR") or (to.number > 0 and to.number % 2):
        raise refuse(instruction)
    arriving, expecting = known
    if "register" in known and number.number < 0:
        raise refuse(instruction)

    def arrive(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        every = machine._all if lanes is None else lanes
        places = _places(machine, instruction, lanes, count, where)
        numbers = machine.read("UR", number.number, lanes)
        warps, first, sizes = np.unique(every // _WARP, return_index=True, return_counts=True)
        state = machine.random.integers(0, 1 << 32, (2, len(warps)), np.uint32)
        shared.order.tick()
        for at, warp in enumerate(warps.tolist()):
            found = _barrier_at(shared, instruction, int(places[first[at]]))
            state[1, at] = (int(state[1, at]) & 0x7FFFFFFF) | (found.phase & 1) << 31
            value = int(numbers[first[at]])
            found.bytes += value if expecting else 0
            arrivals = {"one": 1, "each lane": int(sizes[at]), "register": value}[arriving]
            if not 0 < arrivals <= found.pending:
                raise MachineFault(f"{instruction.text}: {arrivals} arrivals, and the phase takes {found.pending} more")
            found.pending -= arrivals
            found.arrive(shared.order, shared.order.release(every[every // _WARP == warp]))
            found.settle(shared.order)
        for k in (0, 1):
            machine.write_uniform("UR", to.number + k if to.number >= 0 else -1, warps, state[k])

    return Act(instruction, arrive)


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
                found.bytes += 1 if expecting == "one" else value
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
    """SYNCS.PHASECHK: whether the phase of a parity, bit 31 of a register, is complete. A try lets others run first.

    USYNCS.PHASECHK is the same with a uniform register and predicate.
    """

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
        parity = machine.read(self.parity.kind, self.parity.number, lanes) >> np.uint32(31)
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
        if self.to.kind == "UP":
            warps, first = np.unique(every // _WARP, return_index=True)
            machine.write_uniform("UP", self.to.number, warps, answers[first])
        else:
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


_PHASE_CHECKS = (("PHASECHK", "TRANS64"), ("PHASECHK", "TRANS64", "TRYWAIT"))


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
    if words in _PHASE_CHECKS and plain(to, "P") and plain(value, "R"):
        return _PhaseCheck(instruction, to, where, value)
    raise refuse(instruction)


def _usyncs(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """USYNCS (sm_107a): SYNCS that a warp carries out once, with uniform registers."""
    words, operands, guard = instruction.modifiers, instruction.operands, instruction.guard
    places = operands[:1] if len(operands) == 1 else operands[1:2]
    if not places or not is_shared(places[0]) or places[0].base is not None or places[0].uniform is None:
        raise refuse(instruction)
    if guard is not None and guard.kind != "UP":
        raise refuse(instruction)
    if words == ("CCTL", "IV") and len(operands) == 1:

        def forget(machine: Machine, lanes: Lanes, count: int) -> None:
            every = machine._all if lanes is None else lanes
            first = every[np.unique(every // _WARP, return_index=True)[1]]
            _forget(machine, instruction, first, len(first))

        return Act(instruction, forget)
    if len(operands) != 3:
        raise refuse(instruction)
    to, where, value = operands
    if words == ("EXCH", "64") and to == Operand("UR", -1):
        return _exchange(instruction, where, value)
    if words[:1] == ("ARRIVE",):
        return _arrive_as_a_warp(instruction, to, where, value)
    if words in _PHASE_CHECKS and plain(to, "UP") and plain(value, "UR"):
        return _PhaseCheck(instruction, to, where, value)
    raise refuse(instruction)


def _forget(machine: Machine, instruction: MachineInstruction, lanes: Lanes, count: int) -> None:
    """SYNCS.CCTL.IV: the bytes of a barrier are memory again."""
    shared = SharedBlocks.of(machine)
    for place in _places(machine, instruction, lanes, count, instruction.operands[0]).tolist():
        _barrier_at(shared, instruction, place)
        del shared.mbarriers[place]


_COPIES = {
    ("S", "G"): "from global",
    ("S", "G", "MULTICAST"): "to several",
    ("G", "S"): "to global",
    ("S", "S"): "from shared",
}


def _copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UBLKCP: each warp copies bytes. To shared memory: the next register has the address of the barrier they reach."""
    operands, way = _without_policy(instruction), _COPIES.get(instruction.modifiers)
    if way is None or len(operands) != 3:
        raise refuse(instruction)
    to, source, size = operands
    if not _is_uniform(to) or not _is_uniform(source) or not plain(size, "UR") or size.number < 0:
        raise refuse(instruction)
    _refuse_lanes(instruction)

    def copy(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        for warp in np.unique((machine._all if lanes is None else lanes) // _WARP).tolist():
            chunks, ranks = _value(machine, size, warp) & 0xFFFF, _value(machine, size, warp) >> 16
            if ranks and way != "to several":
                raise Unsupported(f"{instruction.text}: a copy to several blocks")
            threads, steps = np.full(chunks, warp * _WARP), _CHUNK * np.arange(chunks)
            if way == "to global":
                places = shared.places(instruction, _value(machine, source, warp) + steps, _CHUNK, threads)
                rows = shared.load(instruction, places, _CHUNK, threads, False)
                global_rows(machine, instruction, _wide(machine, to, warp) + steps, _CHUNK, rows)
                continue
            if way == "from shared":
                places = shared.places(instruction, _value(machine, source, warp) + steps, _CHUNK, threads)
                rows = shared.load(instruction, places, _CHUNK, threads, False)
            else:
                rows = global_rows(machine, instruction, _wide(machine, source, warp) + steps, _CHUNK)
            for near, barrier in _ends(machine, instruction, to, warp, ranks if way == "to several" else None):
                places = shared.places(instruction, near + steps, _CHUNK, threads, reaches=True)
                shared.store(instruction, places, rows, threads)
                _arrived(machine, instruction, barrier, warp, places)

    return Act(instruction, copy)


def _without_policy(instruction: MachineInstruction) -> tuple[Operand, ...]:
    """The operands without a descriptor that says how caches keep the data. It decides no value."""
    operands = instruction.operands
    return operands[:-1] if operands and operands[-1].kind == "desc" else operands


def _refuse_lanes(instruction: MachineInstruction) -> None:
    if instruction.guard is not None and instruction.guard.kind != "UP":
        raise refuse(instruction, "has a predicate of lanes")


def _ends(
    machine: Machine, instruction: MachineInstruction, to: Operand, warp: int, ranks: int | None
) -> list[tuple[int, int]]:
    """Where the bytes of a copy go, and the mbarriers at which they arrive: addresses in one block or, by a mask, in
    several, at the same place in each."""
    addresses = [_value(machine, to, warp), _value(machine, to, warp, 1)]
    if ranks is None:
        return [(addresses[0], addresses[1])]
    shared = SharedBlocks.of(machine)
    near, barriers = (shared.near(instruction, a, warp * _WARP, ranks) for a in addresses)
    return list(zip(near, barriers, strict=True))


def _arrived(machine: Machine, instruction: MachineInstruction, barrier: int, warp: int, places: Array) -> None:
    """Let the bytes of a copy of a warp to places, `_CHUNK` each, arrive at the mbarrier at an address.

    Raises MachineFault for an mbarrier of another block than the one that the bytes go to.
    """
    shared, lane = SharedBlocks.of(machine), np.array([warp * _WARP])
    place = int(shared.places(instruction, np.array([barrier]), _SIZE, lane, reaches=True)[0])
    if len(places) and place // shared.memory.size != int(places[0]) // shared.memory.size:
        raise MachineFault(f"{instruction.text}: the bytes go to another block than their mbarrier's")
    found = _barrier_at(shared, instruction, place)
    shared.order.tick()
    shared.begin_copy(places, place, found.phase)
    found.bytes -= _CHUNK * len(places)
    found.copies = True
    found.arrive(shared.order, shared.order.release(lane))
    found.settle(shared.order)


_TYPES = {
    (): ("u32", "b32"), ("S32",): ("s32",), ("U64",): ("u64", "b64"), ("S64",): ("s64",), ("F32", "RN"): ("f32",),
    ("F64", "RN"): ("f64",), ("F16", "RN"): ("noftz.f16", "f16"), ("BF16", "RN"): ("noftz.bf16", "bf16"),
}  # fmt: skip
"""The types of PTX that the words after an operation may stand for."""
_OPERATIONS = ("ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR")
_REDUCTIONS = {
    "G": "cp.reduce.async.bulk.global.shared::cta.bulk_group",
    "S": "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes",
}
"""By where the bytes go: the form of PTX, without operation and type."""


def _reduction(to: str, operation: str, kind: tuple[str, ...]) -> tuple[int, Callable[..., int]] | None:
    """The bytes of an element of a reduction, and its update; None for one that PTX does not have."""
    for name in _TYPES.get(kind, ()):
        opcode, *modifiers = f"{_REDUCTIONS[to]}.{operation.lower()}.{name}".split(".")
        if found := find(opcode, tuple(modifiers)):
            return TYPES[name.rpartition(".")[2]].width // 8, update_of(found[0])
    return None


def _reduce(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UBLKRED: each warp updates elements in global memory, or in shared memory of a block, with those of its own."""
    words, operands = instruction.modifiers, _without_policy(instruction)
    if len(words) < 3 or words[0] not in _REDUCTIONS or words[1] != "S" or words[2] not in _OPERATIONS:
        raise refuse(instruction)
    chosen = _reduction(words[0], words[2], words[3:])
    if chosen is None or len(operands) != 3:
        raise refuse(instruction)
    to, source, size = operands
    if not _is_uniform(to) or not _is_uniform(source) or not plain(size, "UR") or size.number < 0:
        raise refuse(instruction)
    _refuse_lanes(instruction)
    width, update = chosen
    element = np.dtype(f"u{width}")

    def updated(old: Array, new: Array) -> Array:
        pairs = zip(old.reshape(-1).view(element).tolist(), new.reshape(-1).view(element).tolist(), strict=True)
        return np.array([update(a, b) for a, b in pairs], element).view(np.uint8).reshape(-1, _CHUNK)

    def reduce(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        for warp in np.unique((machine._all if lanes is None else lanes) // _WARP).tolist():
            chunks = _value(machine, size, warp)
            if chunks >> 16:
                raise Unsupported(f"{instruction.text}: a copy to several blocks")
            threads, steps = np.full(chunks, warp * _WARP), _CHUNK * np.arange(chunks)
            places = shared.places(instruction, _value(machine, source, warp) + steps, _CHUNK, threads)
            rows = np.ascontiguousarray(shared.load(instruction, places, _CHUNK, threads, False))
            if words[0] == "G":
                addresses = _wide(machine, to, warp) + steps
                old = np.ascontiguousarray(global_rows(machine, instruction, addresses, _CHUNK))
                global_rows(machine, instruction, addresses, _CHUNK, updated(old, rows))
                continue
            places = shared.places(instruction, _value(machine, to, warp) + steps, _CHUNK, threads, reaches=True)
            table = shared.update(instruction, places, _CHUNK, threads)
            table[places // _CHUNK] = updated(np.ascontiguousarray(table[places // _CHUNK]), rows)
            _arrived(machine, instruction, _value(machine, to, warp, 1), warp, places)

    return Act(instruction, reduce)


_RANKS = {f"{rank}D": rank for rank in range(1, 6)}
_LOADS = {"IM2COL": "im2col", "W": "im2col::w", "W128": "im2col::w::128", "GATHER4": "tile::gather4"}
_STORES = {"IM2COL": "im2col_no_offs", "SCATTER4": "tile::scatter4"}
"""The modes of PTX by the words behind the number of dimensions, of copies to shared memory and from it."""


def _offsets(mode: str, rank: int, packed: int) -> list[int]:
    """The im2col offsets, or the halo and the offset along W, that ptxas packs in 16 bits."""
    if mode == "im2col":
        bits = {3: 16, 4: 8, 5: 5}[rank]
        return [packed >> bits * k & (1 << bits) - 1 for k in range(rank - 2)]
    return [packed & 0x7FF, packed >> 11] if mode.startswith("im2col::w") else []


def _box_copy(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """UTMALDG, UTMASTG and UTMAREDG: each warp copies a box of a tensor, from or to shared memory, or reduces with it.

    The registers from the first operand's on have the address in shared memory, for a load that of the mbarrier, and
    the coordinates; those of the second have the address of the tensor map. A third one has im2col offsets in its lower
    half and the mask of a multicast in the upper one.
    """
    words, operands = list(instruction.modifiers), _without_policy(instruction)
    loads, reduces = instruction.opcode == "UTMALDG", instruction.opcode == "UTMAREDG"
    several = loads and words[-1:] == ["MULTICAST"]
    last = words.pop() if words and (several or reduces) else ""
    operation = last if reduces else ""
    dimensions, word, more_words = "".join(words[:1]), "".join(words[1:2]), words[2:]
    mode = (_LOADS if loads else _STORES).get(word, "") if word else "tile"
    if not mode or more_words or dimensions not in _RANKS or (reduces and mode.endswith("4")):
        raise refuse(instruction)
    rank = _RANKS[dimensions]
    informed = several or (loads and mode.startswith("im2col"))
    if (reduces and operation not in _OPERATIONS) or len(operands) != 2 + informed:
        raise refuse(instruction)
    if not all(map(_is_uniform, operands[:2])) or not all(plain(more, "UR") for more in operands[2:]):
        raise refuse(instruction)
    if (mode.startswith("im2col") and rank < 3) or (mode.endswith("4") and rank != 2):
        raise refuse(instruction)
    _refuse_lanes(instruction)
    box, where, *more = operands
    count = 5 if mode.endswith("4") else rank

    def copy(machine: Machine, lanes: Lanes, _: int) -> None:
        shared = SharedBlocks.of(machine)
        for warp in np.unique((machine._all if lanes is None else lanes) // _WARP).tolist():
            found = _tensor_map(
                machine, instruction, _value(machine, where, warp) | _value(machine, where, warp, 1) << 32
            )
            if len(found.sizes) != rank:
                raise MachineFault(f"{instruction.text}: a tensor map of {len(found.sizes)} dimensions")
            corner = [_value(machine, box, warp, 1 + loads + k) for k in range(count)]
            corner = [c - (1 << 32) if c >> 31 else c for c in corner]
            packed = _value(machine, more[0], warp) if more else 0
            if packed & 0xFFFF and not mode.startswith("im2col"):
                raise Unsupported(f"{instruction.text}: what the lower half of its mask says is not known")
            if packed >> 16 and not several:
                raise Unsupported(f"{instruction.text}: what the upper half of its offsets says is not known")
            chosen = aimed(found, mode, corner, _offsets(mode, rank, packed & 0xFFFF), stores=not loads)
            if isinstance(chosen, str):
                raise MachineFault(f"{instruction.text}: {chosen}")
            found, corner = chosen
            threads = np.full(found.bytes // _CHUNK, warp * _WARP)
            row = found.box[0] * found.size
            address, inside, low, high = rows_of(found, corner, stores=not loads)
            part = slice(low * found.size, high * found.size)
            each = (address[inside][:, None] + np.arange(part.start, part.stop)).reshape(-1)
            if loads:
                fill = np.array([found.fill], f"u{found.size}").view(np.uint8)
                data = np.tile(fill, len(address) * found.box[0]).reshape(-1, row)
                if len(each):
                    read = global_rows(machine, instruction, each, 1).reshape(-1, part.stop - part.start)
                    data[inside, part] = found.rounded(read)
                for near, barrier in _ends(machine, instruction, box, warp, packed >> 16 if several else None):
                    places = shared.places(instruction, swizzled(found, near), _CHUNK, threads, reaches=True)
                    shared.store(instruction, places, data.reshape(-1, _CHUNK), threads)
                    _arrived(machine, instruction, barrier, warp, places)
                continue
            places = shared.places(instruction, swizzled(found, _value(machine, box, warp)), _CHUNK, threads)
            data = shared.load(instruction, places, _CHUNK, threads, False).reshape(-1, row)
            bytes_of = np.ascontiguousarray(data[inside, part]).reshape(-1, 1)
            if operation:
                bytes_of = _added(machine, instruction, operation, found, each, bytes_of)
            if len(each):
                global_rows(machine, instruction, each, 1, bytes_of)

    return Act(instruction, copy)


def _added(
    machine: Machine, instruction: MachineInstruction, operation: str, found: TensorMap, each: Array, data: Array
) -> Array:
    """The bytes that a reduction writes at the addresses of bytes, from those there and from data."""
    update = reduction(operation.lower(), found.element)
    if isinstance(update, str):
        raise MachineFault(f"{instruction.text}: {update}")
    if not len(each):
        return data
    element = np.dtype(f"u{found.size}")
    old = np.ascontiguousarray(global_rows(machine, instruction, each, 1)).reshape(-1).view(element).tolist()
    pairs = zip(old, data.reshape(-1).view(element).tolist(), strict=True)
    return np.array([update(*pair) for pair in pairs], element).view(np.uint8).reshape(-1, 1)


def _tensor_map(machine: Machine, instruction: MachineInstruction, address: int) -> TensorMap:
    """The tensor map at a generic address, among the parameters or in global memory."""
    if address % _MAP_ALIGNMENT:
        raise MachineFault(f"{instruction.text}: a tensor map at 0x{address:x}, no multiple of {_MAP_ALIGNMENT}")
    if PARAMETER_WINDOW <= address < SHARED_WINDOW:
        at = address - parameters_at(machine.launch.code.base)
        held = machine.launch.code.parameters
        if not any(p.offset <= at <= p.offset + p.size - MAP_BYTES for p in held):
            raise MachineFault(f"{instruction.text}: a tensor map at 0x{address:x}, outside of the parameters")
        data = machine.launch.parameters[at : at + MAP_BYTES]
    else:
        parts = address + np.arange(0, MAP_BYTES, _MAP_ALIGNMENT)
        data = global_rows(machine, instruction, parts, _MAP_ALIGNMENT).tobytes()
    found = read_map(data)
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


def _wide(machine: Machine, operand: Operand, warp: int) -> int:
    """An address of 64 bits."""
    return _value(machine, operand, warp) | _value(machine, operand, warp, 1) << 32


def _nothing(machine: Machine, lanes: Lanes, count: int) -> None:
    """Copies are complete when they are issued, and time does not pass."""


_NOTHING: dict[str, Callable[[tuple[str, ...], tuple[Operand, ...]], bool]] = {
    "UTMACMDFLUSH": lambda words, operands: not words and not operands,
    "NANOSLEEP": lambda words, operands: words in ((), ("SYNCS",)) and len(operands) == 1
    and plain(operands[0], "int", "R"),
    "UTMACCTL": lambda words, operands: words in (("PF",), ("IV",)) and len(operands) == 1
    and _is_uniform(operands[0]),
    "UTMAPF": lambda words, operands: words[:1] == ("L2",) and len(words) in (2, 3) and words[1] in _RANKS
    and set(words[2:]) <= set(_LOADS) and len(operands) == 2 + (words[2:] not in ((), ("GATHER4",)))
    and all(map(_is_uniform, operands[:2])) and all(plain(more, "UR") for more in operands[2:]),
    "UBLKPF": lambda words, operands: words == ("L2",) and len(operands) == 2 and _is_uniform(operands[0])
    and plain(operands[1], "UR"),
    "ACQBULK": lambda words, operands: not words and not operands,
    "PREEXIT": lambda words, operands: not words and not operands,
}  # fmt: skip
"""Instructions that change nothing here, in the forms that are known: UTMACMDFLUSH closes a group of copies, UTMACCTL
loads or drops the cache of a tensor map, UTMAPF and UBLKPF bring data to a cache. ACQBULK waits for the kernels before
this one, and PREEXIT lets those behind it begin: a launch here is alone."""


def _waits(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """One of `_NOTHING`. Raises Unsupported for another form of it."""
    if not _NOTHING[instruction.opcode](instruction.modifiers, _without_policy(instruction)):
        raise refuse(instruction)
    return Act(instruction, _nothing)


def _arrive_after_copies(instruction: MachineInstruction, code: MachineCode) -> MachineStep:
    """ARRIVES.LDGSTSBAR: arrive once the copies of a lane (LDGSTS) are complete, which they are.

    ARVCNT: it is one of the arrivals that the phase takes. TRANSCNT: it is counted as one of the expected bytes, which
    a SYNCS.ARRIVE with .A0T1 has added before.
    """
    operands, counted = instruction.operands, instruction.modifiers[2:]
    known = instruction.modifiers[:2] == ("LDGSTSBAR", "64") and counted in (("ARVCNT",), ("TRANSCNT",))
    if not known or len(operands) != 1 or not is_shared(operands[0]):
        raise refuse(instruction)

    def arrive(machine: Machine, lanes: Lanes, count: int) -> None:
        shared = SharedBlocks.of(machine)
        every = machine._all if lanes is None else lanes
        places = shared.places(instruction, shared_addresses(machine, lanes, count, operands[0]), _SIZE, every)
        shared.order.tick()
        for place, lane in zip(places.tolist(), every.tolist(), strict=True):
            found = _barrier_at(shared, instruction, place)
            if counted == ("TRANSCNT",):
                found.bytes -= 1
            elif found.pending:
                found.pending -= 1
            else:
                raise MachineFault(f"{instruction.text}: an arrival, and the phase takes no more")
            found.arrive(shared.order, shared.order.release(np.array([lane])))
            found.settle(shared.order)

    return Act(instruction, arrive)


ASYNC_COPIES: dict[str, Callable[[MachineInstruction, MachineCode], MachineStep]] = {
    "SYNCS": _syncs,
    "USYNCS": _usyncs,
    "ARRIVES": _arrive_after_copies,
    "UBLKCP": _copy,
    "UBLKRED": _reduce,
    **dict.fromkeys(("UTMALDG", "UTMASTG", "UTMAREDG"), _box_copy),
    **dict.fromkeys(_NOTHING, _waits),
}
