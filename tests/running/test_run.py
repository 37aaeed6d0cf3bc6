"""Items, from a plan to results: an item's faults affect only its own verdict, and the run continues."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ptxdiff import Case, ExpectedFailure, asm, only
from ptxdiff.backends import create
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.load import LoadedCase, load
from ptxdiff.records import Key, Result
from ptxdiff.references.formats import U8
from ptxdiff.running import run as runner
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item
from tests.support.case_sources import CONSTRAINTS
from tests.support.running.scripted import Scripted

WORDS = {
    "one too many": r"constraint|operand",
    "one too few": r"constraint|operand",
    "read and write": r"\+r",
    "no such operand": r"\$7|operand number",
    "tensor as immediate": r"'n'|immediate|constant",
}


@pytest.mark.parametrize("backend", ["emulator", "assembler"])
def test_wrong_constraints_are_readable_verdicts_and_the_run_continues(run_cases, backend):
    result = run_cases(f"--ptx-backend={backend}", "--ptx-records=run.jsonl", constraints=CONSTRAINTS)
    result.assert_outcomes(passed=1, failed=5)
    from ptxdiff.records import read

    found = {r.key.variant: r for r in read(Path("run.jsonl")).results}
    assert found["right"].verdict == "pass"
    for variant, pattern in WORDS.items():
        assert found[variant].verdict == "error"
        assert "\n" not in found[variant].words
        assert len(found[variant].words) < 300
        import re

        assert re.search(pattern, found[variant].words), found[variant].words


def flip(job: Job) -> Outcome:
    return Outcome("ran", outputs={"y": job.inputs["x"] ^ 1}, evidence="hardware")


def item(target: str = "sm_90a", **fields: Any) -> Item:
    variant = asm("xor.b32 $0, $1, 0x01010101;", constraints="=r,r", pack=4)
    case = Case(
        **{
            "inputs": {"x": U8},
            "outputs": {"y": U8},
            "reference": lambda x: x ^ 1,
            "variants": {"v": dataclasses.replace(variant, **fields.pop("variant", {}))},
            **fields,
        }
    )
    return Item(LoadedCase(case, "flip", "case", Path("flip.py"), ""), "v", target, "gpu")


def run(backend: Scripted, **fields: Any) -> ItemResults:
    return run_item(item(**fields), backend, "quick")


def test_right_bits_pass_and_every_key_is_there_once():
    found = run(Scripted(flip))
    assert found.verdict == "pass"
    assert {r.evidence for r in found.results} == {"hardware"}
    assert len({r.key for r in found.results}) == len(found.results) > 5


def test_one_wrong_bit_in_one_setup_fails_the_item():
    def answer(job: Job) -> Outcome:
        outputs = np.array(job.inputs["x"] ^ 1)
        if job.setup.shape == (1009,):
            outputs[1000] ^= 4
        return Outcome("ran", outputs={"y": outputs})

    found = run(Scripted(answer))
    assert found.verdict == "fail"
    assert {r.key.shape for r in found.results if r.verdict == "fail"} == {"1009"}


def test_a_finding_fails_though_every_bit_is_right():
    found = run(Scripted(lambda job: dataclasses.replace(flip(job), findings=("4 bytes outside y were overwritten",))))
    assert found.verdict == "fail"
    assert "4 bytes outside y were overwritten" in found.results[0].message


def test_nothing_compared_is_no_pass():
    assert run(Scripted(lambda job: Outcome("ran"))).verdict == "fail"


def test_a_machine_without_the_backend_gives_not_run():
    found = run(Scripted(flip, reason="no device"))
    assert (found.verdict, found.results[0].words) == ("not run", "no device")


@pytest.mark.parametrize(
    ("accepted", "verdict", "words"),
    [
        (True, "fail", "unsupported on sm_90a, where it must work by targets= (without targets=: everywhere): no e2m1"),
        (False, "error", "no target accepts this asm: no e2m1"),
        (None, "fail", "unsupported on sm_90a"),
    ],
)
def test_unsupported_is_a_failure_on_declared_targets(monkeypatch, accepted, verdict, words):
    monkeypatch.setattr(runner, "accepted_somewhere", lambda job, policy: accepted)
    found = run(Scripted(lambda job: Outcome("unsupported", "no e2m1")))
    assert found.verdict == verdict
    assert found.results[0].words.startswith(words)
    assert len(found.results) == 1, "the rest of the plan would only repeat it"


def test_unsupported_is_accepted_outside_the_declared_targets():
    found = run(Scripted(lambda job: Outcome("unsupported", "no e2m1")), targets=only("sm_100a"))
    assert (found.verdict, found.results[0].words) == ("unsupported", "no e2m1")


@pytest.mark.parametrize("status", ["ran", "assembled"])
def test_a_declared_refusal_that_does_not_occur_fails(status):
    found = run(Scripted(lambda job: dataclasses.replace(flip(job), status=status)), refused=only("sm_90a"))
    assert found.verdict == "fail"
    assert "declared in refused=" in found.results[0].words


def test_an_error_ends_the_item_and_outweighs_passes():
    def answer(job: Job) -> Outcome:
        return Outcome("error", "the device is gone") if job.setup.context == "loop" else flip(job)

    found = run(Scripted(answer), carry={"y": "x"})
    assert found.verdict == "error"
    assert [r.verdict for r in found.results].count("error") == 1


def test_a_fault_of_the_harness_is_kept_as_an_error_with_its_traceback():
    found = run(Scripted(lambda job: {}["missing"]))
    assert found.verdict == "error"
    assert found.results[0].words.startswith("KeyError: 'missing' (test_run.py:")
    assert "Traceback" in found.results[0].message


def test_a_loop_must_equal_straight_runs():
    def answer(job: Job) -> Outcome:
        steps = job.setup.steps
        return Outcome("ran", outputs={"y": job.inputs["x"] ^ (steps & 1) ^ (2 if steps > 1 else 0)})

    found = run(Scripted(answer), carry={"y": "x"})
    failed = [r for r in found.results if r.verdict == "fail"]
    assert {r.key.context for r in failed} == {"loop"}
    assert "the same variant applied 2 times straight" in failed[0].message
    assert "steps=2" in failed[0].replay


@pytest.mark.parametrize("wrong", [1, 2, 3])
def test_a_loop_must_equal_straight_runs_after_each_of_its_steps(wrong):
    """A fault that cancels, for example after an even number of iterations, is still a fault."""

    def answer(job: Job) -> Outcome:
        steps = job.setup.steps
        return Outcome("ran", outputs={"y": job.inputs["x"] ^ (steps & 1) ^ (4 if steps == wrong else 0)})

    backend = Scripted(lambda job: answer(job) if job.setup.context == "loop" else flip(job))
    failed = [r for r in run(backend, carry={"y": "x"}).results if r.verdict == "fail"]
    assert {r.key.context for r in failed} == {"loop"}
    assert f"the same variant applied {wrong} time" in failed[0].message


EXPECTED = {
    "variant": {"expected_failure": ExpectedFailure("missing early clobber", context=("shared", "loop"))},
    "carry": {"y": "x"},
}


def loops_wrong(job: Job) -> Outcome:
    return Outcome("ran", outputs={"y": job.inputs["x"] ^ (2 if job.setup.context == "loop" else 1)})


def test_an_expected_failure_with_its_diagnosis_is_no_failure(monkeypatch):
    monkeypatch.setattr(runner, "diagnose", lambda job, outcome: "missing early clobber")
    found = run(Scripted(loops_wrong), **EXPECTED)
    assert found.verdict == "pass"
    assert {r.key.context for r in found.results if r.expected_failure} == {"loop"}


def test_an_expected_failure_of_another_cause_is_a_failure(monkeypatch):
    monkeypatch.setattr(runner, "diagnose", lambda job, outcome: "")
    assert run(Scripted(loops_wrong), **EXPECTED).verdict == "fail"


def test_an_expected_failure_that_does_not_occur_is_a_failure():
    def right(job: Job) -> Outcome:
        return Outcome("ran", outputs={"y": job.inputs["x"] ^ (job.setup.steps & 1)})

    found = run(Scripted(right), **EXPECTED)
    assert found.verdict == "fail"
    words = [r.words for r in found.results if r.verdict == "fail"]
    assert words == ["expected to fail in the loop context (missing early clobber) and did not"]


def test_the_documented_asm_is_diagnosed_by_reproducing_its_bits(monkeypatch):
    """The real case: with shared registers the emulator gives exactly these bits, and =&r repairs the asm."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    (loaded,) = load(Path(__file__).parents[2] / "cases" / "u8_to_i32_max.py")
    backend = create("emulator")
    found = run_item(Item(loaded, "documented", "sm_90a", "emulator"), backend, "quick")
    assert found.verdict == "pass"
    expected = [r for r in found.results if r.expected_failure]
    assert {r.diagnosis for r in expected} == {"missing early clobber"}
    assert {r.key.context for r in expected} == {"shared", "loop"}
    assert "in the register of $9 (input b)" in next(f for r in expected for f in r.findings)
    cured = run_item(Item(loaded, "early-clobber", "sm_90a", "emulator"), backend, "quick")
    assert {r.verdict for r in cured.results} == {"pass"}


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        (["pass", "fail", "error"], "error"),
        (["pass", "fail"], "fail"),
        (["pass", "unsupported"], "unsupported"),
        (["pass", "not run"], "pass"),
        (["not run"], "not run"),
        ([], "not run"),
    ],
)
def test_an_item_is_as_good_as_its_worst_result(verdicts, verdict):
    key = Key("c", "v", "sm_90a", "gpu")
    assert ItemResults([Result(key, v) for v in verdicts]).verdict == verdict


def test_other_targets_are_assembled_if_there_is_an_assembler(monkeypatch):
    """Whether any declared target accepts an asm: yes, no, or unknown because the assembler is missing."""
    answers: dict[str, str] = {}

    class Assembler:
        def __init__(self, disassemble: str) -> None: ...

        def unavailable(self, target: str) -> str | None:
            return None if target in answers else "not served"

        def run(self, job: Job) -> Any:
            return SimpleNamespace(status=answers[job.target])

    monkeypatch.setattr("ptxdiff.backends.assembler.AssemblerBackend", Assembler)
    backend = Scripted(lambda job: Outcome("unsupported", "no"))

    def result_with(**served: str) -> tuple[str, str]:
        answers.clear()
        answers.update(served)
        return run(backend).verdict, run(backend).results[0].words

    assert result_with(sm_100a="assembled", sm_80="unsupported")[0] == "fail"
    assert result_with(sm_100a="unsupported", sm_80="error") == ("error", "no target accepts this asm: no")
    assert result_with()[0] == "fail"
