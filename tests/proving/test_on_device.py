"""A counterexample runs on a GPU before it is believed; a scripted backend stands in for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.backends import create
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.load import LoadedCase
from ptxdiff.proving import on_device
from ptxdiff.proving.verdicts import proof_of
from ptxdiff.references.formats import U32


class StandIn:
    """A device that gives what the emulator gives, or what a test says."""

    name = "gpu"

    def __init__(self, answer: Callable[[Job], Outcome]) -> None:
        self.answer, self.jobs = answer, list[Job]()

    def unavailable(self, target: str) -> str | None:
        return None

    def run(self, job: Job) -> Outcome:
        self.jobs.append(job)
        return self.answer(job)


def like_the_emulator(job: Job) -> Outcome:
    return create("emulator").run(job)


def right(job: Job) -> Outcome:
    return Outcome("ran", outputs={"y": job.inputs["a"] ^ job.inputs["b"]})


def lost(job: Job) -> Outcome:
    return Outcome("not run", "the device is gone")


@pytest.fixture
def loaded() -> LoadedCase:
    text = """{ .reg .b32 t; .reg .pred p; xor.b32 t, $1, $2; setp.eq.u32 p, $1, 0x9E3779F9;
        @p add.u32 t, t, 1; mov.b32 $0, t; }"""
    case = Case(
        inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=lambda a, b: a ^ b,
        variants={"rare": asm(text, "=r,r,r", pack=1), "xor": asm("xor.b32 $0, $1, $2;", packs=(1, 2))},
    )  # fmt: skip
    return LoadedCase(case, "case", "case", Path("case.py"), "")


def test_a_device_that_agrees_confirms_it(loaded: LoadedCase) -> None:
    device = StandIn(like_the_emulator)
    found = proof_of(loaded, "rare", "sm_90a", device=device)
    assert found.verdict == "counterexample"
    assert found.words.endswith("; a GPU gives a wrong result too")
    assert [job.setup.fusion for job in device.jobs] == [False, True]
    job, _ = device.jobs
    assert [hex(v) for v in job.inputs["a"].tolist()] == ["0x9e3779f9"] == [*found.inputs["a"]]


def test_a_device_that_gives_the_right_result_leaves_it_open(loaded: LoadedCase) -> None:
    found = proof_of(loaded, "rare", "sm_90a", device=StandIn(right))
    assert found.verdict == "not settled"
    assert found.words.startswith("a GPU gives a right result, and the emulator: y: expected")


def test_a_device_that_is_lost_neither_confirms_nor_denies(loaded: LoadedCase) -> None:
    found = proof_of(loaded, "rare", "sm_90a", device=StandIn(lost))
    assert found.verdict == "counterexample"
    assert found.words.endswith("it did not run on the GPU: not run: the device is gone")


@pytest.mark.parametrize(("answer", "verdict"), [(like_the_emulator, "counterexample"), (right, "not settled")])
def test_two_variants_run_on_the_device(answer: Callable[[Job], Outcome], verdict: str, loaded: LoadedCase) -> None:
    device = StandIn(answer)
    found = proof_of(loaded, "xor", "sm_90a", against="rare", device=device)
    assert found.verdict == verdict
    assert [job.variant_name for job in device.jobs] == ["xor", "rare"] * 2


def test_a_proof_needs_no_device_and_another_target_has_none(loaded: LoadedCase) -> None:
    device = StandIn(lost)
    assert proof_of(loaded, "xor", "sm_90a", device=device).verdict == "proved"
    assert not device.jobs
    assert on_device.gpu_for("sm_75") is None or create("gpu").unavailable("sm_75") is None


def test_machine_code_runs_on_the_device(loaded: LoadedCase, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine code is of another variant, as of an assembler that is at fault."""
    from dataclasses import replace

    from ptxdiff.proving import elements

    made_right = elements.translation_of

    def faulty(job: Job) -> object:
        wrong, by = made_right(replace(job, variant_name="rare", variant=loaded.case.variants["rare"]))  # type: ignore[misc]
        one, _ = made_right(job)  # type: ignore[misc]
        return replace(one, code=wrong.code), by

    monkeypatch.setattr(elements, "translation_of", faulty)

    def wrong(job: Job) -> Outcome:
        outcome = right(job)
        return replace(outcome, outputs={"y": outcome.outputs["y"] + (job.inputs["a"] == 0x9E3779F9)})

    for answer, verdict in ((wrong, "counterexample"), (right, "not settled")):
        device = StandIn(answer)
        found = proof_of(loaded, "xor", "sm_90a", against="sass", device=device, packs=(1,))
        assert found.verdict == verdict, found
        (job,) = device.jobs
        assert 0x9E3779F9 in job.inputs["a"]
