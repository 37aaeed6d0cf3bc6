"""What ptxas writes before each kernel for sm_87 decides no bit: it teaches nothing, and no verdict waits for it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.emulator import UndefinedBits
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import THREADS, MachineCodeInterpreter, NotRead
from ptxdiff.fuzz.judge import interpreted_proof
from ptxdiff.sass.cubin import MachineCode
from ptxdiff.sass.prologue import prologue
from tests.support.sass.assembly import LOAD, STORE, run, written
from tests.support.sass.ptxas_releases import release

WORDS = np.arange(32, dtype=np.uint32)
_CHAIN = "\n".join(f"BMOV.32.CLEAR B{k + 1}, B{k}" for k in range(15))
PROLOGUE = f"""
ISETP.NE.U32.AND P0, PT, RZ, UR2, PT
@P0 BRA `(.L_x_9)
BMOV.32 B0, 0xffffffff
{_CHAIN}
BMOV.32 B15, 0x0
UMOV UR2, 0x1
.L_x_9:
"""
BODY = f"{LOAD} IADD3 R5, R4, 0x1, RZ {STORE}"


def _prologue(body: str) -> frozenset[int]:
    return prologue(MachineCode("kernel", "sm_87", written(body), (), 0x160, {}, 0, 0))


def test_moves_of_a_prologue_are_none_of_the_kernel() -> None:
    """It runs with zeros in UR2, and is skipped with other bits: the bytes are the same."""
    found, ran = run(PROLOGUE + BODY, [WORDS])
    assert (found == WORDS + 1).all()
    assert ran.runs == 3
    assert not any(form.startswith("BMOV") for form in ran.moves)
    assert any(form.startswith("STG") for form in ran.moves)
    assert _prologue(PROLOGUE + BODY) == frozenset(range(0, 20 * 16, 16))


@pytest.mark.parametrize(
    ("right", "other"),
    [
        ("BMOV.32 B15, 0x0", "BMOV.32 B15, 0x1"),
        ("B4, B3", "B4, B5"),
        ("0xffffffff", "0xf0"),
        ("UR2, 0x1", "UR3, 0x1"),
        ("@P0 BRA", "@!P0 BRA"),
        ("@P0 BRA", "BRA"),
        ("RZ, UR2", "RZ, UR3"),
        ("UMOV UR2, 0x1\n.L_x_9:", ".L_x_9:\nUMOV UR2, 0x1"),
    ],
)
def test_other_instructions_are_no_prologue(right: str, other: str) -> None:
    assert right in PROLOGUE
    assert _prologue(PROLOGUE.replace(right, other, 1) + BODY) == frozenset()


def test_what_is_no_prologue_must_be_taught() -> None:
    _, ran = run(PROLOGUE.replace("BMOV.32 B15, 0x0", "BMOV.32 B15, 0x1", 1) + BODY, [WORDS])
    assert {"BMOV.32 B,int", "BMOV.32.CLEAR B,B"} <= ran.moves.keys()
    _, ran = run(f"{PROLOGUE}{LOAD} BMOV.32 B3, 0xf0\nBMOV.32 R6, B3\nIADD3 R5, R6, R4, RZ {STORE}", [WORDS])
    assert "BMOV.32 B,int" in ran.moves
    assert "BMOV.32.CLEAR B,B" not in ran.moves


def test_code_that_is_entered_again_is_no_prologue() -> None:
    assert _prologue(f".L_x_7:\n{PROLOGUE}{BODY} RET.REL.NODEC R4 `(.L_x_7)")  # the place from which R4 counts
    assert _prologue(f".L_x_7:\n{PROLOGUE}{BODY} CALL.REL.NOINC `(.L_x_7)") == frozenset()
    into = PROLOGUE.replace("BMOV.32 B15, 0x0", ".L_x_8:\nBMOV.32 B15, 0x0")
    assert _prologue(into + BODY)
    assert _prologue(f"{into} @P1 BRA `(.L_x_8)\n{BODY}") == frozenset()


@pytest.mark.parametrize("reads", ["SEL R5, R4, RZ, P0", "MOV R5, UR2"])
def test_bits_that_it_leaves_are_undefined(reads: str) -> None:
    with pytest.raises(UndefinedBits):
        run(f"{PROLOGUE}{LOAD} {reads} {STORE}", [np.full(32, 7, np.uint32)])


@pytest.mark.parametrize("version", ["12.8", "12.9", "13.5"])
def test_ptxas_is_accused_on_sm_87(version: str) -> None:
    """A shift by a converted float."""
    path = release(version)
    faults = json.loads((Path(__file__).parents[1] / "fuzz" / "ptxas_faults.json").read_text())
    fault = next(f for f in faults if f.get("mechanism") == "shift by a converted float")
    text = re.sub(r"\.target sm_\w+", ".target sm_87", fault["text"])
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
    one = assembler(path, 3)
    cubin = one.assemble(text, "sm_87").cubin
    assert prologue(MachineCodeInterpreter.code(cubin, "p0"))
    (found,) = MachineCodeInterpreter("sm_87").ran(cubin, [inputs])
    assert not isinstance(found, NotRead)
    assert found[0][0].tolist() != fault["expected"]
    doubt, _ = interpreted_proof(text, "sm_87", one, inputs, 0)
    assert doubt == ""
