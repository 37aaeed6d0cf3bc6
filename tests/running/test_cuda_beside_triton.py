"""A kernel that nvcc compiled and Triton's kernel as two variants of one case: the same inputs, reference and
policy."""

import dataclasses
from pathlib import Path

import pytest

from ptxdiff.backends.assembler import AssemblerBackend
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.model.load import load
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item

pytest.importorskip("torch")
pytest.importorskip("triton")
CASE = Path(__file__).parents[2] / "cases" / "cuda_fma.py"
VARIANTS = ("cuda", "triton")


def results(loaded, backend, **options):
    items = {v: Item(loaded, v, "sm_90a", backend.name) for v in VARIANTS}
    found = {v: run_item(item, backend, "quick", **options).results for v, item in items.items()}
    return {v: [r for r in found[v] if r.key.context == "straight" and r.key.pack == 1] for v in VARIANTS}


@pytest.mark.sample(2)
@pytest.mark.parametrize("backend", [EmulatorBackend(), AssemblerBackend("never")], ids=lambda b: b.name)
def test_both_pass_without_a_gpu(backend):
    (loaded,) = load(CASE)
    found = results(loaded, backend)
    assert {r.verdict for v in VARIANTS for r in found[v]} == {"pass"}
    sets = [{r.key.input_set for r in found[v]} for v in VARIANTS]
    assert sets[0] & sets[1]
    if backend.name == "emulator":
        same = [{r.key.input_set: r.inputs_digest for r in found[v] if r.key.num_warps == 4} for v in VARIANTS]
        assert {n: d for n, d in same[0].items() if n in same[1]}.items() <= same[1].items()


def test_each_is_compared_with_the_reference_by_itself():
    (loaded,) = load(CASE)
    variant = loaded.case.variants["cuda"]
    wrong = dataclasses.replace(variant, text=variant.text.replace("fma.rn.f32", "fma.rz.f32"))
    case = dataclasses.replace(loaded.case, variants={**loaded.case.variants, "cuda": wrong})
    found = results(dataclasses.replace(loaded, case=case), EmulatorBackend(), stop=True)
    assert "fail" in {r.verdict for r in found["cuda"]}
    assert {r.verdict for r in found["triton"]} == {"pass"}
