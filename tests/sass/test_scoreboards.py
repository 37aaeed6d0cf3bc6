"""Uses of registers before their scoreboard was waited for."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import text_of
from ptxdiff.fuzz.generate import FAMILIES, program
from ptxdiff.model.targets import capability
from ptxdiff.sass.cubin import disassembled
from ptxdiff.sass.scoreboards import accesses, early_uses
from ptxdiff.sass.text import MachineFunction, functions
from ptxdiff.triton.targets import assembler as bundled
from ptxdiff.triton.targets import tool

PLANTED = 200


def _functions(target: str, programs: int, level: int = 3) -> list[MachineFunction]:
    own = bundled(target)
    some = [program(f"boards/{k}", capability(target), dict.fromkeys(FAMILIES, 1.0)) for k in range(programs)]
    done = assembler(own.path, level, own.options).assemble(text_of(some, target), target)
    assert done.ended == "assembled", done.words
    return list(functions(disassembled(done.cubin, tool("nvdisasm"))).values())


def _without_a_wait(function: MachineFunction, place: int, scoreboard: int) -> MachineFunction:
    """The function with one bit of a wait mask cleared."""
    instruction = function.instructions[place]
    cleared = instruction._replace(high=instruction.high & ~(1 << 41 + 11 + scoreboard))
    return replace(
        function, instructions=(*function.instructions[:place], cleared, *function.instructions[place + 1 :])
    )


def _planted(functions_: list[MachineFunction]) -> tuple[int, int]:
    """How many waits were removed, and how many of these were found."""
    draw = random.Random(7)
    places = [
        (f, n, board) for f in functions_ for n, i in enumerate(f.instructions) for board in range(6)
        if i.control.waits >> board & 1
    ]  # fmt: skip
    chosen = draw.sample(places, min(PLANTED, len(places)))
    return len(chosen), sum(bool(early_uses(_without_a_wait(*one))) for one in chosen)


@pytest.mark.parametrize("target", ["sm_90a", *(pytest.param(t, marks=pytest.mark.slow) for t in ("sm_80", "sm_120a"))])
def test_it_finds_removed_waits_and_nothing_else(target: str) -> None:
    some = _functions(target, 16)
    assert [use.words for f in some for use in early_uses(f)] == []
    planted, detected = _planted(some)
    assert planted >= 20
    assert detected >= 0.9 * planted, f"{detected} of {planted}"


def test_the_words_name_both_instructions() -> None:
    some = _functions("sm_90a", 2)
    (function, place, board), *_ = [
        (f, n, b) for f in some for n, i in enumerate(f.instructions) for b in range(6) if i.control.waits >> b & 1
    ]
    (use, *_) = early_uses(_without_a_wait(function, place, board))
    assert use.set_by.text in use.words
    assert use.used_by.text in use.words
    assert f"scoreboard {board}" in use.words


DESCRIPTOR = {("UR", 4), ("UR", 5)}


@pytest.mark.parametrize(
    ("text", "reads", "writes"),
    [
        ("FFMA R1, R2, R3, R4", {("R", 2), ("R", 3), ("R", 4)}, {("R", 1)}),
        ("@!P1 LDG.E.64 R2, desc[UR4][R6.64+0x10]", {("P", 1), ("R", 6), ("R", 7), *DESCRIPTOR}, {("R", 2), ("R", 3)}),
        ("STG.E.128 desc[UR4][R6.64], R8", {("R", 6), ("R", 7), *(("R", n) for n in range(8, 12)), *DESCRIPTOR}, set()),
        ("ISETP.GE.AND P0, P1, R3, R4, P2", {("R", 3), ("R", 4), ("P", 2)}, {("P", 0), ("P", 1)}),
        ("IMAD.WIDE R2, R4, 0x4, R6", {("R", 4), ("R", 6)}, {("R", 2), ("R", 3)}),
        ("SHFL.IDX PT, R8, R7, 0xd, 0x1f", {("R", 7)}, {("R", 8)}),
        ("SHFL.IDX P2, R8, R7, R9, 0x1f", {("R", 7), ("R", 9)}, {("P", 2), ("R", 8)}),
        ("STS.64 [R6+UR5+0x9400], R8", {("R", 6), ("UR", 5), ("R", 8), ("R", 9)}, set()),
        ("LDS R1, [UR5]", {("UR", 5)}, {("R", 1)}),
        ("UTMAPF.L2.1D [UR8], [UR4]", {("UR", 8), ("UR", 4), ("UR", 5)}, set()),
        ("UBLKPF.L2 [UR4], UR6", {("UR", 4), ("UR", 5), ("UR", 6)}, set()),
        ("UTMACCTL.PF [UR4]", {("UR", 4), ("UR", 5)}, set()),
        ("UTCBAR [UR4], URZ", {("UR", 4)}, set()),
        ("STTM.x2 tmem[UR4], R6", {("UR", 4), ("R", 6)}, set()),
        ("LDTM R6, tmem[UR4]", {("UR", 4)}, {("R", 6)}),
        (
            "UTCHMMA gdesc[UR4], gdesc[UR6], tmem[UR8], tmem[UR10], idesc[UR13], UP0",
            {*(("UR", n) for n in (4, 6, 8, 10, 13)), ("UP", 0)},
            set(),
        ),
        ("UVIRTCOUNT.DEALLOC.SMPOOL UR4", {("UR", 4)}, set()),
        ("SYNCS.CCTL.IV [UR4]", {("UR", 4)}, set()),
        ("STAS.64 [R4.64], R6", {("R", 4), ("R", 5), ("R", 6)}, set()),
        ("LDCU UR4, c[0x0][UR4+0x2b4]", {("UR", 4)}, {("UR", 4)}),
        ("UGETNEXTWORKID.SELFCAST [UR6], [UR7]", {("UR", 6), ("UR", 7)}, set()),
        ("RPCMOV.32 Rpc.LO, R12", {("R", 12)}, set()),
        ("USYNCS.PHASECHK.TRANS64.TRYWAIT UP1, [UR6], UR9", {("UR", 6), ("UR", 9)}, {("UP", 1)}),
        ("STG.E.SYS [R1.U32+UR4], R6", {("R", 1), ("R", 6), *DESCRIPTOR}, set()),
        ("LDG.E R1, desc[UR8][R2.64+UR4]", {("R", 2), ("R", 3), *DESCRIPTOR, ("UR", 8), ("UR", 9)}, {("R", 1)}),
    ],
)
def test_what_an_instruction_touches(text: str, reads: set, writes: set) -> None:
    from ptxdiff.sass.text import _instruction

    assert accesses(_instruction(0, text, 0, 0)) == (reads, writes)


def _coded(*lines: tuple[str, int, int, int]) -> MachineFunction:
    """A function of instructions: text, the scoreboards of result and operands (7 for none), and the wait mask."""
    from ptxdiff.sass.text import _instruction

    made = (
        _instruction(16 * n, text, 0, (write << 5 | read << 8 | waits << 11) << 41)
        for n, (text, write, read, waits) in enumerate(lines)
    )
    return MachineFunction("f", tuple(made))


ATOM = ("ATOM.E.MAX.S64.STRONG.GPU P0, R4, [R2], R4", 5, 1, 0)
LOAD = ("LDG.E R2, desc[UR4][R6.64]", 0, 1, 0)


@pytest.mark.parametrize(
    ("lines", "kinds"),
    [
        ([LOAD, ("FADD R3, R2, R2", 7, 7, 0)], ["result"]),
        ([LOAD, ("FADD R3, R2, R2", 7, 7, 1)], []),
        ([LOAD, ("FADD R3, R2, R2", 7, 7, 2)], ["result"]),  # it waits for the operands alone
        ([LOAD, ("MOV R6, R9", 7, 7, 0)], ["operand"]),
        ([LOAD, ("MOV R6, R9", 7, 7, 2)], []),
        ([LOAD, ("MOV R6, R9", 7, 7, 1)], []),  # whose result is there has read its operands
        ([LOAD, ("LDG.E R3, desc[UR4][R8.64]", 1, 7, 0), ("MOV R6, R9", 7, 7, 1)], []),
        ([LOAD, ("LDG.E R3, desc[UR4][R8.64]", 2, 7, 0), ("MOV R6, R9", 7, 7, 4)], ["operand"]),  # of another load
        (
            [("LDS R4, [R13]", 2, 7, 0), ("@!P0 LDS R4, [R13+0x4]", 1, 7, 0)],
            [],
        ),  # in order
        ([LOAD, ("LDG.E R2, desc[UR4][R8.64]", 1, 7, 0)], ["result"]),  # others do not
        ([LOAD, ("UMOV UR4, UR8", 7, 7, 0)], []),  # uniform registers are read at once
        ([("@!P0 LDS R4, [R13]", 2, 7, 0), ("@P0 SEL R4, R2, R5, !P1", 7, 7, 0)], []),  # in other lanes
        ([("@!P0 LDS R4, [R13]", 2, 7, 0), ("@!P0 SEL R4, R2, R5, !P1", 7, 7, 0)], ["result"]),
        ([("@!P0 LDS R4, [R13]", 2, 7, 0), ("@P1 SEL R4, R2, R5, !P1", 7, 7, 0)], ["result"]),
        (
            [
                ("@!P0 LDS R4, [R13]", 2, 7, 0),
                ("ISETP.GE.AND P0, PT, R8, R9, PT", 7, 7, 0),
                ("@P0 MOV R3, R4", 7, 7, 0),
            ],
            ["result"],  # the predicate is another one
        ),
        (
            [("@!P0 LDS R4, [R13]", 2, 7, 0), ("@P0 MOV R4, R5", 7, 7, 0), ("MOV R3, R4", 7, 7, 0)],
            ["result"],  # what writes other lanes leaves the load unfinished
        ),
        ([("S2UR UR8, SR_CTAID.X", 0, 7, 0), ("UTMAPF.L2.1D [UR8], [UR4]", 7, 7, 0)], ["result"]),
        ([("S2UR UR8, SR_CTAID.X", 0, 7, 0), ("UTMAPF.L2.1D [UR8], [UR4]", 7, 7, 1)], []),
        ([("S2UR UR4, SR_CTAID.X", 0, 7, 0), ("UBLKPF.L2 [UR4], UR6", 7, 0, 0)], ["result"]),
        ([("LDCU.64 UR4, c[0x0][0x358]", 0, 7, 0), ("LDG.E R2, desc[UR4][R6.64]", 1, 7, 0)], ["result", "result"]),
        ([("LDCU.64 UR4, c[0x0][0x358]", 0, 7, 0), ("LDG.E R2, desc[UR4][R6.64]", 1, 7, 1)], []),
        ([("S2UR UR4, SR_CTAID.X", 0, 7, 0), ("UTMACCTL.PF [UR4]", 7, 7, 0)], ["result"]),
        ([("S2UR UR4, SR_CTAID.X", 0, 7, 0), ("STTM.x2 tmem[UR4], R6", 7, 0, 0)], ["result"]),
        ([("SHFL.IDX PT, R8, R7, 0xd, 0x1f", 0, 1, 0), ("MOV R8, R9", 7, 7, 0)], ["result"]),
        ([("@!P1 F2I.NTZ R4, R8", 2, 7, 0), ("@P0 F2I.NTZ R4, R8", 0, 7, 0)], []),  # one unit, in order
        ([("I2F.F64 R6, R10", 3, 0, 0), ("F2I.S64.F64.TRUNC R10, R16", 1, 7, 0)], []),
        ([("FLO.U32 R6, R0", 0, 7, 0), ("@P0 POPC R6, R9", 1, 7, 0)], []),
        ([("@!P1 POPC R4, R5", 3, 7, 0), ("@P0 POPC R4, R5", 0, 7, 0)], []),
        ([("FCHK P0, R8, R5", 7, 0, 0), ("FLO R5, R7", 1, 7, 0)], []),
        ([("FLO.U32 R6, R0", 0, 7, 0), ("POPC R9, R6", 1, 7, 0)], ["result"]),  # it reads the register
        ([("BREV R6, R2", 1, 0, 0), ("BREV R2, R3", 2, 0, 0)], []),  # the unit reads operands in order
        ([("BREV R6, R2", 1, 0, 0), ("MUFU.RSQ R2, R3", 2, 7, 0)], []),
        ([("POPC R6, R2", 1, 0, 0), ("BREV R2, R3", 2, 7, 0)], []),
        ([("BREV R6, R2", 1, 0, 0), ("F2I.F64.TRUNC R2, R8", 2, 7, 0)], []),
        ([("BREV R6, R2", 1, 0, 0), ("IADD3 R2, R3, R4, RZ", 7, 7, 0)], ["operand"]),  # of another unit
        ([("BREV R6, R2", 1, 0, 0), ("IADD3 R2, R3, R4, RZ", 7, 7, 1)], []),
        ([("BREV R6, R2", 1, 0, 0), ("LDS R2, [R3]", 2, 7, 0)], ["operand"]),
        ([("LDS R6, [R2]", 1, 0, 0), ("BREV R2, R3", 2, 7, 0)], ["operand"]),
        ([("BREV R6, R2", 1, 7, 0), ("BREV R7, R6", 2, 7, 0)], ["result"]),  # it reads the result
        ([("I2F.F64 R8, R16", 1, 0, 0), ("BREV R16, R17", 2, 7, 0)], ["operand"]),  # 32 bits do not wait for 64
        ([("I2F.F64 R8, R16", 1, 0, 0), ("BREV R16, R17", 2, 7, 1)], []),
        ([("F2I.F64.TRUNC R7, R8", 1, 0, 0), ("MUFU.RSQ R8, R15", 2, 7, 0)], ["operand"]),
        ([("I2F.S64 R5, R4", 1, 0, 0), ("FLO.U32 R4, R9", 2, 7, 0)], ["operand"]),
        ([("@!P0 F2F.F64.F32 R6, R16", 1, 7, 0), ("@P1 POPC R6, R14", 2, 7, 0)], ["result"]),
        ([("@!P0 POPC R6, R14", 1, 7, 0), ("@P1 F2F.F64.F32 R6, R16", 2, 7, 0)], []),
        ([("FRND.F64.FLOOR R8, R4", 1, 7, 0), ("F2F.F32.F64 R8, R6", 2, 7, 0)], []),
        ([("F2I.NTZ R4, R8", 2, 7, 0), ("MOV R4, R8", 7, 7, 0)], ["result"]),
        ([("F2I.NTZ R4, R8", 2, 7, 0), ("I2F R9, R4", 0, 7, 0)], ["result"]),  # it reads the register
        ([("SHFL.IDX PT, R8, R7, 0xd, 0x1f", 0, 1, 0), ("MOV R7, R9", 7, 7, 0)], ["operand"]),
        ([("SHFL.IDX PT, R8, R7, 0xd, 0x1f", 1, 7, 0), ("@P0 LDS R8, [R13+0x4]", 0, 7, 0)], []),  # one unit, in order
        ([("ATOMS.ADD R8, [R13], R6", 1, 7, 0), ("@P0 LDS R8, [R13+0x4]", 0, 7, 0)], []),
        ([("LDS R8, [R13+0x4]", 1, 7, 0), ("@P0 SHFL.IDX PT, R8, R7, 0xd, 0x1f", 0, 7, 0)], ["result"]),
        ([("LDS R8, [R13+0x4]", 1, 7, 0), ("@P0 ATOMS.ADD R8, [R13], R6", 0, 7, 0)], ["result"]),
        ([("SHFL.IDX PT, R8, R7, 0xd, 0x1f", 1, 7, 0), ("LDS R9, [R8+0x4]", 0, 7, 0)], ["result"]),  # it reads it
        ([("SHFL.IDX PT, R8, R7, 0xd, 0x1f", 1, 7, 0), ("@P0 LDG.E R8, desc[UR4][R2.64]", 0, 7, 0)], ["result"]),
        ([ATOM, ("@P0 MOV R9, R8", 7, 7, 2)], []),  # the predicate is there with the operands
        ([ATOM, ("@P0 MOV R9, R8", 7, 7, 0)], ["result"]),
        ([("DSETP.NEU.AND P0, PT, R12, R12, PT", 7, 0, 0), ("DFMA R12, R12, R12, R12", 1, 7, 0)], []),
        ([("DADD R12, R4, -R4", 1, 0, 0), ("DMUL.RZ R4, R4, R4", 1, 7, 0)], []),  # the unit reads operands in order
        ([("DADD R12, R4, -R4", 1, 0, 0), ("I2F.F64 R4, R9", 1, 7, 0)], ["operand"]),  # of another unit
        ([("DADD R12, R4, -R4", 1, 0, 0), ("MOV R4, R9", 7, 7, 0)], ["operand"]),
        ([("DADD R12, R4, -R4", 1, 7, 0), ("DMUL.RZ R4, R12, R4", 1, 7, 0)], ["result"]),  # it reads the result
        ([("@P0 DADD R12, R4, -R4", 1, 7, 0), ("@P1 DMUL R12, R6, R8", 2, 7, 0)], ["result", "result"]),
        ([LOAD, ("EXIT P0", 7, 7, 0), ("FADD R3, R2, R2", 7, 7, 0)], ["result"]),  # where P0 does not hold
        ([LOAD, ("EXIT", 7, 7, 0), ("FADD R3, R2, R2", 7, 7, 0)], []),
    ],
)
def test_waits_for_results_and_operands(lines: list[tuple[str, int, int, int]], kinds: list[str]) -> None:
    assert [use.kind for use in early_uses(_coded(*lines))] == kinds
