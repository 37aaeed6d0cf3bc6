"""An emulated approximate instruction may pass a bound, but no exact policy, because other generations differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxdiff import Case, Meets, absolute, asm, exact, magnitude, relative, ulp
from ptxdiff.backends import emulator
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.emulator.isa.approximate import rcp_approx
from ptxdiff.emulator.numeric.vectorise import ArrayFunction
from ptxdiff.model.load import LoadedCase
from ptxdiff.references import reciprocal
from ptxdiff.references.formats import F32
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item
from tests.support.running.scripted import Scripted

WORDS = (
    "approximate, and the policy is exact: y may depend on rcp.approx.ftz.f32; "
    "give match=ulp(N), exact(through=approximate(...)) where an exact step follows the approximate one, or use an "
    "instruction that rounds"
)


@pytest.fixture(params=["asm alone", "compiled"])
def engine(request, monkeypatch):
    if request.param == "asm alone":
        monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
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


@pytest.mark.sample(8)
@pytest.mark.parametrize("match", EXACT, ids=lambda m: m.describe())
def test_an_exact_policy_refuses_results_of_a_model(engine, match):
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


@pytest.mark.sample(2)
@pytest.mark.parametrize("targets", [("sm_90a", "sm_80"), ("sm_80", "sm_90a")])
def test_targets_that_share_a_run_share_no_evidence(engine, targets):
    """One backend computes both; a pass on another generation's bits must not count as confirmed."""
    backend = EmulatorBackend()
    found = {
        t: {r.evidence for r in run(APPROXIMATE, backend=backend, match=ulp(1), target=t).results} for t in targets
    }
    assert found == {"sm_90a": {"confirmed"}, "sm_80": {"model"}}


def test_a_form_that_the_ledger_does_not_confirm_is_a_model(engine, monkeypatch):
    from ptxdiff.conformance import ledger

    monkeypatch.setattr(ledger, "_confirmed", lambda form: "approx" not in form)
    assert {r.evidence for r in run(APPROXIMATE, match=ulp(1)).results} == {"model"}


@pytest.mark.sample(2)
def test_an_exact_result_of_the_model_is_refused_too(engine):
    meets = Meets(magnitude("x", 1, 2), exact())
    found = run(APPROXIMATE, match=ulp(1), reference=reciprocal.correctly_rounded, meets=meets)
    assert WORDS in found.results[0].words


def test_the_rounded_instruction_passes(engine):
    assert run("rcp.rn.ftz.f32 $0, $1;", match=exact()).verdict == "pass"


@pytest.mark.sample(2)
def test_only_outputs_that_depend_on_the_instruction_are_marked(engine):
    text = "rcp.approx.ftz.f32 $0, $2; mul.rn.ftz.f32 $1, $2, 0f3F800000;"
    assert run(text, ("y", "z"), match={"y": ulp(1), "z": exact()}).verdict == "pass"
    found = run(text, ("y", "z"), match={"y": exact(), "z": exact()})
    assert found.verdict == "fail"
    assert not any("z depends" in f for r in found.results for f in r.findings)


def test_a_devices_bits_are_no_model():
    def answer(job):
        return emulator.replace(EmulatorBackend().run(job), evidence="hardware", approximate={})

    found = run(APPROXIMATE, backend=Scripted(answer), match=exact())
    assert not any(WORDS in r.findings for r in found.results), "wrong bits may fail, being approximate does not"


# For 1 / x: the arguments, and the results of a planted unit for them.
MISTAKES = {
    "an error beyond the bound": (lambda a: a == 0x3F800000, lambda y: y + 2),
    "its own bits": (lambda a: a == 0x3F800000, lambda y: y),
    "a number for infinity": (lambda a: a == 0, lambda y: y - 1),
    "infinity for a number": (lambda a: a == 0x00800000, lambda y: y | 0x7F800000),
    "a number for NaN": (lambda a: a == 0x7FC00000, lambda y: 0 * y),
    "NaN for a number": (lambda a: a == 0x3F800000, lambda y: 0 * y + 0x7FFFFFFF),
    "another sign of zero": (lambda a: a == 0x7F800000, lambda y: y ^ 0x80000000),
    "another sign": (lambda a: a == 0x3F800000, lambda y: y ^ 0x80000000),
    "what .ftz flushes": (lambda a: a == 0x7F000000, lambda y: 0 * y + 0x00400000),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("bound", ["the ISA's promise", "a wide bound"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_bound_is_compared_with_the_units_results(mistake, bound, monkeypatch):
    """The unit's error may exceed the bound. NaN, infinity, signs, zeros and flushes must never pass by a bound."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    where, given = MISTAKES[mistake]
    call = ArrayFunction.__call__

    def other(self, lanes, *arguments):
        results = call(self, lanes, *arguments)
        if self.function is not rcp_approx:
            return results
        chosen = where(arguments[0][:lanes])
        return np.where(chosen, given(results.astype(np.int64)), results).astype(results.dtype)

    monkeypatch.setattr(ArrayFunction, "__call__", other)
    match = ulp(1, source="PTX ISA, rcp") if bound == "the ISA's promise" else ulp(1000)
    found = run(APPROXIMATE, match=match)
    within = mistake == "its own bits" or (mistake == "an error beyond the bound" and bound == "a wide bound")
    assert found.verdict == ("pass" if within else "fail")
    assert {r.evidence for r in found.results} == {"confirmed"}


@pytest.mark.sample(2)
@pytest.mark.parametrize("policy", [ulp(1000), relative(0.5)])
def test_a_flush_by_the_unit_needs_a_policy(policy, monkeypatch):
    """rcp.approx.ftz gives zero for 2**127, where the reference without flush has a subnormal number."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "1")
    assert run(APPROXIMATE, match=policy, ftz="never").verdict == "fail"
    assert run("rcp.approx.f32 $0, $1;", match=policy, ftz="never").verdict == "pass"
