"""A kernel that nvcc compiled beside Triton's kernel of the same case, on a device: both pass, and have equal bits."""

import importlib.util
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="needs cuda-python"),
]


def test_both_variants_pass_and_agree_with_the_emulator():
    from ptxdiff.backends import create
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.model.load import load
    from ptxdiff.running.item import Item
    from ptxdiff.running.run import run_item

    (loaded,) = load(Path(__file__).parents[2] / "cases" / "cuda_fma.py")
    bits = {}
    for backend in (create("gpu"), create("emulator")):
        for variant in ("cuda", "triton"):
            found = run_item(Item(loaded, variant, device_target(), backend.name), backend, "quick").results
            assert {r.verdict for r in found} == {"pass"}
            for r in found:
                bits.setdefault((variant, r.key.input_set, r.key.shape, r.key.num_warps), set()).add(r.inputs_digest)
    assert all(len(digests) == 1 for digests in bits.values())
