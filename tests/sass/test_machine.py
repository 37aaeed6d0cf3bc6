"""Running machine code: lanes, barriers, memory, undefined bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ptxdiff.emulator import Buffer, BufferPointer, TimeLimit, UndefinedBits
from ptxdiff.sass import control, rows
from ptxdiff.sass.cubin import MachineCode, Parameter
from ptxdiff.sass.machine import SCHEDULES
from ptxdiff.sass.run import run_machine_code, run_schedules
from ptxdiff.sass.text import MachineFault, Unsupported
from tests.support.sass.assembly import LOAD, STORE, plant, run, written

WORDS = np.arange(100, 132, dtype=np.uint32)


def test_a_sum_runs() -> None:
    found, ran = run(f"{LOAD} IADD3 R5, R4, 0x7, R0 {STORE}", [WORDS])
    assert (found == WORDS + 7 + np.arange(32)).all()
    assert any(form.startswith("IADD3") for form in ran.forms)
    assert ran.runs == 1  # no bit is read that was never written


def test_a_planted_wrong_row_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    row = next(r for r in rows.ROWS["IADD3"] if r.name == "IADD3")
    wrong = rows.InstructionRow(row.name, row.opcodes, row.fixed, row.flags, row.choices, row.shapes, _off_by_one)
    plant(monkeypatch, "IADD3", [wrong])
    found, _ = run(f"{LOAD} IADD3 R5, R4, 0x7, R0 {STORE}", [WORDS])
    assert (found != WORDS + 7 + np.arange(32)).all()


def _off_by_one(a: int, b: int, c: int, result: int) -> int:
    return a + b + c + 1


@pytest.mark.parametrize(("b", "carry"), [(0, 1), (1, 1), (2, 0)])
def test_a_difference_carries_unless_it_borrows(b: int, carry: int) -> None:
    body = f"{LOAD} MOV R6, {b:#x}\nIADD3 R7, P0, R4, -R6, RZ\nSEL R5, R4, RZ, P0 {STORE}"
    found, _ = run(body, [np.ones(32, np.uint32)])
    assert (found == carry).all()


DIVERGED = """
ISETP.GE.AND P0, PT, R0, 0x10, PT
BSSY B0, `(.L_x_2)
@P0 BRA `(.L_x_1)
IADD3 R5, R4, 0x1, RZ
BRA `(.L_x_2)
.L_x_1:
IADD3 R5, R4, 0x2, RZ
.L_x_2:
BSYNC B0
"""


def test_both_sides_of_a_branch_run_and_join() -> None:
    found, ran = run(f"{LOAD} {DIVERGED} {STORE}", [WORDS])
    assert (found == WORDS + np.where(np.arange(32) >= 16, 2, 1)).all()
    assert ran.runs == 1  # no lane notices another one while they are apart


@pytest.mark.parametrize("branch", ["", "@PT BRA `(.L_x_9)"])
def test_barriers_that_are_cleared_before_a_kernel_join_lanes(branch: str) -> None:
    """What ptxas writes before each kernel for sm_87, run and skipped."""
    chain = "\n".join(f"BMOV.32.CLEAR B{k + 1}, B{k}" for k in range(15))
    prologue = f"{branch}\nBMOV.32 B0, 0xffffffff\n{chain}\nBMOV.32 B15, 0x0\n.L_x_9:"
    found, _ = run(f"{prologue}\n{LOAD} {DIVERGED} {STORE}", [WORDS])
    assert (found == WORDS + np.where(np.arange(32) >= 16, 2, 1)).all()


def test_a_barrier_moves_to_another_and_is_cleared() -> None:
    body = (
        f"{LOAD} BMOV.32 B3, 0xf0\nBMOV.32.CLEAR B2, B3\nBMOV.32 R5, B2\nBMOV.32 R6, B3\nIADD3 R5, R5, R6, R4 {STORE}"
    )
    found, _ = run(body, [WORDS])
    assert (found == WORDS + 0xF0).all()


@pytest.mark.parametrize("text", ["BMOV.32 B1, B0", "BMOV.32.CLEAR B1, 0x0", "BMOV.64.CLEAR B1, B0"])
def test_other_moves_of_barriers_are_refused(text: str) -> None:
    with pytest.raises(Unsupported, match="BMOV"):
        run(f"{LOAD} {text} {STORE}", [WORDS])


TOGETHER = """
LOP3.LUT R8, R0, 0x10, RZ, 0xc0, !PT
ISETP.EQ.AND P0, PT, R8, RZ, PT
ISETP.GE.AND P1, PT, R0, 0x20, PT
ISETP.GE.AND P2, PT, R0, 0x30, PT
MOV R6, 0xffff
@P1 MOV R6, 0xffffffff
@P0 WARPSYNC R6
@P2 WARPSYNC R6
VOTE.ANY R5, PT, PT
WARPSYNC 0xffffffff
"""
"""Half of the first warp waits for itself alone, and half of the second one for the other half."""


def test_another_warp_that_waits_does_not_part_a_warp() -> None:
    found, _ = run(f"{LOAD}{TOGETHER}{STORE}", [np.zeros(64, np.uint32)], threads=64)
    alone, _ = run(f"{LOAD}{TOGETHER}{STORE}", [np.zeros(32, np.uint32)])
    assert (alone == 0xFFFFFFFF).all()
    assert (found[:32] == alone).all()


def test_lanes_that_exit_are_not_waited_for() -> None:
    body = DIVERGED.replace("IADD3 R5, R4, 0x2, RZ", "STG.E [R2.64], RZ\nEXIT")
    found, _ = run(f"{LOAD} {body} {STORE}", [WORDS])
    assert (found == np.where(np.arange(32) >= 16, 0, WORDS + 1)).all()


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        ("@P0 EXIT P1", lambda lanes: (lanes & 1) & (lanes >> 1)),
        ("@!P0 EXIT P1", lambda lanes: (~lanes & 1) & (lanes >> 1)),
        ("@P0 EXIT !P1", lambda lanes: (lanes & 1) & ~(lanes >> 1)),
        ("EXIT P1", lambda lanes: lanes >> 1),
    ],
)
def test_lanes_end_for_which_two_predicates_hold(end: str, ended) -> None:
    """The operand is joined with the guard; lanes for which only one of them holds go on."""
    predicates = "LOP3.LUT R6, R0, 0x1, RZ, 0xc0, !PT\nISETP.NE.AND P0, PT, R6, RZ, PT\n"
    predicates += "LOP3.LUT R6, R0, 0x2, RZ, 0xc0, !PT\nISETP.NE.AND P1, PT, R6, RZ, PT\n"
    found, ran = run(f"{LOAD} STG.E [R2.64], RZ\n{predicates}{end}\nIADD3 R5, R4, 0x1, RZ {STORE}", [WORDS])
    lanes = np.arange(32)
    assert (found == np.where(ended(lanes) & 1, 0, WORDS + 1)).all()
    assert {"EXIT !P" if "!P1" in end else "EXIT P", "EXIT"} <= ran.moves.keys()


@pytest.mark.parametrize("end", ["EXIT P0, P1", "EXIT R4", "EXIT.KEEPREFCOUNT P0", "EXIT UP0"])
def test_other_ends_are_refused(end: str) -> None:
    with pytest.raises(Unsupported, match="EXIT"):
        run(f"{LOAD} MOV R5, R4\n{end} {STORE}", [WORDS])


def test_a_lane_that_never_comes_is_a_deadlock() -> None:
    body = f"{LOAD} BSSY B0, `(.L_x_2)\nWARPSYNC 0x1\nMOV R5, 0x1\n.L_x_2:\nBSYNC B0 {STORE}"
    with pytest.raises(MachineFault):
        run(body, [WORDS])


def test_bits_that_depend_on_the_order_of_sides_are_found() -> None:
    body = LOAD + DIVERGED.replace("IADD3 R5, R4, 0x1, RZ", "STG.E [R8.64], R4").replace(
        "IADD3 R5, R4, 0x2, RZ", "STG.E [R8.64], R0"
    )
    body = body.replace("BSSY", "IMAD.WIDE R8, RZ, R1, c[0x0][0x160]\nBSSY")
    with pytest.raises(MachineFault, match="order"):
        run(f"{body} MOV R5, 0x1\nISETP.GE.AND P1, PT, R0, 0x1, PT\n@!P1 EXIT {STORE}", [WORDS])


COLLECTIVE = """
WARPSYNC.COLLECTIVE R6, `(.L_x_3)
REDUX.SUM UR4, R4
MOV R5, UR4
ENDCOLLECTIVE
.L_x_3:
"""


def test_lanes_that_parted_meet_before_what_they_do_together() -> None:
    found, ran = run(f"{LOAD} MOV R6, 0xffffffff\n{DIVERGED} {COLLECTIVE} {STORE}", [WORDS])
    assert (found == WORDS.sum()).all()
    assert ran.runs == 1


def test_a_part_of_a_warp_that_acts_together_is_refused() -> None:
    with pytest.raises(Unsupported, match="a part of a warp"):
        run(f"{LOAD} MOV R6, 0xffff\n{COLLECTIVE} {STORE}", [WORDS])


def test_lanes_that_wait_at_two_places_are_refused() -> None:
    """One mask at two instructions. An H200 lets lanes meet so; whose region they then run is not known."""
    sides = [f"{COLLECTIVE}".replace(".L_x_3", f".L_x_{k}") for k in (3, 4)]
    body = DIVERGED.replace("IADD3 R5, R4, 0x1, RZ", sides[0]).replace("IADD3 R5, R4, 0x2, RZ", sides[1])
    with pytest.raises(Unsupported, match="and others of their warp elsewhere"):
        run(f"{LOAD} MOV R6, 0xffffffff\n{body} {STORE}", [WORDS])


@pytest.mark.parametrize(
    "body",
    [
        COLLECTIVE.replace("ENDCOLLECTIVE\n", ""),  # a region without its end
        COLLECTIVE.replace("MOV R5, UR4", "EXIT"),  # one that lanes leave
        COLLECTIVE.replace("WARPSYNC.COLLECTIVE", "@P0 WARPSYNC.COLLECTIVE"),
        COLLECTIVE.replace("WARPSYNC.COLLECTIVE", "WARPSYNC.COLLECTIVE.ALL"),
        "WARPSYNC.EXCLUSIVE 0xffffffff\nMOV R5, RZ",
    ],
)
def test_another_collective_region_is_refused(body: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{LOAD} MOV R6, 0xffffffff\nISETP.GE.AND P0, PT, R0, 0x0, PT\n{body} {STORE}", [WORDS])


@pytest.mark.parametrize("first", [0x7FFFFFFF, 0x80000000, 5, 0])
@pytest.mark.parametrize("second", [0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 1])
def test_a_saturated_difference_of_the_least_number(first: int, second: int) -> None:
    """The negation of the least number needs more than 32 bits."""
    found, _ = run(f"{LOAD} MOV R6, {second:#x}\nVIADD.S32.ISAT R5, R4, -R6 {STORE}", [np.full(32, first, np.uint32)])
    a, b = (int(np.uint32(x).view(np.int32)) for x in (first, second))
    assert (found.view(np.int32) == min(max(a - b, -(1 << 31)), (1 << 31) - 1)).all()


SMALLER = """
MOV R6, {}
MOV R7, {}
MOV R8, {}
MOV R9, {}
DSETP.MIN.AND P0, P1, R6, R8, PT
SEL R5, RZ, 0x1, !P0
"""


@pytest.mark.parametrize(
    ("first", "second", "chosen"),
    [
        ((0, 0x80000000), (0, 0), 1),  # -0 is the smaller zero
        ((0, 0), (0, 0x80000000), 0),
        ((1, 0x7FF80000), (0, 0x3FF00000), 0),  # a NaN loses
        ((0, 0x3FF00000), (1, 0x7FF80000), 1),
        ((0, 0x3FF00000), (1, 0x3FF00000), 1),
    ],
)
def test_the_smaller_of_two_float64_is_chosen(first: tuple[int, int], second: tuple[int, int], chosen: int) -> None:
    found, _ = run(LOAD + SMALLER.format(*map(hex, (*first, *second))) + STORE, [WORDS])
    assert (found == chosen).all()


def test_which_of_two_equal_float64_is_chosen_is_not_known() -> None:
    body = LOAD + SMALLER.format("0x1", "0x3ff00000", "0x1", "0x3ff00000")
    with pytest.raises(Unsupported, match=r"DSETP.*not known"):
        run(body + STORE, [WORDS])
    found, _ = run(f"{body} SEL R5, R6, R8, P0 {STORE}", [WORDS])  # as ptxas uses it
    assert (found == 1).all()


def _constant_half(value: int, use: str) -> np.ndarray:
    """What threads store that use R5: a float16 of a float32 in the constant bank."""
    body = f"{PLACE_OF_THREAD} HADD2 R4, -RZ.H0_H0, c[0x0][0x168].F32\n{use} {STORE}"
    output = np.zeros(32, np.uint32)
    code = MachineCode("kernel", "sm_75", written(body), (Parameter(0, 8), Parameter(8, 4)), 0x160, {}, 0, 0)
    run_machine_code(code, [Buffer(output, "out", defined=False), value], (1,), 32)
    return output


BOTH_HALVES = "PRMT R5, R4, 0x1010, RZ"
ONE_HALF = "LOP3.LUT R5, R4, 0xffff, RZ, 0xc0, !PT"


@pytest.mark.parametrize(
    ("value", "half"),
    [(0x3D800000, 0x2C00), (0x80000000, 0x8000), (0x33800000, 1), (0x477FE000, 0x7BFF), (0xFF800000, 0xFC00)],
)
def test_a_half_that_lies_in_a_constant_bank_as_a_float32(value: int, half: int) -> None:
    assert (_constant_half(value, ONE_HALF) == half).all()
    assert (_constant_half(value, BOTH_HALVES) == half * 0x10001).all()


@pytest.mark.parametrize("use", ["MOV R5, R4", "LOP3.LUT R5, R4, 0x10000, RZ, 0xc0, !PT", "PRMT R5, R4, 0x3232, RZ"])
def test_the_half_beside_it_is_not_known(use: str) -> None:
    with pytest.raises(Unsupported, match=r"HADD2.*not known"):
        _constant_half(0x3D800000, use)


SIDES = """
ISETP.LT.U32.AND P0, PT, R0, {first}, PT
ISETP.LT.U32.AND P1, PT, R0, 0x1c, PT
BSSY B0, `(.L_join)
@P0 BRA `(.L_side)
HADD2 R5, -RZ.H0_H0, c[0x0][0x168].F32
{masked} LOP3.LUT R5, R5, 0xffff, RZ, 0xc0, !PT
SHFL.IDX PT, R6, R5, R0, 0x1f
STG.E.SYS [R2], R5
BRA `(.L_join)
.L_side:
{other}
SHFL.IDX PT, R6, R5, R0, 0x1f
STG.E.SYS [R2], R5
.L_join:
BSYNC B0
EXIT
"""
ONE_PART = (Parameter(0, 8), Parameter(8, 4), Parameter(12, 4))


@pytest.mark.parametrize("first", ["0x14", "0x10", "0xa", "0x1"])
def test_bits_that_are_not_known_differ_between_the_parts_of_a_program(first: str) -> None:
    """However many lanes are here: the last twelve, say, are not taken for three parts of four."""
    outputs = np.zeros((len(SCHEDULES), 32), np.uint32)
    buffer = Buffer(outputs.reshape(-1), "out", defined=False)
    place = "S2R R0, SR_TID.X\nS2R R4, SR_CTAID.X\nMOV R1, 0x4\nLEA R4, R4, R0, 0x5\n"
    sides = SIDES.format(first=first, masked="@P1", other="MOV R5, R0")
    body = f"{place} IMAD.WIDE.U32 R2, R4, R1, c[0x0][0x160]{sides}"
    code = MachineCode("kernel", "sm_75", written(body), ONE_PART, 0x160, {}, 0, 0)
    run_schedules(code, [buffer, 0x3D800000, 0], 1, 32)
    upper = outputs[:, 28:] >> 16
    assert ((upper[0] ^ upper[1]) == 0xFFFF).all()
    assert (upper[2] == 0).all()


def test_the_order_of_sides_does_not_decide_bits_that_are_not_known() -> None:
    half = "HADD2 R5, -RZ.H0_H0, c[0x0][0x168].F32"
    sides = SIDES.format(first="0x10", masked="@P0", other=half)  # nobody there has P0
    body = f"{PLACE_OF_THREAD}{sides}"
    output = np.zeros(32, np.uint32)
    code = MachineCode("kernel", "sm_75", written(body), ONE_PART, 0x160, {}, 0, 0)
    with pytest.raises(Unsupported, match=r"HADD2.*not known"):
        run_machine_code(code, [Buffer(output, "out", defined=False), 0x3D800000, 0], (1,), 32)


@pytest.mark.parametrize("value", [0x3D800001, 0x477FF000, 0x33000000, 0x7FC00000])
def test_how_a_float32_rounds_there_is_not_known(value: int) -> None:
    with pytest.raises(Unsupported, match=r"HADD2.*not known"):
        _constant_half(value, ONE_HALF)


DIVIDED = "MOV R4, 0x{a:x}\nMOV R6, 0x{c:x}\nF2FP.{words}.UNPACK_B_MERGE_C.SCALE_BY_C R5, R4, R6\n"
OF_FOUR_BITS, OF_EIGHT = "SATFINITE.E2M1.F16", "SATFINITE.E4M3.BF16"


@pytest.mark.parametrize(
    ("words", "a", "scale", "mask", "codes"),
    [(OF_EIGHT, 0x40003F80, 0x80, "0xffff", 0x3830), (OF_EIGHT, 0x40003F80, 0x7F, "0xffff", 0x4038),
     (OF_FOUR_BITS, 0x42003C00, 0x7F, "0xff", 0x52), (OF_FOUR_BITS, 0x42003C00, 0x7E, "0xff", 0x74)],
)  # fmt: skip
def test_codes_divided_by_a_scale(words: str, a: int, scale: int, mask: str, codes: int) -> None:
    body = DIVIDED.format(words=words, a=a, c=scale << 24)
    found, _ = run(f"{LOAD} {body} LOP3.LUT R5, R5, {mask}, RZ, 0xc0, !PT {STORE}", [WORDS])
    assert (found == codes).all()


@pytest.mark.parametrize(
    ("words", "c", "mask"),
    [(OF_EIGHT, 0x7F000000, "0x10000"), (OF_FOUR_BITS, 0x7F000000, "0x100"), (OF_FOUR_BITS, 0x7F000001, "0xff"),
     (OF_EIGHT, 0x7F010000, "0x1"), (OF_EIGHT, 0x7F000100, "0xffff")],
)  # fmt: skip
def test_what_is_above_the_codes_or_follows_from_more_than_a_scale_is_not_known(words: str, c: int, mask: str) -> None:
    body = DIVIDED.format(words=words, a=0x40003F80, c=c)
    with pytest.raises(Unsupported, match=r"F2FP.*not known"):
        run(f"{LOAD} {body} LOP3.LUT R5, R5, {mask}, RZ, 0xc0, !PT {STORE}", [WORDS])


@pytest.mark.parametrize(
    "body",
    [
        SMALLER.format("0x1", "0x3ff00000", "0x1", "0x3ff00000"),
        "SEL R5, RZ, 0x1, !P3\n",
        "LOP3.LUT R5, R9, 0x1, RZ, 0xc0, !PT\n",
        "LOP3.LUT R5, R9, R10, RZ, 0x3c, !PT\n",
    ],
    ids=["of equal numbers", "never written", "a bit of a register", "the xor of two"],
)
def test_a_bit_that_is_not_known_is_found_in_every_single_lane(body: str) -> None:
    for lane in range(8):
        alone = f"{LOAD} {body} ISETP.NE.AND P2, PT, R0, {lane:#x}, PT\n@P2 MOV R5, RZ\n"
        with pytest.raises((UndefinedBits, Unsupported), match=r"undefined bits|not known"):
            run(alone + STORE, [WORDS])


@pytest.mark.parametrize(
    "body",
    ["LOP3.LUT R5, R5, 0x1, RZ, 0xc0, !PT", "LOP3.LUT R5, R5, R6, RZ, 0x3c, !PT"],
    ids=["a bit", "the xor of two words"],
)
@pytest.mark.parametrize("space", ["local", "shared", "global"])
def test_memory_that_was_never_written_is_found_in_every_single_lane(space: str, body: str) -> None:
    if space == "global":  # the output itself, before it is written
        load = "MOV R8, c[0x0][0x160]\nMOV R9, c[0x0][0x164]\nLDG.E R5, [R8.64+{:#x}]\nLDG.E R6, [R8.64+0x40]"
    elif space == "local":
        load = "MOV R1, c[0x0][0x28]\nIADD3 R1, R1, -0x8, RZ\nLDL R5, [R1]\nLDL R6, [R1+0x4]"
    else:
        load = "LDS R5, [R0.X4]\nLDS R6, [R0.X4+0x80]"
    for lane in range(8):
        alone = f"{body}\nISETP.NE.AND P2, PT, R0, {lane:#x}, PT\n@P2 MOV R5, RZ"
        with pytest.raises(UndefinedBits):
            run(f"{LOAD} {load.format(4 * lane)}\n{alone} {STORE}", [WORDS], local=16, shared=256)


def test_the_difference_of_two_buffers_that_were_never_written_is_undefined() -> None:
    body = "IMAD.WIDE R6, R0, R1, c[0x0][0x160]\nLDG.E R8, [R6.64]\nIMAD.WIDE R6, R0, R1, c[0x0][0x170]"
    body = f"{LOAD} {body}\nLDG.E R9, [R6.64]\nIADD3 R5, R8, -R9, RZ {STORE}"
    buffers = [Buffer(np.zeros(32, np.uint32), name, defined=name == "in") for name in ("out", "in", "scratch")]
    code = MachineCode("kernel", "sm_80", written(body), tuple(Parameter(8 * k, 8) for k in range(3)), 0x160, {}, 0, 0)
    with pytest.raises(UndefinedBits):
        run_machine_code(code, buffers, (1,), 32)


def test_an_undefined_register_is_not_zero() -> None:
    with pytest.raises(UndefinedBits):
        run(f"{LOAD} IADD3 R5, R4, R9, RZ {STORE}", [WORDS])


def test_a_shift_by_an_undefined_register() -> None:
    """Almost any amount gives zero. An H200's registers hold zero, mostly, where the kernel has written nothing."""
    for amount in ("R9", "R40"):
        with pytest.raises(UndefinedBits):
            run(f"{LOAD} SHF.R.U32.HI R5, RZ, {amount}, R4 {STORE}", [WORDS])


def test_undefined_bits_that_do_not_matter_are_no_error() -> None:
    found, _ = run(f"{LOAD} LOP3.LUT R9, R9, RZ, RZ, 0xc0, !PT\nIADD3 R5, R4, R9, RZ {STORE}", [WORDS])
    assert (found == WORDS).all()


HALF = "ISETP.GE.AND P0, PT, R0, 0x10, PT\n"
"""P0 holds in the upper half of a warp."""


@pytest.mark.parametrize(
    "body",
    [
        "@P0 MOV R5, 0x1",
        "@P0 MOV R9, 0x1\nIADD3 R5, R9, 0x1, RZ",
        "@P0 MOV R9, 0x1\nMOV R10, R9\nMOV R9, RZ\nSHF.R.U32.HI R5, RZ, 0x4, R10",
        "MOV R5, RZ\nISETP.NE.AND P1, PT, R9, RZ, PT\nISETP.NE.AND P2, PT, R9, 0x1, P1\n@P2 MOV R5, 0x1\n"
        "LOP3.LUT R8, R9, 0x1, RZ, 0xc0, !PT\nISETP.NE.AND P1, PT, R8, RZ, PT\n@P1 MOV R5, 0x2",
        "MOV R5, RZ\n@P0 ISETP.GE.AND P1, PT, R0, RZ, PT\n@P1 MOV R5, 0x1",
        "MOV R5, RZ\nMOV R10, 0x100\n@P1 IMAD.WIDE.U32 R4, R10, 0x1000000, RZ",
        "@P0 ISETP.GE.AND P1, PT, R0, RZ, PT\nSEL R5, RZ, 0x1, P1",
        "@P0 MOV R6, RZ\n@!P0 MOV R6, R9\nLOP3.LUT R6, R6, 0x1, RZ, 0xc0, !PT\nLDS R5, [R6.X4+0x80]",
        "@P0 STS [R0.X4], R4\nBAR.SYNC 0x0\nLDS R5, [R0.X4]",
        "MOV R8, R4\n@P0 MOV R8, R9\nSTS [R0.X4], R8\nBAR.SYNC 0x0\nLDS R5, [R0.X4]",
        "STS.U8 [R0.X4], R4\nBAR.SYNC 0x0\nLDS R5, [R0.X4]",
        "MOV R9, R0\nMOV R8, R7\n@P0 MOV R8, R0\nSHFL.BFLY PT, R5, R8, 0x1, 0x1f",
        "IADD3 R5, R4, UR6, RZ",
        "R2UR UR6, RZ\nMOV R5, RZ\n@!UP3 UMOV UR6, 0x1\nMOV R5, UR6",
    ],
)  # fmt: skip
def test_what_depends_on_bits_that_half_of_the_lanes_wrote_is_found(body: str) -> None:
    """Or on a guard that nobody wrote. One run is not enough, though each register is written before it is read."""
    words = "\n".join(f"STS [R0.X4+{at:#x}], R4" for at in (0x80, 0x100)) + "\n" if "R6.X4" in body else ""
    with pytest.raises(UndefinedBits):
        run(f"{LOAD} {HALF} {words} {body}\n{STORE}", [WORDS], shared=1024)


@pytest.mark.parametrize("lane", range(4))
def test_a_predicate_that_is_written_under_itself_stays_undefined(lane: int) -> None:
    """In every lane, also where the guard holds by chance: with the other bit it would not."""
    only = f"ISETP.EQ.AND P2, PT, R0, {lane:#x}, PT\n@!P2 EXIT"
    with pytest.raises(UndefinedBits):
        run(f"{LOAD} @P1 ISETP.EQ.AND P1, PT, RZ, RZ, PT\n{only}\nSEL R5, RZ, 0x1, P1 {STORE}", [WORDS])


APART = "@P0 STG.E [R2.64], R5\n@!P0 STG.E [R2.64], RZ"
"""R5 is stored in the upper half of the warp, and zero in the lower half."""


@pytest.mark.parametrize(
    ("body", "store"),
    [
        ("@P0 MOV R5, 0x1", APART),
        ("@P0 MOV R9, RZ\nIADD3 R9, R9, 0x3, RZ\nIADD3 R5, R9, -0x2, RZ", APART),
        ("@!P0 IADD3 R5, R9, 0x3, RZ\n@!P0 MOV R5, RZ\n@P0 MOV R5, 0x1", "STG.E [R2.64], R5"),
        ("@P0 ISETP.EQ.AND P1, PT, RZ, RZ, PT\nMOV R5, RZ\n@P1 MOV R5, 0x1", APART),
        ("MOV R6, RZ\n@P0 MOV R6, 0x1\nSTS [R0.X4], R6\nBAR.SYNC 0x0\nLDS R5, [R0.X4]", "STG.E [R2.64], R5"),
    ],
)  # fmt: skip
def test_bits_that_were_never_written_and_reach_nothing_need_one_run(body: str, store: str) -> None:
    found, ran = run(f"{LOAD} {HALF} {body}\n{store}\nEXIT", [WORDS], shared=1024)
    assert (found == (np.arange(32) >= 16)).all()
    assert ran.runs == 1


def test_bits_that_do_not_matter_have_a_run_of_each_filling() -> None:
    _, ran = run(f"{LOAD} IADD3 R9, R9, -R9, RZ\nIADD3 R5, R4, R9, RZ {STORE}", [WORDS])
    assert ran.runs == 3


NOTICED = DIVERGED.replace("IADD3 R5, R4, 0x1, RZ", "{first}").replace("IADD3 R5, R4, 0x2, RZ", "{second}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("MOV R6, 0x5\nR2UR UR4, R6\nMOV R5, RZ", "MOV R5, UR4"),
        ("WARPSYNC 0xffffffff\nMOV R6, 0x5\nR2UR UR4, R6", "WARPSYNC 0xffffffff\nMOV R5, UR4"),
    ],
    ids=["a uniform register", "behind a barrier"],
)
def test_what_one_side_of_a_branch_leaves_for_the_other_depends_on_the_schedule(first: str, second: str) -> None:
    body = f"MOV R5, RZ\nR2UR UR4, RZ\n{NOTICED.format(first=first, second=second)}"
    with pytest.raises(MachineFault, match="order in which the sides"):
        run(f"{LOAD} {body} {STORE}", [WORDS])


def test_a_store_outside_is_found() -> None:
    with pytest.raises(MachineFault, match="out"):
        run(f"{LOAD} MOV R5, RZ\nSTG.E [R2.64+0x80], R5\nEXIT", [WORDS])


SHORT = """
ULDC.64 UR4, c[0x0][0x160]
IMAD.SHL.U32 R6, R0, 0x4, RZ
LOP3.LUT R6, R6, 0x7c, RZ, 0x3c, !PT
LOP3.LUT R7, R6, 0x{high}, RZ, 0xfc, !PT
ULDC.64 UR6, c[0x0][0x168]
LDG.E.SYS R5, [R6.U32+UR6]
STG.E.SYS [R7.U32+UR4{more}], R5
EXIT
"""


def test_an_address_of_32_bits_beside_a_uniform_register() -> None:
    """R7 is odd, as no pair of registers is."""
    found, _ = run(LOAD + SHORT.format(high="0", more=""), [WORDS])
    assert (found == WORDS).all()


def test_an_address_of_32_bits_has_no_sign() -> None:
    body = f"""{PLACE_OF_THREAD} ULDC.64 UR6, c[0x0][0x168]
    IMAD.SHL.U32 R6, R0, 0x4, RZ
    LOP3.LUT R6, R6, 0x80000000, RZ, 0xfc, !PT
    LDG.E.SYS R5, [R6.U32+UR6] {STORE}"""
    output, data = np.zeros(32, np.uint32), Buffer(WORDS, "in")
    code = MachineCode("kernel", "sm_75", written(body), (Parameter(0, 8), Parameter(8, 8)), 0x160, {}, 0, 0)
    run_machine_code(code, [Buffer(output, "out", defined=False), BufferPointer(data, -(1 << 31))], (1,), 32)
    assert (output == WORDS).all()


def test_urz_beside_an_address_adds_nothing() -> None:
    found, _ = run(f"{LOAD} UMOV UR0, 0x7\nMOV R5, R4\nSTG.E [R2.64+URZ], R5\nEXIT", [WORDS])
    assert (found == WORDS).all()
    with pytest.raises(Unsupported, match="aligned"):
        run(f"{LOAD} UMOV UR5, 0x0\nUMOV UR6, 0x0\nMOV R5, R4\nSTG.E [R2.64+UR5], R5\nEXIT", [WORDS])


@pytest.mark.parametrize(("high", "more"), [("80000000", ""), ("0", "+0x4"), ("0", "+-0x4"), ("1", "")])
def test_a_wrong_address_of_32_bits_is_found(high: str, more: str) -> None:
    with pytest.raises(MachineFault):
        run(LOAD + SHORT.format(high=high, more=more), [WORDS])


@pytest.mark.parametrize(
    "text",
    ["LDL R5, [R6.U32+UR4]", "LDS.U R5, [R6.U32+UR4]", "RED.E.ADD.STRONG.GPU [R6.U32+UR4], R5",
     "ATOMG.E.ADD.STRONG.GPU PT, R5, [R6.U32+UR4], R4", "LDG.E R5, [R6.U32]", "LDG.E R5, [R6.U32+UR4.X4]",
     "LD.E R5, [R6.U32+UR4]", "ST.E [R6.U32+UR4], R5", "ATOM.E.ADD.STRONG.GPU PT, R5, [R6.U32+UR4], R4",
     "LDGSTS.E [R6], [R6.U32+UR4]", "LDGSTS.E [R6.U32+UR4], [R6.64]", "QSPC.E.G P0, RZ, [R6.U32+UR4]",
     "STS [R6.U32+UR4], R5", "CCTL.IVALL [R6.U32+UR4]", "LDSM.16.M88 R5, [R6.U32+UR4]", "STL [R6.U32+UR4], R5"],
)  # fmt: skip
def test_other_accesses_at_such_an_address_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{LOAD} ULDC.64 UR4, c[0x0][0x168]\nMOV R6, RZ\n{text}\n{STORE}", [WORDS])


def test_a_misaligned_access_is_found() -> None:
    with pytest.raises(MachineFault, match="multiple"):
        run(f"{LOAD} MOV R5, RZ\nSTG.E [R2.64+0x2], R5\nEXIT", [WORDS])


def test_an_endless_loop_ends() -> None:
    code = MachineCode("kernel", "sm_80", written(".L_x_0:\nBRA `(.L_x_0)"), (), 0x160, {}, 0, 0)
    with pytest.raises(TimeLimit):
        run_machine_code(code, [], (1,), 32, limit=0.2)


def test_an_unknown_instruction_is_refused_when_it_runs_and_not_before() -> None:
    skipped = f"{LOAD} MOV R5, R4\nBRA `(.L_x_0)\nFOO R5, R4\n.L_x_0: {STORE}"
    assert (run(skipped.replace(".L_x_0: ", ".L_x_0:\n"), [WORDS])[0] == WORDS).all()
    with pytest.raises(Unsupported, match="FOO"):
        run(f"{LOAD} FOO R5, R4 {STORE}", [WORDS])


def test_an_instruction_that_nvdisasm_cannot_read_is_named_by_its_bits() -> None:
    function = written("NOP\nEXIT")
    unread = function.instructions[0]._replace(text="", opcode="", low=0x1234, high=0xAB)
    function = replace(function, instructions=(unread, function.instructions[1]))
    with pytest.raises(Unsupported, match=r"0x00000000000000ab0000000000001234.*no text"):
        run_machine_code(MachineCode("kernel", "sm_80", function, (), 0x160, {}, 0, 0), [], (1,), 32)


def _polynomials(a: int, b: int) -> int:
    """The product of two polynomials over two elements."""
    total = 0
    for number in range(64):
        total ^= (a << number) * (b >> number & 1)
    return total


@pytest.mark.parametrize(("half", "shift"), [("LO", 0), ("HI", 64)])
@pytest.mark.parametrize("word", [0, 1])
def test_a_product_of_polynomials(half: str, shift: int, word: int) -> None:
    body = "MOV R5, 0x80000001\nMOV R6, 0x12345678\nMOV R7, 0xdeadbeef\nMOV R8, 0x55\nMOV R9, 0xffff0000\n"
    found, _ = run(f"{LOAD} {body} CLMAD.{half} R10, R4, R6, R8\nMOV R5, R{10 + word}\n{STORE}", [WORDS])
    products = [_polynomials(0x80000001 << 32 | w, 0xDEADBEEF12345678) for w in WORDS.tolist()]
    wanted = [(product >> shift & (1 << 64) - 1) ^ 0xFFFF000000000055 for product in products]
    assert found.tolist() == [w >> 32 * word & 0xFFFFFFFF for w in wanted]


def test_an_unknown_word_of_the_driver_is_refused() -> None:
    with pytest.raises(Unsupported, match="driver"):
        run(f"{LOAD} MOV R5, c[0x0][0x40] {STORE}", [WORDS])


@pytest.mark.parametrize(("mask", "defined"), [("0xffff", True), ("0x1ffff", False), ("0x80000000", False)])
def test_what_lies_behind_a_narrow_last_parameter_is_undefined(mask: str, defined: bool) -> None:
    body = f"""S2R R0, SR_TID.X
    MOV R1, 0x4
    IMAD.WIDE R2, R0, R1, c[0x0][0x160]
    MOV R4, c[0x0][0x168]
    LOP3.LUT R5, R4, {mask}, RZ, 0xc0, !PT {STORE}"""
    output = np.zeros(32, np.uint32)
    code = MachineCode("kernel", "sm_80", written(body), (Parameter(0, 8), Parameter(8, 2)), 0x160, {}, 0, 0)
    values = [Buffer(output, "out", defined=False), b"\x34\x12"]
    if defined:
        run_machine_code(code, values, (1,), 32)
        assert (output == 0x1234).all()
    else:
        with pytest.raises(UndefinedBits):
            run_machine_code(code, values, (1,), 32)


GAPS = (Parameter(0, 8), Parameter(8, 4), Parameter(16, 2), Parameter(24, 8))
"""Places of parameters with four bytes between the second and the third, and six between the third and the last."""


def _with_gaps(body: str, target: str = "sm_80") -> np.ndarray:
    """What 32 threads store that have the second parameter 0x11223344, the third 0x5566 and the last 7."""
    output = np.zeros(32, np.uint32)
    base = 0x160 if target == "sm_80" else 0x210
    code = MachineCode("kernel", target, written(body), GAPS, base, {}, 0, 0)
    values = [Buffer(output, "out", defined=False), 0x11223344, b"\x66\x55", 7]
    run_machine_code(code, values, (1,), 32)
    return output


PLACE_OF_THREAD = """S2R R0, SR_TID.X
MOV R1, 0x4
IMAD.WIDE R2, R0, R1, c[0x0][0x160]
"""
READS_OF_GAPS = {
    "an operand": "MOV R5, c[0x0][{at:#x}]",
    "LDC": "LDC R5, c[0x0][{at:#x}]",
    "LDC with a register": "MOV R6, {at:#x}\nLDC R5, c[0x0][R6]",
    "ULDC": "ULDC UR4, c[0x0][{at:#x}]\nMOV R5, UR4",
    "an operand of 64 bits": "IADD.64 R6, RZ, c[0x0][{pair:#x}]\nMOV R5, R7",
    "LDC.64": "LDC.64 R6, c[0x0][{pair:#x}]\nMOV R5, R7",
    "LDC.64 with a register": "MOV R8, {pair:#x}\nLDC.64 R6, c[0x0][R8]\nMOV R5, R7",
}


@pytest.mark.parametrize("read", READS_OF_GAPS)
@pytest.mark.parametrize("at", [0x16C, 0x174])
def test_what_lies_between_parameters_is_undefined(read: str, at: int) -> None:
    body = READS_OF_GAPS[read].format(at=at, pair=at - 4)
    with pytest.raises(UndefinedBits):
        _with_gaps(f"{PLACE_OF_THREAD} {body} {STORE}")


def test_two_undefined_words_between_parameters_are_not_equal() -> None:
    """Their xor, and that of a word with itself shifted by a byte, is no constant."""
    for second in ("MOV R5, c[0x0][0x174]", "SHF.R.U32.HI R5, RZ, 0x8, R4\nLOP3.LUT R4, R4, 0xff, RZ, 0xc0, !PT"):
        body = f"MOV R4, c[0x0][0x16c]\n{second}\nLOP3.LUT R5, R4, R5, RZ, 0x3c, !PT"
        with pytest.raises(UndefinedBits):
            _with_gaps(f"{PLACE_OF_THREAD} {body} {STORE}")


@pytest.mark.parametrize(("load", "register", "wanted"), [
    ("LDC.64 R6, c[0x0][0x168]", "R6", 0x11223344),
    ("MOV R8, 0x168\nLDC.64 R6, c[0x0][R8]", "R6", 0x11223344),
    ("LDC.U16 R6, c[0x0][0x170]", "R6", 0x5566),
    ("LDC.128 R8, c[0x0][0x170]", "R10", 7),
    ("LDC.128 R8, c[0x0][0x170]\nLOP3.LUT R8, R8, 0xffff, RZ, 0xc0, !PT", "R8", 0x5566),
])  # fmt: skip
def test_a_wide_load_over_a_gap_may_be_used_in_part(load: str, register: str, wanted: int) -> None:
    assert (_with_gaps(f"{PLACE_OF_THREAD} {load}\nMOV R5, {register} {STORE}") == wanted).all()


@pytest.mark.parametrize(("offset", "defined"), [(8, True), (12, False), (16, False), (24, True)])
def test_a_generic_address_reaches_undefined_bytes_between_parameters(offset: int, defined: bool) -> None:
    body = f"""{PLACE_OF_THREAD.replace("0x160", "0x210")}
    MOV R6, c[0x0][0x198]
    MOV R7, c[0x0][0x19c]
    LD.E R5, [R6.64+{offset:#x}] {STORE}"""
    if defined:
        assert (_with_gaps(body, "sm_90") == (0x11223344 if offset == 8 else 7)).all()
    else:
        with pytest.raises(UndefinedBits):
            _with_gaps(body, "sm_90")


def test_a_kernel_that_reads_no_gap_runs_once() -> None:
    code = MachineCode(
        "kernel", "sm_80", written(f"{PLACE_OF_THREAD} MOV R5, c[0x0][0x168] {STORE}"), GAPS, 0x160, {}, 0, 0
    )
    values = [Buffer(np.zeros(32, np.uint32), "out", defined=False), 1, b"\2\0", 7]
    assert run_machine_code(code, values, (1,), 32).runs == 1


def test_gaps_differ_between_the_parts_of_a_program() -> None:
    """Programs run in all schedules at once, with one bank: each part of it would store the same undefined word."""
    body = f"{PLACE_OF_THREAD} MOV R5, c[0x0][0x16c] {STORE}"
    code = MachineCode("kernel", "sm_80", written(body), GAPS, 0x160, {}, 0, 0)
    values = [Buffer(np.zeros(96, np.uint32), "out", defined=False), 1, b"\2\0", 7]
    with pytest.raises(UndefinedBits):
        run_schedules(code, values, 1, 32)


def test_a_caller_is_returned_to() -> None:
    body = f"""{LOAD}
    MOV R8, 0x90
    MOV R9, RZ
    IADD3 R5, R4, 0x1, RZ
    CALL.REL.NOINC `(.L_x_9)
    {STORE}
    .L_x_9:
    IADD3 R5, R5, 0x10, RZ
    RET.REL.NODEC R8 `(kernel)"""
    found, _ = run(body, [WORDS])
    assert (found == WORDS + 0x11).all()


@pytest.mark.parametrize(("guard", "returns"), [
    ("P0", np.arange(32) < 5), ("!P0", np.arange(32) >= 5), ("P1", np.arange(32) < 0), ("!P1", np.arange(32) >= 0),
])  # fmt: skip
def test_lanes_return_under_a_predicate(guard: str, returns: np.ndarray) -> None:
    """The others go on behind it, and return later."""
    body = f"""{LOAD}
    MOV R8, 0xc0
    MOV R9, RZ
    ISETP.LT.AND P0, PT, R0, 0x5, PT
    ISETP.LT.AND P1, PT, R0, 0x0, PT
    IADD3 R5, R4, 0x1, RZ
    BSSY B0, `(.L_x_8)
    CALL.REL.NOINC `(.L_x_9)
    BSYNC B0
    .L_x_8:
    {STORE}
    .L_x_9:
    IADD3 R5, R5, 0x10, RZ
    @{guard} RET.REL.NODEC R8 `(kernel)
    IADD3 R5, R5, 0x100, RZ
    RET.REL.NODEC R8 `(kernel)"""
    found, _ = run(body, [WORDS])
    assert (found == WORDS + np.where(returns, 0x11, 0x111)).all()


UNANIMOUS = """
ISETP.GE.AND P0, PT, R0, {}, PT
MOV R5, R4
@P0 BRA.U `(.L_x_5)
IADD3 R5, R5, 0x100, RZ
.L_x_5:
"""


@pytest.mark.parametrize(("least", "added"), [(0, 0), (1, 0x100), (31, 0x100), (32, 0x100)])
def test_a_unanimous_branch_is_taken_if_all_lanes_of_a_warp_take_it(least: int, added: int) -> None:
    found, _ = run(f"{LOAD} {UNANIMOUS.format(hex(least))} {STORE}", [WORDS])
    assert (found == WORDS + added).all()


def test_a_unanimous_branch_asks_only_the_lanes_that_run_it() -> None:
    inside = DIVERGED.replace("IADD3 R5, R4, 0x2, RZ", UNANIMOUS.format("0x10"))
    found, _ = run(f"{LOAD} {inside} {STORE}", [WORDS])
    assert (found == WORDS + np.where(np.arange(32) >= 16, 0, 1)).all()


@pytest.mark.parametrize("text", ["@P0 BRA.U UP0, `(.L_x_5)", "@P0 BRA.U P1, `(.L_x_5)"])
def test_a_unanimous_branch_with_one_more_condition_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{LOAD} {UNANIMOUS.format('0x0').replace('@P0 BRA.U `(.L_x_5)', text)} {STORE}", [WORDS])


CONVERGED = """
BRA.CONV ~URZ, `(.L_x_5)
IADD3 R5, R5, 0x100, RZ
.L_x_5:
"""


def test_a_warp_that_has_converged_jumps_over_what_brings_it_together() -> None:
    found, _ = run(f"{LOAD} MOV R5, R4\n{CONVERGED} {STORE}", [WORDS])
    assert (found == WORDS).all()
    inside = DIVERGED.replace("IADD3 R5, R4, 0x1, RZ", f"IADD3 R5, R4, 0x1, RZ\n{CONVERGED}")
    found, _ = run(f"{LOAD} {inside} {STORE}", [WORDS])
    assert (found == WORDS + np.where(np.arange(32) >= 16, 2, 0x101)).all()


@pytest.mark.parametrize("mask", ["~URZ", "UR4"])
def test_a_warp_of_which_lanes_are_missing_jumps_to_what_brings_it_together(mask: str) -> None:
    missing = f"BRA.DIV {mask}, `(.L_x_6)\nIADD3 R5, R5, 0x100, RZ\n.L_x_6:\n"
    found, _ = run(f"{LOAD} UMOV UR4, 0xffffffff\nMOV R5, R4\n{missing} {STORE}", [WORDS])
    assert (found == WORDS + 0x100).all()
    inside = DIVERGED.replace("IADD3 R5, R4, 0x1, RZ", f"IADD3 R5, R4, 0x1, RZ\n{missing}")
    found, _ = run(f"{LOAD} UMOV UR4, 0xffffffff\n{inside} {STORE}", [WORDS])
    assert (found == WORDS + np.where(np.arange(32) >= 16, 2, 1)).all()
    if mask == "UR4":
        with pytest.raises(Unsupported, match="lacks a lane"):
            run(f"{LOAD} UMOV UR4, 0xffff\nMOV R5, R4\n{missing} {STORE}", [WORDS])


def test_other_branches_by_convergence_are_refused() -> None:
    others = ("@P0 BRA.DIV ~URZ, `(.L_x_5)", "BRA.DIV URZ, `(.L_x_5)", "BRA.DIV R4, `(.L_x_5)", "BRA.DIV `(.L_x_5)")
    for text in (*others, "BRA.CONV URZ, `(.L_x_5)", "@P0 BRA.CONV ~URZ, `(.L_x_5)", "BRA.CONV ~UR4, `(.L_x_5)"):
        with pytest.raises(Unsupported):
            run(f"{LOAD} MOV R5, R4\n{CONVERGED.replace('BRA.CONV ~URZ, `(.L_x_5)', text)} {STORE}", [WORDS])
    with pytest.raises(Unsupported, match="ended"):
        run(f"{LOAD} MOV R5, R4\nISETP.EQ.AND P0, PT, R0, 0x3, PT\n@P0 EXIT\n{CONVERGED} {STORE}", [WORDS])


TABLE = """
LOP3.LUT R6, R0, 0x3, RZ, 0xc0, !PT
IMAD.SHL.U32 R6, R6, 0x10, RZ
IADD3 R6, R6, 0xf0, RZ
MOV R7, RZ
MOV R5, RZ
BSSY B0, `(.L_x_6)
BRX R6 {}
IADD3 R5, R5, 0x1, RZ
IADD3 R5, R5, 0x10, RZ
IADD3 R5, R5, 0x100, RZ
IADD3 R5, R5, 0x1000, RZ
.L_x_6:
BSYNC B0
"""


def test_each_lane_jumps_to_the_address_of_its_table_entry() -> None:
    body = f"{LOAD}{TABLE}{STORE}"
    after = next(i.address for i in written(body.format("-0x10")).instructions if i.opcode == "BRX") + 16
    body = body.replace("0xf0", hex(after))
    found, _ = run(body.format(hex(-after)), [WORDS])
    assert (found == np.resize([0x1111, 0x1110, 0x1100, 0x1000], 32)).all()
    for other in ("-0x10", "0x10"):
        with pytest.raises(Unsupported, match="BRX"):
            run(body.format(other), [WORDS])


UNIFORM_TABLE = """
R2UR UR4, R8
USHF.L.U32 UR4, UR4, 0x2, URZ
LDCU UR4, c[0x2][UR4]
USHF.R.S32.HI UR5, URZ, 0x1f, UR4
BSSY B0, `(.L_x_6)
BRXU UR4 {}
IADD3 R5, R5, 0x1, RZ
IADD3 R5, R5, 0x10, RZ
.L_x_6:
BSYNC B0
"""


def _jumped(warps: list[int], before: str = "") -> list[int]:
    """What each warp stores that jumps by an entry of a table: to the second sum for 0, to the first for 1."""
    body = f"{LOAD} MOV R8, R4 \n MOV R5, RZ {before} {UNIFORM_TABLE} {STORE}"
    after = next(i.address for i in written(body.format("-0x10")).instructions if i.opcode == "BRXU") + 16
    words = np.repeat(np.array(warps, np.uint32), 32)
    output = np.zeros(len(words), np.uint32)
    values = [Buffer(output, "out", defined=False), Buffer(words, "in")]
    places = (Parameter(0, 8), Parameter(8, 8))
    banks = {2: np.array([after + 16, after], np.uint32).tobytes()}
    code = MachineCode("kernel", "sm_80", written(body.format(hex(-after))), places, 0x160, banks, 0, 0)
    run_machine_code(code, values, (1,), len(words))
    assert all((output[32 * k : 32 * k + 32] == output[32 * k]).all() for k in range(len(warps)))
    return output[::32].tolist()


def test_each_warp_jumps_to_the_address_of_its_table_entry() -> None:
    assert _jumped([0, 1, 1, 0]) == [0x10, 0x11, 0x11, 0x10]


def test_a_jump_by_a_table_entry_of_another_warp_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted constant load that gives each warp the entry of the first one."""
    write = control.Machine.write_uniform
    monkeypatch.setattr(
        control.Machine, "write_uniform", lambda m, kind, n, warps, value: write(m, kind, n, warps, value[0])
    )
    assert _jumped([0, 1, 1, 0]) != [0x10, 0x11, 0x11, 0x10]


@pytest.mark.parametrize("text", [
    "BRXU R4 -0x10", "BRX UR4 -0x10", "BRXU UR5 -0x10", "BRXU URZ -0x10", "BRXU UR4 0x10", "@P0 BRXU UR4 -0x10",
    "LDCU UR4, c[0x2][R4]", "LDC R4, c[0x2][R4+UR4]", "LDCU UR4, c[0x2][UR4.X4]",
])  # fmt: skip
def test_other_jumps_by_tables_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{text} {STORE}", [WORDS])


STACK = """
LDC R1, c[0x0][0x28]
IADD3 R1, R1, -0x20, RZ
S2R R6, SR_LMEMHIOFF
{}
@!P0 BPT.TRAP 0x1
"""


@pytest.mark.parametrize(("byte", "first"), [("", 0), (".B1", 8), (".B2", 16), (".B3", 24)])
def test_predicates_are_the_bits_of_a_byte_where_the_mask_has_one(byte: str, first: int) -> None:
    """P2 and P6 are written; P1, whose bit the mask lacks, stays as it was."""
    before = "ISETP.NE.AND P1, PT, R0, R0, PT"
    body = f"{LOAD} {before}\nR2P PR, R4{byte}, 0x44\nP2R R5, PR, RZ, 0x46 {STORE}"
    words = np.random.default_rng(3).integers(0, 1 << 32, 32, np.uint32)
    found, _ = run(body, [words])
    assert (found == (words >> first & 0x44)).all()
    assert len(np.unique(found)) == 4


@pytest.mark.parametrize("text", [
    "R2P PR, R4.B4, 0x44", "R2P PR, -R4.B1, 0x44", "R2P PR, R4.B1, 0x80", "R2P PR, R4.H1, 0x1",
    "R2P.FOO PR, R4.B1, 0x1", "P2R R4.B1, PR, R5, 0x1",
])  # fmt: skip
def test_other_moves_of_predicates_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{LOAD} {text} {STORE}", [WORDS])


@pytest.mark.parametrize(
    ("low", "high", "term", "expected"),
    [(0xFFFFFFFF, 6, "0x2", (1, 7)), (0xFFFFFFFF, 0xFFFFFFFF, "0x1", (0, 0)), (3, 5, "UR4", (6, 10))],
)
def test_pairs_of_uniform_registers_are_added(low: int, high: int, term: str, expected: tuple[int, int]) -> None:
    for word, wanted in zip(("UR8", "UR9"), expected, strict=True):
        body = f"UMOV UR4, {low:#x}\nUMOV UR5, {high:#x}\nUIADD3.64 UR8, UR4, {term}, URZ\nMOV R5, {word}"
        assert (run(f"{LOAD} {body} {STORE}", [WORDS])[0] == wanted).all()
        with_carries = body.replace("UR8, UR4", "UR8, UPT, UPT, UR4")
        assert (run(f"{LOAD} {with_carries} {STORE}", [WORDS])[0] == wanted).all()


@pytest.mark.parametrize("text", [
    "UIADD3.64 UR8, UPT, UP0, UR4, 0x2, URZ", "UIADD3.64 UR8, UPT, UR4, 0x2, URZ", "IADD3.64 R8, R4, 0x2, RZ",
    "UIADD3.64 UR9, UR4, 0x2, URZ", "UIADD3.64 UR8, -UR4, 0x2, URZ", "UIADD3.64 UR8, UR4, -0x2, URZ",
    "UIADD3.64 UR8, UR4, 0x80000000, URZ", "UIADD3.64.X UR8, UR4, 0x2, URZ", "UIADD3.64 UR8, UP0, UR4, 0x2, URZ",
])  # fmt: skip
def test_other_sums_of_pairs_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"UMOV UR4, 0x1\nUMOV UR5, 0x1\n{LOAD} {text} {STORE}", [WORDS])


def test_the_stack_pointer_is_compared_with_its_limit() -> None:
    body = STACK.format("ISETP.GE.U32.AND P0, PT, R1, R6, PT")
    found, _ = run(f"{LOAD} {body} MOV R5, R4 {STORE}", [WORDS], local=0x20)
    assert (found == WORDS).all()
    with pytest.raises(MachineFault, match="trap"):  # a kernel whose cubin asks for less than it uses
        run(f"{LOAD} {body} MOV R5, R4 {STORE}", [WORDS], local=0x10)


def test_the_limit_of_the_stack_is_known_in_that_comparison_alone() -> None:
    for following in ("MOV R5, R6", "ISETP.GE.U32.AND P0, PT, R4, R6, PT", "ISETP.LT.U32.AND P0, PT, R1, R6, PT"):
        with pytest.raises(Unsupported, match="stack pointer"):
            run(f"{LOAD} {STACK.format(following)} MOV R5, R6 {STORE}", [WORDS], local=0x20)


def test_local_memory_holds_what_was_spilled() -> None:
    body = f"{LOAD} MOV R1, c[0x0][0x28]\nIADD3 R1, R1, -0x8, RZ\nSTL [R1], R4\nMOV R4, RZ\nLDL R5, [R1] {STORE}"
    found, _ = run(body, [WORDS], local=8)
    assert (found == WORDS).all()
    with pytest.raises(MachineFault, match="local"):
        run(body.replace("-0x8", "-0x40"), [WORDS], local=8)


def test_registers_are_kept_in_that_of_a_return_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """ptxas writes it for sm_120a, in the attention kernel of the catalogue."""
    body = "RPCMOV.32 Rpc.LO, R4\nMOV R5, 0x7\nRPCMOV.32 Rpc.HI, R5\nMOV R4, RZ\nRPCMOV.32 R5, Rpc.LO"
    values = np.arange(100, 132, dtype=np.uint32)
    assert (run(f"{LOAD}{body}{STORE}", [values])[0] == values).all()
    monkeypatch.setattr(control, "_RETURN_PLACES", {"Rpc.LO": 256, "Rpc.HI": 256})
    assert (run(f"{LOAD}{body}{STORE}", [values])[0] == 7).all()


@pytest.mark.parametrize(
    "text",
    ["RPCMOV Rpc.LO, R4", "RPCMOV.64 Rpc, R4", "RPCMOV.32 R5, R4", "RPCMOV.32 Rpc.LO, Rpc.HI", "RPCMOV.32 Rpc.LO, -R4",
     "RPCMOV.32 Rpc.MID, R4", "RPCMOV.32 Rpc.LO, UR4", "RPCMOV.32.FOO Rpc.LO, R4"],
)  # fmt: skip
def test_other_moves_of_a_return_address_are_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        run(f"{LOAD}{text}{STORE}", [np.zeros(32, np.uint32)])
