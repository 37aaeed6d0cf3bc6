"""Kernels and asm blocks with approximate instructions: a device of the measured generation and the emulator agree."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.processes.gpus import gpu_visible

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these tests")
from tests.support import approximate_kernels

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_visible(), reason="no NVIDIA GPU on this machine")]


@pytest.fixture(scope="module")
def target():
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.emulator import GENERATION, of_generation

    if not of_generation(device_target()):
        pytest.skip(f"{device_target()}: the emulator has only {GENERATION}'s special function unit")
    return device_target()


@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize("name", approximate_kernels.LAUNCHES)
def test_approximate_kernels_have_the_same_bits(name, num_warps, target):
    import torch

    from ptxdiff import emulated

    on_device = approximate_kernels.launch(name, lambda k, grid: k[grid], "cuda", num_warps=num_warps)
    on_cpu = approximate_kernels.launch(name, lambda k, grid: emulated(k, target=target)[grid], num_warps=num_warps)
    assert torch.isfinite(on_device).any()
    assert torch.equal(on_device.view(torch.int32), on_cpu.view(torch.int32))


@pytest.mark.parametrize("name", approximate_kernels.SNIPPETS)
def test_approximate_asm_has_the_same_bits(name, target):
    """The device runs the block in a Triton kernel, the emulator runs it alone."""
    import torch
    import triton

    from ptxdiff import emulate

    text, constraints, kind, pack, count = approximate_kernels.SNIPPETS[name]
    columns = approximate_kernels.operands(kind, count)
    on_cpu = emulate(text, constraints, columns, columns[0].dtype, pack=pack, target=target)
    types = {"f2": torch.float16, "bf16": torch.bfloat16, "f4": torch.float32, "f8": torch.float64}
    signed = torch.int64 if kind == "f8" else torch.int32 if kind == "f4" else torch.int16
    host = {torch.int64: np.int64, torch.int32: np.int32, torch.int16: np.int16}[signed]
    tensors = [torch.from_numpy(c.view(host).copy()).view(types[kind]).cuda() for c in columns]
    y = torch.zeros_like(tensors[0])
    block = {1: approximate_kernels.of_one, 2: approximate_kernels.of_two}[count]
    block[(triton.cdiv(y.numel(), 1024),)](
        *tensors, y, y.numel(), TEXT=text, CONSTRAINTS=constraints, PACK=pack, B=1024
    )
    on_device = y.cpu().view(signed).numpy().view(columns[0].dtype)
    wrong = np.flatnonzero(on_device != on_cpu)
    assert len(wrong) == 0, [hex(c[wrong[0]]) for c in (*columns, on_device, on_cpu)]
