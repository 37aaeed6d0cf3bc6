"""Machine code that a worker made is launched instead of Triton's, and gives the same bits."""

import importlib.util
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="needs cuda-python"),
]

from ptxdiff.backends import gpu  # noqa: E402
from tests.support.running.assembler_jobs import job  # noqa: E402

SETUPS = [{"shape": (1,)}, {"shape": (257,), "alignment": 4}, {"shape": (7, 129), "num_warps": 1, "fusion": True}]


def numbers(shape):
    found = np.random.default_rng(2).standard_normal((2, *shape)).astype(np.float32).view(np.uint32)
    return {"x": found[0], "y": found[1]}


@pytest.mark.parametrize("setup", SETUPS, ids=str)
@pytest.mark.parametrize("variant", ["asm", "plain", "scaled", "product and sum"])
def test_triton_compiles_nothing_and_the_bits_equal_triton_s(variant, setup, monkeypatch):
    asked = job("addition", variant, numbers(setup["shape"]), **setup)
    right = gpu.launched(asked)
    built = gpu.compiled(asked)

    def refused(*_, **__):
        raise AssertionError("Triton compiles")

    from ptxdiff.triton import templates

    function = getattr(templates, f"elementwise_{len(setup['shape'])}d")
    function.device_caches.clear()
    monkeypatch.setattr(type(function), "_do_compile", refused)
    outcome = gpu.launched(asked, made=built)
    assert (outcome.status, outcome.findings) == ("ran", ())
    np.testing.assert_array_equal(outcome.outputs["z"], right.outputs["z"])


def test_code_of_another_setup_is_not_launched():
    asked = job("addition", "asm", numbers((257,)), shape=(257,), alignment=4)
    other = gpu.compiled(replace(asked, setup=replace(asked.setup, shape=(256,), alignment=16)))
    outcome = gpu.launched(asked, made=other)
    np.testing.assert_array_equal(outcome.outputs["z"], gpu.launched(asked).outputs["z"])
    assert outcome.findings == ()


def test_a_whole_kernel_is_launched_from_ready_code():
    inputs = {"x_ptr": np.arange(200, dtype=np.uint16).reshape(5, 40)}
    asked = job("rows", "copy", inputs, sizes={"M": 5, "N": 40})
    outcome = gpu.launched(asked, made=gpu.compiled(asked))
    np.testing.assert_array_equal(outcome.outputs["y_ptr"].view(np.uint16), inputs["x_ptr"])
