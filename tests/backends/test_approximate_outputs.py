"""An emulated approximate instruction is a model: it may pass a bound, and never an exact policy."""

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


def run(text: str, outputs: Any = ("y",), backend: Any = None, **options: Any) -> ItemResults:
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
    item = Item(LoadedCase(case, "rcp", "case", Path(__file__), ""), "v", "sm_90a", "emulator")
    return run_item(item, backend or EmulatorBackend(), "quick")


APPROXIMATE = "rcp.approx.ftz.f32 $0, $1;"


NEAR = magnitude("x", 1, 2)
EXACT = [exact(), ulp(0), absolute(0), relative(0), exact(on=NEAR), ulp(1, on=NEAR, outside=exact())]


@pytest.mark.parametrize("match", EXACT, ids=lambda m: m.describe())
def test_an_exact_policy_refuses_what_only_the_model_gives(engine, match):
    found = run(APPROXIMATE, match=match)
    assert {r.verdict for r in found.results} == {"fail"}
    assert all(WORDS in r.words and WORDS in r.findings for r in found.results)
    assert {r.evidence for r in found.results} == {"model"}


def test_a_bound_passes_on_the_model(engine):
    found = run(APPROXIMATE, match=ulp(1))
    assert found.verdict == "pass"
    assert {r.evidence for r in found.results} == {"model"}


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

    assert run(APPROXIMATE, backend=Scripted(answer), match=exact()).verdict == "pass"
