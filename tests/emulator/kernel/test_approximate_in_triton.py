"""Kernels and asm blocks with approximate instructions, on the emulator only; `tests/gpu` compares them with a
device."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")
pytest.importorskip("torch", reason="torch is not installed")
import torch

from ptxdiff import emulate, emulated
from tests.support import approximate_kernels
from tests.support.approximate_kernels import LAUNCHES, SNIPPETS
from tests.support.sampling import spread


def launched(name, target="sm_90a"):
    return approximate_kernels.launch(name, lambda kernel, grid: emulated(kernel, target=target)[grid])


@pytest.mark.sample(4)
@pytest.mark.parametrize("name", spread(LAUNCHES, 3))
def test_kernels_run(name):
    """The results are finite for all but the extreme inputs."""
    assert torch.isfinite(launched(name).flatten()[8:]).all()


@pytest.mark.slow
def test_every_snippet_runs():
    for name, (text, constraints, kind, pack, count) in SNIPPETS.items():
        columns = approximate_kernels.operands(kind, count)
        got = emulate(text, constraints, columns, columns[0].dtype, pack=pack)
        assert len(np.unique(got)) > 1000, name
    assert len(SNIPPETS) == 36
