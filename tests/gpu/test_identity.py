"""The order of items changes no verdict on a device, even if variants differ only in one argument or constant."""

import random

import pytest

from ptxdiff.backends import create
from ptxdiff.model.load import load
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from tests.support.identity_cases import FILES, VERDICTS

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
]


@pytest.mark.parametrize("seed", range(3))
def test_no_order_changes_a_verdict(tmp_path, seed):
    from ptxdiff.backends.gpu import device_target

    target, backend = device_target(), create("gpu")
    items = {}
    for name, text in FILES.items():
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        for loaded in load(path):
            for case, variant, on in VERDICTS:
                if case == loaded.name and on == "sm_90a":
                    items[case, variant, on] = Item(loaded, variant, target, "gpu")
    order = random.Random(seed).sample(sorted(items), len(items))
    assert {name: run_item(items[name], backend, "quick").verdict for name in order} == {n: VERDICTS[n] for n in order}
