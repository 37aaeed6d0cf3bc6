"""Who is accused: ptxas only with a proof, and nobody for what PTX leaves open or what no form is believed for."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.backends import create
from ptxdiff.backends.first_difference import doubt_of_forms, doubt_of_ptx, nan_on_the_way
from ptxdiff.conformance import taught
from ptxdiff.emulator import Buffer, load_kernel
from ptxdiff.emulator.kernel.trace import Launched, followed
from ptxdiff.model.compilers import TRITONS_LEVEL
from ptxdiff.model.load import load
from ptxdiff.running import ptxas_fault
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from ptxdiff.sass import rows
from ptxdiff.sass.text import ScheduleDependence
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.targets import assembler, tool

pytest.importorskip("torch")
pytest.importorskip("triton")

from tests.support.sass.accused_case import CASE, TARGET

DECLARED = 'expected_failure=PtxasFailure(assemblers={"ptxas 12.9 -O3": "wrong"}, reason="pytorch 190973")'


@pytest.fixture(scope="module")
def faulty():
    """A ptxas that drops the negation."""
    path = str(tool("ptxas"))
    found = assembler_at(path, TRITONS_LEVEL)
    if not found.version.startswith("12.9"):
        pytest.skip(f"the ptxas that Triton carries for older targets is {found.version}, not 12.9")
    return found


@pytest.fixture(autouse=True)
def quickly(monkeypatch):
    """Reduce for a moment only."""
    monkeypatch.setattr(ptxas_fault, "REDUCING", 2.0)


def _run(tmp_path, by, expected="", dump=None):
    path = tmp_path / "case.py"
    path.write_text(CASE.replace("EXPECTED", expected))
    (loaded,) = load(path)
    item = Item(loaded, "maximum", TARGET, "sass")
    return run_item(item, create("sass"), "quick", assemblers=(by,), stop=True, dump=dump).results


@pytest.mark.slow
def test_a_fault_is_proved_as_on_a_gpu(tmp_path, faulty) -> None:
    """pytorch/pytorch issue 190973: VIMNMX3 drops a negation."""
    found = _run(tmp_path, faulty, dump=tmp_path)[-1]
    assert (found.verdict, found.diagnosis) == ("fail", "ptxas"), found.words
    assert found.ptxas == faulty.label
    assert found.different > 0
    assert found.offenders
    assert found.evidence == "model"
    assert f"{faulty.name} is at fault" in found.words
    for part in ("no GPU has confirmed it", "VIMNMX3", "values first differ at", "the weakest form that ran is",
                 "as machine code on the CPU", "developer.nvidia.com/bugs"):  # fmt: skip
        assert part in found.message
    (ptx,) = tmp_path.glob("*.ptx")
    assert "neg.s32" in ptx.read_text()


@pytest.mark.slow
def test_a_proved_fault_can_be_declared(tmp_path, faulty) -> None:
    found = _run(tmp_path, faulty, DECLARED)
    assert [r.expected_failure for r in found if r.verdict == "fail"] == [True]


def test_the_right_ptxas_passes(tmp_path) -> None:
    right = assembler_at(assembler(TARGET).path, TRITONS_LEVEL)
    if right.version.startswith(("12.", "13.0", "13.1", "13.2", "13.3")):
        pytest.skip(f"ptxas {right.version} has the fault")
    results = _run(tmp_path, right)
    assert {r.verdict for r in results} == {"pass"}
    assert any("the weakest form that ran" in r.weakest for r in results)


# False accusations ------------------------------------------------------------------------------------------------


def _not_accused(results, *words: str) -> None:
    """No result is a failure. Those with the PTX's bits pass, on other inputs of the plan."""
    assert "not run" in {r.verdict for r in results} <= {"not run", "pass"}
    assert not any(r.diagnosis for r in results)
    unsettled = [r.words for r in results if r.verdict == "not run"]
    for word in ("unsettled", *words):
        assert word in unsettled[-1]


def _ledger(tmp_path, monkeypatch, name: str, without: str) -> None:
    path = getattr(taught, name)
    kept = [line for line in path.read_text().splitlines() if not json.loads(line)["form"].startswith(without)]
    (tmp_path / "ledger.jsonl").write_text("\n".join(kept))
    monkeypatch.setattr(taught, name, tmp_path / "ledger.jsonl")


def test_a_form_that_is_not_taught_accuses_nobody(tmp_path, faulty, monkeypatch) -> None:
    _ledger(tmp_path, monkeypatch, "PATH", "VIMNMX3")
    _not_accused(_run(tmp_path, faulty), "VIMNMX3", "not taught")


def test_a_move_that_is_not_taught_accuses_nobody(tmp_path, faulty, monkeypatch) -> None:
    _ledger(tmp_path, monkeypatch, "MOVES", "STG")
    _not_accused(_run(tmp_path, faulty), "STG.E", "ptxas is not accused", "values first differ at")


def test_a_wrong_row_accuses_nobody(tmp_path, monkeypatch) -> None:
    """The machine code is right, and the definition of an instruction that only -O3 uses is wrong."""
    right = assembler_at(assembler(TARGET).path, TRITONS_LEVEL)
    if "VIMNMX3" not in rows.ROWS:
        pytest.skip("no such row")
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _first)
        for r in rows.ROWS["VIMNMX3"]
    ]
    monkeypatch.setitem(rows.ROWS, "VIMNMX3", planted)
    taught._digest_of_name.cache_clear()
    taught._standing.cache_clear()
    try:
        results = _run(tmp_path, right)
    finally:
        monkeypatch.undo()
        taught._digest_of_name.cache_clear()
        taught._standing.cache_clear()
    if results[-1].verdict == "pass":
        pytest.skip("this ptxas does not use VIMNMX3 here")
    _not_accused(results, "not taught")


def _first(a: int, b: int, c: int, kind: int = 0, **_: int) -> int:
    return a


def test_without_a_right_level_nobody_is_accused(tmp_path, faulty, monkeypatch) -> None:
    monkeypatch.setattr(ptxas_fault, "candidates", lambda *_: [])
    _not_accused(_run(tmp_path, faulty), "no other level and no other ptxas")


def test_bits_that_the_case_accepts_accuse_nobody(tmp_path, faulty, monkeypatch) -> None:
    monkeypatch.setattr(ptxas_fault.PtxasTrial, "passes", lambda *_: True, raising=False)
    path = tmp_path / "case.py"
    path.write_text(CASE.replace("EXPECTED", ""))
    trial = ptxas_fault.PtxasTrial(create("sass"), (faulty,), lambda *_: True, None)
    (loaded,) = load(path)
    from ptxdiff.running.run import jobs

    backend = create("sass")
    _, job = next(jobs(Item(loaded, "maximum", TARGET, "sass"), backend, "quick"))
    outcome = backend.run(ptxas_fault.with_assembler(job, faulty))
    assert outcome.suspected
    assert trial.settled(job, outcome) is outcome


def _kernel(body: str, target: str = TARGET):
    return load_kernel(
        f".version 8.7\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{\n"
        ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %p, %q;\n"
        "ld.param.u64 %p, [x]; ld.param.u64 %q, [y]; ld.global.f32 %f1, [%p]; ld.global.f32 %f2, [%p+4];\n"
        f"{body}\nst.global.f32 [%q], %f3;\nret;\n}}",
        "k",
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("mul.f32 %f3, %f1, %f2; add.f32 %f3, %f3, %f1;", "fuse"),
        ("div.full.f32 %f3, %f1, %f2;", "approximate"),
        ("sqrt.approx.f32 %f3, %f1;", "approximate"),
        ("atom.global.add.f32 %f3, [%q], %f1;", "order of atom"),
        ("red.global.add.f32 [%q], %f1; mov.f32 %f3, %f1;", "order of red"),
    ],
)
def test_what_ptx_leaves_open_accuses_nobody(body: str, words: str) -> None:
    assert words in doubt_of_ptx(_kernel(body), fusion=True)


@pytest.mark.parametrize("body", ["mul.rn.f32 %f3, %f1, %f2; add.rn.f32 %f3, %f3, %f1;", "div.rn.f32 %f3, %f1, %f2;"])
def test_what_ptx_defines_may_accuse(body: str) -> None:
    assert doubt_of_ptx(_kernel(body), fusion=True) == ""


def test_without_fusion_a_product_and_a_sum_may_accuse() -> None:
    assert doubt_of_ptx(_kernel("mul.f32 %f3, %f1, %f2; add.f32 %f3, %f3, %f1;"), fusion=False) == ""


@pytest.mark.parametrize(("values", "nan"), [((0.0, np.inf), True), ((2.0, 3.0), False)])
def test_a_nan_on_the_way_accuses_nobody(values: tuple[float, float], nan: bool) -> None:
    kernel = _kernel("mul.rn.f32 %f4, %f1, %f2; mov.b32 %r1, %f4; xor.b32 %r1, %r1, 1; mov.b32 %f3, %r1;")
    buffers = [Buffer(np.array(values, np.float32), "x"), Buffer(np.zeros(1, np.float32), "y")]
    trace = followed(Launched(kernel, buffers, (1, 1, 1), (32, 1, 1)), 0)
    assert ("mul.rn.f32" in nan_on_the_way(trace)) == nan


def test_an_approximate_instruction_of_another_generation_accuses_nobody() -> None:
    report = run_ptx(
        _kernel_text("rcp.rn.f32 %f3, %f1;"), 1, 32, np.ones(32, np.float32), np.zeros(32, np.float32), level="sass"
    )
    assert "generation" in doubt_of_forms(report, TARGET)


def _kernel_text(body: str) -> str:
    return (
        f".version 8.7\n.target {TARGET}\n.address_size 64\n.visible .entry k(.param .u64 x, .param .u64 y) {{\n"
        ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %p, %q, %o; .reg .pred %c;\n"
        "mov.u32 %r0, %tid.x; mul.wide.u32 %o, %r0, 4;\n"
        "ld.param.u64 %p, [x]; ld.param.u64 %q, [y]; add.u64 %p, %p, %o; ld.global.f32 %f1, [%p];\n"
        f"{body}\nadd.u64 %q, %q, %o;\nst.global.f32 [%q], %f3;\nret;\n}}"
    )


def test_bits_that_depend_on_the_schedule_are_a_finding_of_their_own() -> None:
    """Both sides of a branch store to one word; which comes last is the schedule's choice."""
    body = (
        "and.b32 %r1, %r0, 1; setp.eq.u32 %c, %r1, 0; @%c bra EVEN;\n"
        "st.global.u32 [%q+128], 1; bra DONE;\nEVEN: st.global.u32 [%q+128], 2; DONE: mov.f32 %f3, %f1;"
    )
    with pytest.raises(ScheduleDependence, match="order in which the sides of a branch run"):
        run_ptx(_kernel_text(body), 1, 32, np.ones(32, np.float32), np.zeros(64, np.float32), level="sass", opt=0)
