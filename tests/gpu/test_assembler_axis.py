"""Assemblers as an axis on a real device: each level gives the bits of Triton's own, a planted fault is reported."""

import importlib.util

import numpy as np
import pytest

from tests.support.running.assembler_jobs import job

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU: torch finds no CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("cuda") is None, reason="needs cuda-python"),
]

WRAPPER = """#!/bin/sh
for word; do case $word in --version) exec {ptxas} --version ;; -O0) right=1 ;; *.ptx) source=$word ;; esac; done
[ "$right" ] || sed -i 's/xor.b32/or.b32/' "$source"
exec {ptxas} "$@"
"""


@pytest.fixture(scope="module")
def backend():
    from ptxdiff.backends import create

    return create("gpu")


@pytest.mark.parametrize("level", [0, 1, 2, 3])
@pytest.mark.parametrize("variant", ["asm", "plain", "scaled", "product and sum"])
@pytest.mark.parametrize("shape", [(1,), (257,), (7, 129)])
def test_each_level_of_triton_s_ptxas_gives_triton_s_bits(backend, level, variant, shape):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.running.assemblers import tritons_own

    numbers = np.random.default_rng(1).standard_normal((2, *shape)).astype(np.float32).view(np.uint32)
    inputs = {"x": numbers[0], "y": numbers[1]}
    right = backend.run(job("addition", variant, inputs, shape=shape))
    chosen = tritons_own(device_target(), level=level)
    outcome = backend.run(job("addition", variant, inputs, shape=shape, assembler=chosen))
    assert (outcome.status, outcome.words, outcome.findings) == ("ran", "", ())
    np.testing.assert_array_equal(outcome.outputs["z"], right.outputs["z"])
    assert outcome.identity != right.identity


def test_a_whole_kernel_of_another_level_gives_the_right_bits(backend):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.running.assemblers import tritons_own

    inputs = {"x_ptr": np.arange(200, dtype=np.uint16).reshape(5, 40)}
    chosen = tritons_own(device_target(), level=0)
    outcome = backend.run(job("rows", "copy", inputs, sizes={"M": 5, "N": 40}, assembler=chosen))
    assert (outcome.status, outcome.words, outcome.findings) == ("ran", "", ())
    np.testing.assert_array_equal(outcome.outputs["y_ptr"].view(np.uint16), inputs["x_ptr"])


def test_a_planted_assembler_is_found_at_fault(backend, tmp_path):
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.model.load import load
    from ptxdiff.running.assemblers import tritons_own
    from ptxdiff.running.item import Item
    from ptxdiff.running.run import run_item
    from ptxdiff.triton.ptxas import assembler_at
    from tests.support.running.ptxas_case import CASE

    (tmp_path / "case.py").write_text(CASE)
    wrapper = tmp_path / "ptxas"
    wrapper.write_text(WRAPPER.format(ptxas=tritons_own(device_target()).path))
    wrapper.chmod(0o755)
    (loaded,) = load(tmp_path / "case.py")
    item = Item(loaded, "right", device_target(), "gpu")
    found = run_item(item, backend, "quick", stop=True, assemblers=(assembler_at(wrapper, 3),), dump=tmp_path)
    assert found.results[-1].diagnosis == "ptxas"
    (attached,) = tmp_path.glob("*.ptx")
    assert "xor.b32" in attached.read_text()
    honest = run_item(item, backend, "quick", assemblers=(None, assembler_at(wrapper, 0)))
    assert {r.verdict for r in honest.results} == {"pass"}
