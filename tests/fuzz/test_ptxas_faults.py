"""Programs that ptxas compiled wrongly: the emulator gives the bits that the PTX means, not those of ptxas.

`ptxas_faults.json` has each program as the fuzzer wrote it: the reduced program, one thread's inputs, the bits that the
ISA requires, and the bits of the machine code of `assemblers`. The machine code of `right` gave the required bits. The
program of "negated sum with a carry" was cut by hand.
`ran_on` is what ran the machine code: an H200, if it is missing, an H100, or the CPU. `mechanism` names what ptxas does
wrong; `tests.support.sass.fault_reports` describes it.
"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.fuzz.execution import THREADS, emulated
from ptxdiff.fuzz.files import report
from tests.support.sass import fault_reports

FAULTS = json.loads(Path(__file__).with_name("ptxas_faults.json").read_text())


@pytest.mark.parametrize("fault", FAULTS, ids=[f["skeleton"] for f in FAULTS])
def test_the_emulator_gives_the_bits_that_the_program_means(fault):
    inputs = np.tile(np.array(fault["inputs"], np.uint32), (THREADS, 1))
    given = emulated(fault["text"], "p0", inputs)
    assert given[0].tolist() == fault["expected"]
    assert fault["expected"] != fault["given"]
    assert fault["right"]


def test_every_fault_of_13_5_has_a_mechanism_and_a_report():
    live = [f for f in FAULTS if "ptxas 13.5 -O3" in f["assemblers"]]
    assert {f["mechanism"] for f in live} == set(fault_reports.MECHANISMS)
    page = fault_reports.PAGE.read_text(encoding="utf-8")
    for name, fault in fault_reports.smallest(FAULTS).items():
        assert f"## {name.capitalize()}" in page
        assert fault["text"].strip() in page
        assert f"`{fault['given'][differing(fault)]:#010x}`" in page


def differing(fault):
    return next(k for k, (a, b) in enumerate(zip(fault["expected"], fault["given"], strict=True)) if a != b)


def test_a_report_has_what_nvidia_needs():
    (fault,) = [f for f in FAULTS if f["skeleton"] == "mul.lo.s32 mul.lo.s32 add.sat.s32"]
    finding = fault_reports.finding(fault)
    code = (
        "        /*0010*/                   MOV R1, R2 ;\n /* 0x1 */\n        /*0020*/  EXIT ;\n        /*0030*/  NOP;"
    )
    text = report(finding, {"ptxas 13.5 -O3": code}, mechanism="It forgets.")
    for words in (
        "# ptxas 13.5 -O3, sm_90a: wrong bits of mul.lo.s32 mul.lo.s32 add.sat.s32", "It forgets.",
        "ptxas -O3 --gpu-name=sm_90a program.ptx -o wrong.cubin",
        "ptxas -O0 --gpu-name=sm_90a program.ptx -o right.cubin",
        "| output by the PTX ISA (ptxas 13.5 -O0 gives it) | `0x00000000` | `0x80000000` |", "ran on a GPU",
        fault["text"].strip(), "MOV R1, R2 ;\nEXIT ;\n```",
    ):  # fmt: skip
        assert words in text
    assert "no GPU ran it" in report(replace(finding, interpreted=True), {})
    crash = replace(finding, kind="crashed", words="ended by signal 11", inputs=(), expected=(), given=(), right=())
    assert "ended by signal 11" in report(crash, {})
    assert "right.cubin" not in report(crash, {})


def test_the_table_names_versions_and_levels():
    assert {a for f in FAULTS for a in f["assemblers"]} == {"ptxas 12.8 -O3", "ptxas 13.5 -O3"}
    assert {a for f in FAULTS for a in f["right"]} == {"ptxas 12.8 -O0", "ptxas 13.5 -O0", "ptxas 13.5 -O3"}
