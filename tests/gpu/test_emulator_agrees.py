"""A device and the emulator give identical bits for the same compiled code, wherever the bits are determined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ptxdiff.processes.gpus import gpu_visible

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_visible(), reason="no NVIDIA GPU on this machine")]

CASES = sorted((Path(__file__).parent.parent.parent / "cases").glob("[!_]*.py"))


SETUPS = 9
"""Setups of a kernel in one item. An item with all of a variant took minutes while other workers had nothing to do."""


def _planned(loaded, variant):
    from ptxdiff.running.plan import plan

    return plan(loaded.case, loaded.case.variants[variant], "gpu", "quick", "sm_90a")


def _parts(loaded, variant):
    """The names of a plan's parts: one for each pack of asm, else every so-many-th setup.

    A plan makes all inputs of an elementwise case, which is too slow for the collection.
    """
    from ptxdiff.model.variants import AsmVariant
    from ptxdiff.running.plan import packs_read

    ran = loaded.case.variants[variant]
    if loaded.case.elementwise and isinstance(ran, AsmVariant):
        return [f"pack{p}" for p in packs_read(loaded.case, ran)]
    if loaded.case.elementwise:
        parts = 1 + len(packs_read(loaded.case, ran))  # the sets of words, which are large, lie beside each other
    else:
        parts = -(-len(_planned(loaded, variant)) // SETUPS)
    return [f"{k + 1}of{parts}" for k in range(parts)]


def _items(loaded, variant, part):
    planned = _planned(loaded, variant)
    if part.startswith("pack"):
        return [item for item in planned if f"pack{item.setup.pack}" == part]
    first, parts = map(int, part.split("of"))
    return planned[first - 1 :: parts]


def pytest_generate_tests(metafunc):
    from ptxdiff.model.load import load

    if "part" in metafunc.fixturenames:
        cases = [loaded for path in CASES for loaded in load(path)] if gpu_visible() else []
        found = [(c, v, part) for c in cases for v in c.case.variants for part in _parts(c, v)]
        metafunc.parametrize(("loaded", "variant", "part"), found, ids=[f"{c.name}-{v}-{p}" for c, v, p in found])


def _job(loaded, name, target, setup, inputs):
    from ptxdiff.jobs import Job

    return Job(loaded.case, loaded.name, loaded.path, name, loaded.case.variants[name], target, setup, inputs)


def test_every_setup_of_the_quick_plan(loaded, variant, part):
    """Approximate instructions are compared only on the generation whose special function unit the emulator has."""
    from ptxdiff.backends import unavailable
    from ptxdiff.backends.compiled import compile_job, run_compiled
    from ptxdiff.backends.gpu import GpuBackend, device_target
    from ptxdiff.emulator import of_generation
    from ptxdiff.inputs.fill import kernel_inputs, shaped
    from ptxdiff.running.plan import sets_of, sized

    target, gpu = device_target(), GpuBackend()
    case = loaded.case
    if words := unavailable(case.variants[variant].compiler, "gpu", target):
        pytest.skip(words)
    compared = 0
    sets = {s.name: s for s in sets_of(case, "gpu", "quick", case.variants[variant])}
    for item in _items(loaded, variant, part):
        if case.elementwise:
            inputs_set = sets[item.input_set]
            item = sized(item, inputs_set.count)
            inputs = shaped(inputs_set, item.setup.shape, item.shuffled)
        else:
            inputs = kernel_inputs(case, item.input_set, item.setup.sizes)
        job = _job(loaded, variant, target, item.setup, inputs)
        device = gpu.run(job)
        if device.status == "unsupported":
            pytest.skip(f"{target} cannot run the variant: {device.words}")
        assert device.status == "ran", device.words
        emulated = run_compiled(job, compile_job(job))
        assert emulated.status == "ran", emulated.words
        # On that generation equal bits are required, whatever the ledger says of the forms.
        if emulated.alternative or (emulated.evidence == "model" and not of_generation(target)):
            continue
        compared += 1
        for name, bits in device.outputs.items():
            assert np.array_equal(np.asarray(bits), np.asarray(emulated.outputs[name])), f"{name} at {item}"
    if not compared:
        pytest.skip("each of these setups has open contraction, or another generation's approximate instruction")


def test_the_documented_maximum_in_its_loop():
    """An early clobber is missing: the compiled kernel gives the same wrong bits on the CPU and on the device."""
    from ptxdiff.backends.compiled import compile_job, run_compiled
    from ptxdiff.backends.gpu import GpuBackend, device_target
    from ptxdiff.inputs import input_sets
    from ptxdiff.inputs.fill import shaped
    from ptxdiff.jobs import Setup
    from ptxdiff.model.load import load

    loaded = next(c for path in CASES if path.stem == "u8_to_i32_max" for c in load(path))
    inputs = shaped(input_sets(loaded.case, "quick")[0], (1024,))
    setup = Setup(pack=4, shape=(1024,), block=512, context="loop", steps=3)
    job = _job(loaded, "documented", device_target(), setup, inputs)
    device, emulated = GpuBackend().run(job), run_compiled(job, compile_job(job))
    right = GpuBackend().run(_job(loaded, "early-clobber", device_target(), setup, inputs))
    assert np.array_equal(device.outputs["d"], emulated.outputs["d"])
    assert not np.array_equal(device.outputs["d"], right.outputs["d"])


def _kernels():
    from tests.support.emulator import triton_kernels

    return triton_kernels


@pytest.mark.parametrize(("rows", "columns"), [(33, 65), (128, 96)])
def test_a_transposition_through_shared_memory(rows, columns):
    import torch

    from ptxdiff import emulated

    x = torch.arange(rows * columns, dtype=torch.int32).reshape(rows, columns)
    grid = (-(-rows // 32), -(-columns // 32))
    results = []
    for device in ("cuda", "cpu"):
        y = torch.zeros(columns, rows, dtype=torch.int32, device=device)
        kernel = _kernels().transpose
        launch = kernel[grid] if device == "cuda" else emulated(kernel, target="sm_90a")[grid]
        launch(x.to(device), y, rows, columns, BM=32, BN=32)
        results.append(y.cpu())
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], x.T)


def test_an_atomic_histogram():
    import torch

    from ptxdiff import emulated

    x = torch.randint(0, 64, (5000,), dtype=torch.int32, generator=torch.Generator().manual_seed(1))
    results = []
    for device in ("cuda", "cpu"):
        h = torch.zeros(64, dtype=torch.int32, device=device)
        kernel = _kernels().histogram_atomic
        launch = kernel[(20,)] if device == "cuda" else emulated(kernel, target="sm_90a")[(20,)]
        launch(x.to(device), h, 5000, B=256)
        results.append(h.cpu())
    assert torch.equal(results[0], results[1])


@pytest.mark.parametrize("num_warps", [1, 4, 8])
def test_a_sum_across_warps(num_warps):
    """The compiled code fixes the order of the additions, so the bits are equal."""
    import torch

    from ptxdiff import emulated

    x = torch.randn(16, 300, generator=torch.Generator().manual_seed(2))
    results = []
    for device in ("cuda", "cpu"):
        y = torch.zeros(16, device=device)
        kernel = _kernels().row_sums
        launch = kernel[(4,)] if device == "cuda" else emulated(kernel, target="sm_90a")[(4,)]
        launch(x.to(device), y, 16, 300, BM=4, BN=128, num_warps=num_warps, enable_fp_fusion=False)
        results.append(y.cpu().view(torch.int32))
    assert torch.equal(results[0], results[1])


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_kernels_with_approximate_instructions(name):
    """exp, division and square root have the bits of the generation's special function unit."""
    import torch

    from ptxdiff import emulated
    from ptxdiff.backends.gpu import device_target
    from ptxdiff.emulator import GENERATION, of_generation

    if not of_generation(device_target()):
        pytest.skip(f"{device_target()}: the emulator has only {GENERATION}'s special function unit")
    generator = torch.Generator().manual_seed(3)
    x, w, b = torch.randn(8, 1000, generator=generator), torch.ones(1000), torch.zeros(1000)
    results = []
    for device in ("cuda", "cpu"):
        y = torch.zeros(8, 1000, device=device)
        kernel = getattr(_kernels(), name)
        launch = kernel[(8,)] if device == "cuda" else emulated(kernel, target="sm_90a")[(8,)]
        extra = () if name == "softmax" else (w.to(device), b.to(device))
        tail = (1000,) if name == "softmax" else (1000, 1e-5)
        launch(x.to(device), *extra, y, *tail, B=1024, enable_fp_fusion=False)
        results.append(y.cpu())
    assert torch.equal(results[0].view(torch.int32), results[1].view(torch.int32))
