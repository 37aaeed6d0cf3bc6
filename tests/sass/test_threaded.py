"""Threaded code: rows of the table run as records of numbers, with the bits that their steps give."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, PtxError
from ptxdiff.emulator.kernel.memory.space import GlobalMemory
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.sass import rows
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.machine import Computed, Fibre, MachineLaunch, SourceFetch
from ptxdiff.sass.rows import DESTINATIONS, ROWS, SOURCES, InstructionRow, OperandShape
from ptxdiff.sass.run import run_schedules
from ptxdiff.sass.text import MachineFunction, MachineInstruction, Operand, Unsupported
from ptxdiff.sass.threaded import ThreadedCode, ThreadedMachine
from ptxdiff.sass.threaded_records import (
    Record,
    change_of,
    record,
    register_places,
    registers_apart,
    with_registers,
)
from tests.support.sampling import spread
from tests.support.sass.assembly import LOAD, STORE, plant, written

THREADS = 64
EDGES = np.array(
    [0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x7C00FC00, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0x7F800001, 0xFF800000,
     0x12345678, 0x9ABCDEF0],
    np.uint32,
)  # fmt: skip


# What signs and suffixes do ---------------------------------------------------------------------------------------


def _sources() -> Iterator[tuple[str, Operand]]:
    """Every kind of source with each sign and suffix that it may have."""
    for kind, source in SOURCES.items():
        suffixes = dict.fromkeys((*source.suffixes, ""))
        for negated, absolute, inverted, suffix in itertools.product(
            *(((False, True) if sign & set(source.signs) else (False,)) for sign in ({"-"}, {"|"}, {"~", "!"})),
            suffixes,
        ):
            if suffix or "" in source.suffixes:
                register = "P" if source.width == 1 else "R"
                yield kind, Operand(register, 2, negated, absolute, inverted, suffix)


def test_a_change_is_what_the_source_of_a_step_does() -> None:
    """Where there is one. The number shows that there mostly is one: without it a run is slower, not wrong."""
    changed = 0
    for kind, operand in _sources():
        change = change_of(kind, operand)
        fetch = SourceFetch(kind, operand, written("NOP").instructions[0])
        if change is None:
            continue
        changed += 1
        pair = fetch.wide and operand.suffix != "F32"
        kinds = np.uint8 if fetch.source.width == 1 else np.uint64 if pair else np.uint32
        words = (EDGES & 1 if fetch.source.width == 1 else EDGES).astype(kinds)
        words = words | words[::-1] << np.uint64(32) if pair else words
        joined = words.astype(np.uint64) * np.uint64(1 << 32 | 1) if fetch.wide and not pair else words
        right = fetch._signed(joined)
        if fetch.source.width == 32 and fetch.source.signed:
            right = right.view(np.int32).astype(np.int64).view(np.uint64)
        assert [change.of(int(w)) for w in words] == right.astype(np.uint64).tolist(), (kind, operand)
    assert changed > 60


# Rows -------------------------------------------------------------------------------------------------------------


def _instruction(row: InstructionRow, shape: OperandShape, chosen: int) -> MachineInstruction:
    """An instruction of a row: with other registers, signs and modifiers for each number."""
    words = list(row.fixed)
    for codes in row.choices.values():
        word = sorted(codes)[chosen % len(codes)]
        words += [word] if word else []
    words += [word for place, word in enumerate(row.flags) if chosen >> place & 1]
    operands = [Operand("P", 7) for _ in range(shape.unused)]
    for place, kind in enumerate(shape.destinations):
        operands.append(Operand("P", place) if kind == "P" else Operand("R", 2 * ((chosen + place) % 3)))
    operands += operands[-1:] if shape.again else []
    for place, kind in enumerate(shape.sources):
        operands += _source(kind, place, chosen)
    guard = [None, Operand("P", 3), Operand("P", 3, inverted=True)][chosen % 3]
    spelled = f"{row.opcodes[0]} {row.name} {shape} {chosen}"
    return MachineInstruction(0, guard, row.opcodes[0], tuple(words), tuple(operands), 5 << 32, 0, spelled)


def _source(kind: str, place: int, chosen: int) -> list[Operand]:
    if kind.startswith("#"):
        return [Operand("int", value=chosen % 4)]
    if kind in ("PT", "!PT"):
        return [Operand("P", 7, inverted=kind == "!PT")]
    if kind in ("RZ", "-RZ"):
        return [Operand("R", -1, negated=kind == "-RZ")]
    source = SOURCES[kind]
    if kind == "V":
        return [Operand("float")]
    minus = kind in ("-u", "-q") or ("-" in source.signs and chosen % 3 == 1)
    bars = kind in ("a", "g") or ("|" in source.signs and chosen % 4 == 1)
    tilde = kind in ("~u", "~q") or (bool(set("~!") & set(source.signs)) and not minus and chosen % 2 == 1)
    suffix = source.suffixes[chosen % len(source.suffixes)]
    if source.width == 1:
        return [Operand("P", place % 3, inverted=tilde)]
    if chosen % 5 == 4 and source.immediate == "int" and not suffix:
        return [Operand("int", value=5)]
    if chosen % 5 == 3 and suffix in ("", "64") and kind not in ("r", "e", "k", "y"):
        return [Operand("UR", 4, minus, bars, tilde, suffix)]
    return [Operand("R", 2 * ((chosen + place) % 5), minus, bars, tilde, suffix)]


ALL = [r for r in dict.fromkeys(r for same in ROWS.values() for r in same) if r.opcodes[0] not in rows._UNIFORM]


@pytest.mark.sample(3)
@pytest.mark.parametrize("row", spread(ALL, 16, name=lambda r: r.name))
def test_a_record_gives_the_bits_of_its_step(row: InstructionRow) -> None:
    """For all lanes and for some, with a guard or none, in registers that are read and written at once."""
    agreed = 0
    for shape, chosen in itertools.product(row.shapes, range(12)):
        instruction = _instruction(row, shape, chosen)
        try:
            step = Computed(instruction)
        except Unsupported:
            continue  # the operands fit no row, or two
        if step.match.row is row and (made := record(step)) is not None:
            for lanes in (None, np.arange(0, THREADS, 3)):
                assert _registers(step, None, lanes) == _registers(step, made, lanes), instruction
            agreed += 1
    assert (
        agreed
        or row.undecided is not None
        or {"x", "X", "N", "m", "S", "d", "q"} & {k for s in row.shapes for k in s.sources}
    )


@pytest.mark.sample(3)
@pytest.mark.parametrize("row", spread(ALL, 16, name=lambda r: r.name))
def test_a_record_with_other_registers_is_the_one_of_that_instruction(row: InstructionRow) -> None:
    """Or there is none: what fits a row by the numbers of its registers is not taken over to others."""
    compared = recorded = 0
    for shape, chosen in itertools.product(row.shapes, range(12)):
        kept: dict[object, tuple[Record, tuple[tuple[int, int, int], ...]]] = {}
        for numbers in NUMBERS:
            instruction = _renumbered(_instruction(row, shape, chosen), numbers)
            try:
                own = record(step) if (step := Computed(instruction)).match.row is row else None
            except Unsupported:
                own = None
            recorded += own is not None
            form = registers_apart(instruction)
            if form is None:
                continue
            if form[0] in kept:
                assert own is not None, instruction
                made = with_registers(*kept[form[0]], form[1])
                assert (made.numbers, made.registers) == (own.numbers, own.registers), instruction
                compared += 1
            elif own is not None and (places := register_places(own)) is not None:
                kept[form[0]] = own, places
    of_registers = any("R" in (o.kind for o in _instruction(row, s, 0).operands) for s in row.shapes)
    one_object = all(s.sources.count("RZ") > 1 for s in row.shapes)  # which of the two is which is not plain
    assert compared or not recorded or not of_registers or one_object


NUMBERS = ((2, 2, 2, 2), (2, 4, 6, 8), (12, 14, 12, 10), (3, 5, 7, 9), (2, 5, 6, 9), (4, 9, 4, 13), (-1, 2, 4, 6),
           (2, -1, 4, -1), (8, -1, 12, -1), (250, 252, 254, 253), (252, 250, 250, 254), (0, 0, 0, 0))  # fmt: skip


def _renumbered(instruction: MachineInstruction, numbers: tuple[int, ...]) -> MachineInstruction:
    """An instruction with other registers. Equal operands are one object, as in decoded code."""
    left, made = itertools.cycle(numbers), dict[Operand, Operand]()
    operands = tuple(dataclasses.replace(o, number=next(left)) if o.kind == "R" else o for o in instruction.operands)
    operands = tuple(made.setdefault(o, o) for o in operands)
    return instruction._replace(operands=operands, text=f"{instruction.text} {numbers}")


def test_a_planted_row_is_not_run_by_a_record_of_other_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"{LOAD} {PLACE} IADD3 R{{}}, R4, 0x7, R0\nMOV R5, R{{}} {STORE}"
    right = _parts(body.format(7, 7))
    row = next(r for r in rows.ROWS["IADD3"] if r.name == "IADD3")
    wrong = rows.InstructionRow(row.name, row.opcodes, row.fixed, row.flags, row.choices, row.shapes, _off_by_one)
    plant(monkeypatch, "IADD3", [wrong])
    assert (_parts(body.format(11, 11)) == right + 1).all()


def _registers(step: Computed, made: Record | None, lanes: Array | None) -> list[object]:
    """All registers after an instruction in some lanes, by its step or by its record, and in how many lanes it ran."""
    launch = _launch()
    code = ThreadedCode(launch.code, launch)
    if made is not None:
        code.at, code.ordered, code.registers = {0: (0, 0, 1)}, [made], made.registers
        code.records = np.frombuffer(made.bytes_in(launch), np.uint8)
    else:
        code.at, code.ordered, code._steps = {}, [], {0: step}
    machine = ThreadedMachine(launch, 0, 1, code)
    machine._fill(16)
    words = np.resize(EDGES, THREADS)
    for number in range(16):
        machine.register(number)[:] = np.roll(words, number * number) * (1 + number % 3)
    for number in range(7):
        machine.predicate(number)[:] = np.arange(THREADS) >> number & 1
    for number in range(8):
        machine.uniform_register(number)[:] = EDGES[number], EDGES[number + 3]
    machine.fibres = [Fibre(0, lanes)]
    machine.alive[:] = False
    with pytest.raises(PtxError, match="no instruction"):
        machine.run_threaded()
    tables = [machine.register(k).tolist() for k in range(16)], [machine.predicate(k).tolist() for k in range(7)]
    return [*tables, launch.ran, launch.approximate]


def _launch() -> MachineLaunch:
    code = MachineCode("kernel", "sm_80", written("EXIT"), (), 0x160, {}, 0, 0)
    return MachineLaunch(code, GlobalMemory([], b""), (1, 1, 1), (THREADS, 1, 1), b"")


def test_a_launch_that_names_no_seed_has_random_bits() -> None:
    """Zeros would hide what the tests of records compare."""
    machine = ThreadedMachine(launch := _launch(), 0, 1, ThreadedCode(launch.code, launch))
    assert len(np.unique(machine.uniform_register(3))) == machine.warps > 1
    assert len(np.unique(machine.register(3))) > machine.lanes // 2


def test_a_planted_row_is_not_run_by_an_older_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record is kept for its text: the rows that its opcode had then are part of what it is kept for."""
    body = f"{LOAD} {PLACE} IADD3 R5, R4, 0x7, R0 {STORE}"
    right = _parts(body)
    row = next(r for r in rows.ROWS["IADD3"] if r.name == "IADD3")
    wrong = rows.InstructionRow(row.name, row.opcodes, row.fixed, row.flags, row.choices, row.shapes, _off_by_one)
    plant(monkeypatch, "IADD3", [wrong])
    assert (_parts(body) == right + 1).all()


def _off_by_one(a: int, b: int, c: int, result: int) -> int:
    return a + b + c + 1


def test_records_of_one_text_and_other_immediates_are_others() -> None:
    """The text of a NaN has no payload: only the encoding tells two of them apart."""
    found = []
    for payload in (0x7FC00001, 0x7FC00002):
        function = written(f"{LOAD} {PLACE} FSEL R5, RZ, QNAN, !PT {STORE}")
        low = {"FSEL": payload << 32}
        instructions = tuple(i._replace(low=low.get(i.opcode, i.low)) for i in function.instructions)
        found.append(_parts(dataclasses.replace(function, instructions=instructions)))
    assert (found[0] == 0x7FC00001).all()
    assert (found[1] == 0x7FC00002).all()


# Whole kernels ----------------------------------------------------------------------------------------------------


def _parts(body: str | MachineFunction) -> np.ndarray:
    """The words that each of three copies of 32 threads stores: shape [3, 32]."""
    output, words = np.zeros(96, np.uint32), np.tile(np.arange(100, 132, dtype=np.uint32), 3)
    buffers = [Buffer(output, "out", defined=False), Buffer(words, "in")]
    places = tuple(Parameter(8 * k, 8) for k in range(len(buffers)))
    function = written(body) if isinstance(body, str) else body
    code = MachineCode("kernel", "sm_80", function, places, 0x160, {}, 0, 0)
    run_schedules(code, buffers, 1, 32)
    return output.reshape(3, 32)


PLACE = "S2R R9, SR_CTAID.X\nIMAD R9, R9, 0x20, R0\nIMAD.WIDE R2, R9, R1, c[0x0][0x160]\n"
"""Each copy's own place in the output."""

DIVERGED = """
ISETP.GE.AND P0, PT, R0, 0x10, PT
BSSY B0, `(.L_x_2)
@P0 BRA `(.L_x_1)
{first}
BRA `(.L_x_2)
.L_x_1:
{second}
.L_x_2:
BSYNC B0
"""


def test_sides_of_a_branch_run_and_join() -> None:
    sides = DIVERGED.format(first="IADD3 R5, R4, 0x1, RZ", second="IADD3 R5, R4, 0x2, RZ")
    found = _parts(f"{LOAD} {PLACE} {sides} {STORE}")
    assert (found == np.arange(100, 132) + np.where(np.arange(32) >= 16, 2, 1)).all()


UNIFORM = DIVERGED.format(first="MOV R6, 0x5\nR2UR UR4, R6\nMOV R5, RZ", second="MOV R5, UR4")
"""One side of a branch writes the uniform register that the other side reads."""


def test_lanes_that_notice_each_other_run_in_every_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """What one side reads depends on which side runs first, so the parts differ."""
    schedules: list[int] = []
    original = ThreadedMachine.run_threaded

    def noted(machine: ThreadedMachine) -> None:
        schedules.append(len(machine.launch.schedules))
        original(machine)

    monkeypatch.setattr(ThreadedMachine, "run_threaded", noted)
    found = _parts(f"{LOAD} {PLACE} R2UR UR4, RZ\n{UNIFORM} {STORE}")
    assert not (found == found[0]).all()
    assert schedules == [1, 3]
    for exchange in ("VOTE.ANY R5, PT, PT", "SHFL.BFLY PT, R5, R4, 0x1, 0x1f"):
        schedules.clear()
        _parts(f"{LOAD} {PLACE} {DIVERGED.format(first=exchange, second='MOV R5, RZ')} {STORE}")
        assert schedules == [1, 3], exchange
        schedules.clear()
        _parts(f"{LOAD} {PLACE} {exchange}\n{DIVERGED.format(first='NOP', second='NOP')} {STORE}")
        assert schedules == [1], exchange


RETURNED = """
R2UR UR4, RZ
MOV R5, RZ
BSSY B0, `(.L_x_3)
ISETP.GE.AND P0, PT, R0, 0x10, PT
MOV R10, {first}
@P0 MOV R10, {second}
MOV R11, RZ
RET.REL.NODEC R10 `(kernel)
MOV R6, 0x5
R2UR UR4, R6
BRA `(.L_x_3)
MOV R5, UR4
.L_x_3:
BSYNC B0
"""
"""As `UNIFORM`, but its lanes part by the addresses to which they return."""
AT_BARRIERS = DIVERGED.format(
    first="WARPSYNC 0xffffffff\nMOV R6, 0x5\nR2UR UR4, R6", second="WARPSYNC 0xffffffff\nMOV R5, UR4"
)
"""As `UNIFORM`, but both sides wait for each other before."""


def _returned() -> str:
    body = f"{LOAD} {PLACE} {RETURNED} {STORE}"
    after = next(i.address for i in written(body.format(first=0, second=0)).instructions if i.opcode == "RET") + 16
    return body.format(first=hex(after), second=hex(after + 48))


@pytest.mark.parametrize("body", [_returned(), f"{LOAD} {PLACE} R2UR UR4, RZ\nMOV R5, RZ\n{AT_BARRIERS} {STORE}"])
def test_lanes_that_part_at_a_return_or_behind_a_barrier_run_in_every_schedule(body: str) -> None:
    found = _parts(body)
    assert (found[0] == 0).all()
    assert (found[1] == np.where(np.arange(32) < 16, 0, 5)).all()


MASKS = """
ISETP.GE.AND P0, PT, R0, 0x10, PT
LOP3.LUT R8, R0, 0x8, RZ, 0xc0, !PT
ISETP.NE.AND P1, PT, R8, RZ, PT
BSSY B3, `(.L_x_3)
@P0 BRA `(.L_x_1)
BSSY B0, `(.L_x_8)
BRA `(.L_x_3)
.L_x_1:
BSSY B0, `(.L_x_8)
.L_x_3:
BSYNC B3
@P1 BRA `(.L_x_8)
@P0 BRA `(.L_x_8)
NOP
.L_x_8:
BSYNC B0
BSSY B2, `(.L_x_9)
BMOV.32 R5, B2
.L_x_9:
BSYNC B2
WARPSYNC 0xffffffff
"""
"""A quarter of a warp waits together for two others. If it comes last, all four go on together."""
LEFT = """
BSSY B0, `(.L_x_8)
MOV R7, RZ
ISETP.GE.AND P0, PT, R0, 0x10, PT
@P0 BRA `(.L_x_1)
BREAK B0
BRA `(.L_x_9)
.L_x_1:
{}
.L_x_8:
BSYNC B0
.L_x_9:
WARPSYNC 0xffffffff
MOV R5, R7
"""
"""Half of a warp leaves a barrier, whose lanes the other half knows from before or after."""


def test_lanes_of_which_it_depends_who_wait_with_them_run_in_every_schedule() -> None:
    found = _parts(f"{LOAD} {PLACE} {MASKS} {STORE}")
    assert (found[0] == 0xFFFFFFFF).all()
    assert (found[1] == np.where(np.arange(32) < 16, 0xFFFF, 0xFFFF0000)).all()
    left = _parts(f"{LOAD} {PLACE} {LEFT.format('BMOV.32 R7, B0')} {STORE}")
    assert (left[0] == np.where(np.arange(32) < 16, 0, 0xFFFF0000)).all()
    assert (left[1] == np.where(np.arange(32) < 16, 0, 0xFFFFFFFF)).all()


@pytest.mark.parametrize(("body", "bits"), [
    ("IADD3 R5, RZ, R77, RZ", 0xFFFFFFFF), ("MOV R5, RZ\n@P5 MOV R5, 0x1", 1), ("MOV R5, UR7", 0xFFFFFFFF),
    ("MOV R5, RZ\n@UP3 MOV R5, 0x1", 1), ("LDG.E R5, [R2.64]", 0xFFFFFFFF), (
        "MOV R6, c[0x0][0x28]\nIADD3 R6, R6, -0x8, RZ\nLDL R5, [R6]", 0xFFFFFFFF),
])  # fmt: skip
def test_bits_that_were_never_written_are_opposite_in_two_parts(body: str, bits: int) -> None:
    """Else a single lane whose result is one such bit would have the same one in all parts, a quarter of the time."""
    found = _parts(f"{LOAD} {PLACE} {body} {STORE}")
    assert (found[0] ^ found[1] == bits).all()
    assert bits == 1 or (found[0] != found[2]).all()


def test_an_exchange_of_a_register_behind_the_uniform_predicates() -> None:
    """SHFL looks whether bits of its register were written: of a register, not of a predicate of that number."""
    found = _parts(f"{LOAD} {PLACE} MOV R40, R4\nSHFL.BFLY PT, R5, R40, 0x1, 0x1f {STORE}")
    assert (found == np.arange(100, 132)[np.arange(32) ^ 1]).all()


def test_the_register_of_a_return_address_is_kept() -> None:
    found = _parts(f"{LOAD} {PLACE} RPCMOV.32 Rpc.HI, R4\nRPCMOV.32 R5, Rpc.HI {STORE}")
    assert (found == np.arange(100, 132)).all()


def test_all_destinations_are_known() -> None:
    """A destination of another kind would be stored as one of 32 bits."""
    assert set(DESTINATIONS) == {"R", "R2", "P"}
