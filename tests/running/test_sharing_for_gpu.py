"""A GPU shows only the registers that LLVM chose: asm that is wrong with others fails there too, tried on the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.jobs import Artifacts, Job, Outcome
from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.load import LoadedCase
from ptxdiff.model.match import Domain
from ptxdiff.model.variants import ExpectedFailure
from ptxdiff.records.rules import check
from ptxdiff.references.formats import U32
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.replay import parse
from ptxdiff.running.run import run_again, run_item
from tests.support.running.scripted import Scripted

TEXT = "{ .reg .b32 t; mov.b32 t, $1; add.u32 $0, t, $2; xor.b32 $0, $0, $1; }"
"""Wrong only where the output has the register of the first input."""


def mixed(a: Any, b: Any) -> Any:
    return (a + b) % (1 << 32) ^ a


def on_device(job: Job) -> Outcome:
    """A kernel in which LLVM happened to choose registers of their own."""
    assert job.setup.context != "shared", "a GPU cannot choose registers"
    a, b = job.inputs["a"], job.inputs["b"]
    return Outcome("ran", outputs={"y": (a + b) ^ a}, evidence="hardware")


def item(constraints: str, text: str = TEXT, **fields: Any) -> Item:
    options = fields.pop("variant", {})
    case = Case(
        **{"inputs": {"a": U32, "b": U32}, "outputs": {"y": U32}, "reference": mixed, **fields},
        variants={"it": asm(text, constraints, pack=1, **options)},
    )
    return Item(LoadedCase(case, "case", "case", Path("case.py"), ""), "it", "sm_90a", "gpu")


def run(*arguments: Any, **fields: Any) -> ItemResults:
    return run_item(item(*arguments, **fields), Scripted(on_device), "quick")


def test_a_missing_early_clobber_fails_with_the_repair() -> None:
    found = run("=r,r,r")
    assert found.verdict == "fail"
    (failed,) = [r for r in found.results if r.verdict == "fail"]
    assert (failed.key.backend, failed.key.context) == ("gpu", "shared")
    assert failed.diagnosis == "missing early clobber"
    assert "$0 (output y) in the register of $1 (input a)" in failed.findings[0]
    assert "make the constraint of $0 '=&r'" in failed.message
    check(failed)


@pytest.mark.parametrize(
    ("constraints", "text"),
    [("=&r,r,r", TEXT), ("=r,r,r", "{ .reg .b32 t; add.u32 t, $1, $2; xor.b32 $0, t, $1; }")],
    ids=["early clobber", "written last"],
)
def test_right_asm_passes_without_further_results(constraints: str, text: str) -> None:
    found = run(constraints, text)
    assert found.verdict == "pass"
    assert {r.key.context for r in found.results} == {"straight"}


def test_inputs_outside_the_domain_accuse_nobody() -> None:
    """With the output in the register of b, the result is wrong only for a other than 0."""
    text = "{ .reg .b32 t; mov.b32 t, $2; or.b32 $0, $1, $2; or.b32 $0, $0, $2; }"
    text = text.replace("or.b32 $0, $1, $2", "xor.b32 $0, $1, t").replace("or.b32 $0, $0, $2", "add.u32 $0, $0, $2")
    zero = Domain("a is zero", lambda v: v["a"] == 0)
    device = Scripted(lambda job: Outcome("ran", outputs={"y": (job.inputs["a"] ^ job.inputs["b"]) + job.inputs["b"]}))
    for where, verdict in ({}, "fail"), ({"where": zero}, "pass"):
        case = item("=r,r,r", text, reference=lambda a, b: ((a ^ b) + b) % (1 << 32), **where)
        assert run_item(case, device, "quick").verdict == verdict


def test_a_fault_that_the_case_declares_is_left_to_it() -> None:
    declared = ExpectedFailure("missing early clobber", context=("shared",), reason="the source's constraints")
    assert run("=r,r,r", variant={"expected_failure": declared}).verdict == "pass"


def test_a_machine_without_a_gpu_accuses_nobody() -> None:
    found = run_item(item("=r,r,r"), Scripted(on_device, reason="no device"), "quick")
    assert found.verdict == "not run"


def test_asm_that_the_emulator_does_not_run_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxdiff.backends.emulator import EmulatorBackend

    monkeypatch.setattr(EmulatorBackend, "run", lambda self, job: Outcome("error", "what it does not know"))
    found = run("=r,r,r")
    assert found.verdict == "pass"
    assert any("were not tried" in note and "what it does not know" in note for note in found.results[0].notes)


def test_inputs_that_the_emulator_runs_are_tried_though_it_does_not_run_others(monkeypatch: pytest.MonkeyPatch) -> None:
    from ptxdiff.backends.emulator import EmulatorBackend

    right, begun = EmulatorBackend.run, list[str]()

    def run_later(self: EmulatorBackend, job: Job) -> Outcome:
        begun.append(job.setup.context)
        return Outcome("error", "what it does not know") if len(begun) == 1 else right(self, job)

    monkeypatch.setattr(EmulatorBackend, "run", run_later)
    found = run("=r,r,r")
    assert found.verdict == "fail"
    begun.clear()
    late = "{ .reg .b32 t; mov.b32 t, $1; add.u32 $0, t, $2; xor.b32 $0, $0, t; and.b32 t, $1, 0; or.b32 $0, $0, t; }"
    found = run("=r,r,r", late)  # it reads an input late, and nothing comes of it
    assert found.verdict == "pass"
    assert len(begun) > 1
    (note,) = [note for note in found.results[0].notes if "were not tried" in note]
    assert "were not tried on the inputs " in note
    assert "what it does not know" in note


def test_the_failure_is_found_by_its_key_and_by_its_token() -> None:
    it, backend = item("=r,r,r"), Scripted(on_device)
    failed = next(r for r in run_item(it, backend, "quick").results if r.verdict == "fail")
    _, outcome = run_again(it, backend, "quick", failed.key)
    assert outcome.findings == failed.findings
    (again,) = run_item(it, backend, "quick", replay=parse(failed.replay, it.loaded.case)).results
    assert (again.verdict, again.findings) == ("fail", failed.findings)


@triton.jit
def in_triton(a, b):
    return a


@pytest.mark.parametrize(("constraints", "verdict"), [("=r,r,r", "fail"), ("=&r,r,r", "pass")])
def test_asm_within_a_triton_function_is_tried_alone(constraints: str, verdict: str) -> None:
    """A GPU's outcome names the blocks that its compiler got."""
    call = AsmCall(TEXT, constraints, inputs=("i32", "i32"), outputs=("i32",), place="case.py:7")
    device = Scripted(lambda job: replace(on_device(job), artifacts=Artifacts(asm=(call,))))
    case = Case(inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=mixed, variants={"it": plain(in_triton)})
    found = run_item(Item(LoadedCase(case, "case", "case", Path(__file__), ""), "it", "sm_90a", "gpu"), device, "quick")
    assert found.verdict == verdict
    assert any("make the constraint of $0 '=&r'" in f for r in found.results for f in r.findings) == (verdict == "fail")
