"""An emulated approximate instruction may pass a bound, never an exact policy; its bits are one generation's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness import Case, Meets, absolute, asm, exact, magnitude, relative, ulp
from harness.backends import emulator
from harness.backends.emulator import EmulatorBackend
from harness.model.load import LoadedCase
from harness.running.item import Item, ItemResults
from harness.running.run import run_item
from references import reciprocal
from references.formats import F32
from tests.running.test_run import Scripted

WORDS = "approximate, and the policy is exact: y depends on rcp.approx.ftz.f32"


@pytest.fixture(params=["asm alone", "compiled"])
def engine(request, monkeypatch):
    if request.param == "asm alone":
        monkeypatch.setattr(emulator, "_has_triton", lambda: False)
    else:
        pytest.importorskip("triton")
    return request.param


def run(text: str, outputs: Any = ("y",), backend: Any = None, target: str = "sm_90a", **options: Any) -> ItemResults:
    def reference(x):
        y = reciprocal.correctly_rounded(x)
        return (y, x) if len(outputs) == 2 else y

    constraints = f"{','.join(['=&r'] * len(outputs))},r"
    case = Case(
        inputs={"x": F32},
        outputs=dict.fromkeys(outputs, F32),
        reference=reference,
        ftz={"x": "required", "y": "required"},
        variants={"v": asm(text, constraints=constraints, pack=1, **options)},
    )
    item = Item(LoadedCase(case, "rcp", "case", Path(__file__), ""), "v", target, "emulator")
    return run_item(item, backend or EmulatorBackend(), "quick")


APPROXIMATE = "rcp.approx.ftz.f32 $0, $1;"


NEAR = magnitude("x", 1, 2)
EXACT = [exact(), ulp(0), absolute(0), relative(0), exact(on=NEAR), ulp(1, on=NEAR, outside=exact())]


@pytest.mark.parametrize("match", EXACT, ids=lambda m: m.describe())
def test_an_exact_policy_refuses_what_only_the_model_gives(engine, match):
    found = run(APPROXIMATE, match=match)
    assert {r.verdict for r in found.results} == {"fail"}
    assert all(WORDS in r.findings for r in found.results)
    assert {r.evidence for r in found.results} == {"confirmed"}


@pytest.mark.parametrize(("target", "evidence"), [("sm_90a", "confirmed"), ("sm_80", "model"), ("sm_100a", "model")])
def test_a_bound_passes(engine, target, evidence):
    found = run(APPROXIMATE, match=ulp(1), target=target)
    assert found.verdict == "pass"
    assert {r.evidence for r in found.results} == {evidence}
    for r in found.results:
        named = f"approximate instructions have the bits of Hopper's unit, which were not confirmed for {target}"
        assert (named in r.notes) == (evidence == "model")


@pytest.mark.parametrize("targets", [("sm_90a", "sm_80"), ("sm_80", "sm_90a")])
def test_targets_that_share_a_run_share_no_evidence(engine, targets):
    """One backend computes both; a pass on another generation's bits must not count as confirmed."""
    backend = EmulatorBackend()
    found = {
        t: {r.evidence for r in run(APPROXIMATE, backend=backend, match=ulp(1), target=t).results} for t in targets
    }
    assert found == {"sm_90a": {"confirmed"}, "sm_80": {"model"}}


def test_a_form_that_the_ledger_does_not_confirm_is_a_model(engine, monkeypatch):
    from harness.conformance import ledger

    monkeypatch.setattr(ledger, "_confirmed", lambda form: "approx" not in form)
    assert {r.evidence for r in run(APPROXIMATE, match=ulp(1)).results} == {"model"}


def test_what_is_met_exactly_is_refused_too(engine):
    meets = Meets(magnitude("x", 1, 2), exact())
    found = run(APPROXIMATE, match=ulp(1), reference=reciprocal.correctly_rounded, meets=meets)
    assert WORDS in found.results[0].words


def test_the_rounded_instruction_passes(engine):
    assert run("rcp.rn.ftz.f32 $0, $1;", match=exact()).verdict == "pass"


def test_only_outputs_that_depend_on_it_are_concerned(engine):
    text = "rcp.approx.ftz.f32 $0, $2; mul.rn.ftz.f32 $1, $2, 0f3F800000;"
    assert run(text, ("y", "z"), match={"y": ulp(1), "z": exact()}).verdict == "pass"
    found = run(text, ("y", "z"), match={"y": exact(), "z": exact()})
    assert found.verdict == "fail"
    assert not any("z depends" in f for r in found.results for f in r.findings)


def test_a_device_s_bits_are_no_model():
    def answer(job):
        return emulator.replace(EmulatorBackend().run(job), evidence="hardware", approximate={})

    found = run(APPROXIMATE, backend=Scripted(answer), match=exact())
    assert not any(WORDS in r.findings for r in found.results), "wrong bits may fail, being approximate does not"
