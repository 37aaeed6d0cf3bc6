"""The tables of which ptxas is wrong: what a cell counts, what a journal keeps, and how a program becomes another's."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxdiff.jobs import Outcome
from ptxdiff.triton.builds import NoTriton
from ptxdiff.triton.targets import assembler as bundled
from tests.support.sass import catalogue_launches, faults_page, program_runs, public_programs
from tests.support.sass.program_runs import Program, assembled, result
from tests.support.sass.ptxas_releases import release

COUNTED = """.version 8.8
.target sm_103
.address_size 64
.visible .entry k(.param .u64 in_ptr, .param .u64 out_ptr, .param .u32 in_n)
{
.reg .b32 %r<4>; .reg .b64 %d<3>; .reg .pred %p;
ld.param.u64 %d0, [in_ptr]; ld.param.u64 %d1, [out_ptr]; ld.param.u32 %r0, [in_n];
mov.u32 %r1, %tid.x; mul.wide.u32 %d2, %r1, 4; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
ld.global.u32 %r2, [%d0]; BODY st.global.u32 [%d1], %r3;
ret;
}
"""


@pytest.fixture
def folder(tmp_path):
    """A folder of one reproducer, with its launch in a CUDA file."""
    own = tmp_path / "m1-sum"
    own.mkdir()
    (own / "reduced.ptx").write_text(COUNTED.replace("BODY", "add.u32 %r3, %r2, %r0;"))
    (own / "repro.cu").write_text("constexpr uint32_t kN = 7u;\nconstexpr uint32_t kInput0 = 0x5u;\n")
    (own / "NOTES.md").write_text("It stores `0x0000000c`, and 12 was right in 13.5.37.")
    return tmp_path


def entry(program, became, release="13.5.37", target="sm_90a", **more):
    return {"source": "public", "program": program, "ptxas": release, "target": target, "became": became, **more}


def test_a_reproducer_has_the_values_of_its_launch(folder):
    (program,) = public_programs.programs(folder)
    assert (program.name, program.entry, program.values["in_n"]) == ("m1-sum", "k", 7)
    assert program.values["in_ptr"][:2].tolist() == [5, 0]
    assert program.named == {12}
    with pytest.raises(FileNotFoundError, match=r"reduced\.ptx"):
        public_programs.programs(folder / "m1-sum")


def test_a_program_for_another_target_has_the_version_that_it_needs(folder):
    (program,) = public_programs.programs(folder)
    assert program.on("sm_80").text.startswith(".version 8.8\n.target sm_80\n")
    assert program.on("sm_110a").text.startswith(".version 9.0\n.target sm_110a\n")


def test_a_cell_counts_programs_and_a_target_without_any_says_so():
    some = [entry("a", "wrong"), entry("b", "right"), entry("c", "refused"), entry("a", "refused", target="sm_80"),
            entry("a", "right", "12.9.86"), entry("b", "schedule", "12.9.86")]  # fmt: skip
    assert faults_page.table(some, "public") == [
        "Each cell: wrong / by schedule / right.", "", "| ptxas | sm_90a | sm_80 |", "|---|---|---|",
        "| 12.9.86 | 0 / 1 / 1 | n/a |", "| 13.5.37 | **1** / 0 / 1 | n/a |",
    ]  # fmt: skip


def test_reasons_are_alike_whatever_the_registers_are():
    some = [entry("a", "unread", words="VIMNMX R0, P1"), entry("a", "unread", "12.9.86", words="VIMNMX R7, P0")]
    assert faults_page.reasons(some, "public", ["unread"]) == [
        "- `a` unread (sm_90a: 12.9.86, 13.5.37): VIMNMX R, P",
    ]


def test_a_journal_is_gone_on_with(folder, tmp_path, monkeypatch):
    try:
        path = bundled("sm_90a").path
    except NoTriton as error:
        pytest.skip(str(error))
    units = [u for u in faults_page.units([path], ["sm_90a"], str(folder), False, ()) if u.source == "public"]
    with open(tmp_path / "journal", "a") as journal:
        (first,) = faults_page.run(units, [], journal, 1)
    assert first["became"] == "right"
    kept = [json.loads(line) for line in (tmp_path / "journal").read_text().splitlines()]
    assert kept == [first]
    monkeypatch.setattr(faults_page, "entries", lambda unit: pytest.fail(f"{unit} was run again"))
    assert faults_page.run(units, kept, None, 1) == []


@pytest.mark.parametrize(
    ("outcome", "became"),
    [
        (Outcome("error", "ptxas 13.3.73 -O3 failed with status 255: PTX 8.8 does not support sm_110a"), "refused"),
        (Outcome("error", "ptxas 13.3.73 -O3 ended by signal 11", ended="crashed"), "crashed"),
        (Outcome("unsupported", "ptxas 13.3.73 -O3 ended by signal 11", ended="crashed"), "crashed"),
        (Outcome("error", "ptxas 13.3.73 -O3 did not end", ended="hung"), "crashed"),
        (Outcome("error", "the kernel has no parameter x"), "open"),
        (Outcome("unsupported", "sm_80 has no mma of 8-bit floats"), "refused"),
    ],
)
def test_a_launch_whose_code_ptxas_refuses_is_no_crash(monkeypatch, outcome, became):
    monkeypatch.setattr(catalogue_launches, "_ran", lambda *given: outcome)
    assert catalogue_launches._result(None, None, "ptxas").became == became


def test_what_ptx_leaves_undefined_accuses_nobody():
    try:
        path = bundled("sm_90a").path
    except NoTriton as error:
        pytest.skip(str(error))
    words = np.arange(64, dtype=np.uint32)
    values = {"in_ptr": words, "out_ptr": np.zeros(64, np.uint32)}
    program = Program("undefined", COUNTED.replace("BODY", ""), "k", 32, values).on("sm_90a")
    assert result(program, path, "sm_90a").became == "open"


def test_a_reported_fault_is_wrong():
    path = release("12.8", "12.9", "13.0", "13.1", "13.2", "13.3")
    (program,) = (p for p in faults_page.programs() if p.name == "pytorch/pytorch 190973")
    found = result(program.on("sm_100a"), path, "sm_100a")
    assert (found.became, found.words, found.differs) == ("wrong", "", True)


@pytest.mark.slow
def test_programs_are_assembled_together_and_one_that_is_refused_alone(monkeypatch):
    try:
        path = bundled("sm_90a").path
    except NoTriton as error:
        pytest.skip(str(error))
    values = {"in_ptr": np.arange(64, dtype=np.uint32), "out_ptr": np.zeros(64, np.uint32), "in_n": 3}
    bodies = [f"{opcode} %r3, %r2, %r0;" for opcode in ("add.u32", "mul.lo.u32", "xor.b32", "add.none")]
    some = [Program(b, COUNTED.replace("BODY", b), "k", 32, values).on("sm_90a") for b in bodies]
    program_runs.assemble_ahead(some, "sm_90a", path)
    calls = []
    monkeypatch.setattr(program_runs, "assembled", lambda *given: calls.append(given) or assembled(*given))
    assert [result(p, path, "sm_90a").became for p in some] == ["right", "right", "right", "refused"]
    assert len(calls) == 2  # the two programs of the half that was refused


def test_a_page_gets_the_table_at_its_mark():
    page = "a\n<!-- table of public -->\nold\n<!-- end -->\nb\n<!-- table of programs -->\nkept\n<!-- end -->\n"
    assert faults_page._with(page, "public", ["| x |"]) == page.replace("old", "| x |")
