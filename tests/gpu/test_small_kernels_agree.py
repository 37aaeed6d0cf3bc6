"""Small kernels of every kind give the same bits on a device and on the emulator, as their arithmetic is exact."""

from __future__ import annotations

import pytest

from ptxdiff.processes.gpus import gpu_visible

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not gpu_visible(), reason="no NVIDIA GPU on this machine")]

LAUNCHES = {
    "square": ("elementwise", ("x f32 300", "y f32 300", 300), {"B": 256, "OP": "square"}, 2),
    "negated halves": ("elementwise", ("x f16 300", "y f16 300", 300), {"B": 256, "OP": "negate"}, 2),
    "square root": ("elementwise", ("x f32 300", "y f32 300", 300), {"B": 256, "OP": "root"}, 2),
    "division": ("elementwise", ("x f32 300", "y f32 300", 300), {"B": 256, "OP": "third"}, 2),
    "population count": ("elementwise", ("x i32 300", "y i32 300", 300), {"B": 256, "OP": "popcount"}, 2),
    "to bfloat16": ("convert", ("x f32 300", "y bf16 300", 300), {"B": 256}, 2),
    "to int8": ("convert", ("x f32 300", "y i8 300", 300), {"B": 256}, 2),
    "to e5m2": ("convert", ("x f32 300", "y e5m2 300", 300), {"B": 256}, 2),
    "cache hints": ("hinted", ("x i32 300", "y i32 300", 300), {"B": 128}, 3),
    "running sum": ("scan", ("x f32 512", "y f32 512"), {"B": 512, "KIND": "sum", "REVERSE": False}, 1),
    "running maximum": ("scan", ("x i32 512", "y i32 512"), {"B": 512, "KIND": "greatest", "REVERSE": True}, 1),
    "sum of rows": ("reduce", ("x f32 4096", "y f32 32"), {"M": 32, "N": 128, "AXIS": 1, "KIND": "sum"}, 1),
    "sum of columns": ("reduce", ("x f32 4096", "y f32 128"), {"M": 32, "N": 128, "AXIS": 0, "KIND": "sum"}, 1),
    "argmax": ("reduce", ("x f32 4096", "y i32 32"), {"M": 32, "N": 128, "AXIS": 1, "KIND": "argmax"}, 1),
    "sort": ("arranged", ("x f32 256", "y f32 256"), {"N": 256, "KIND": "sort"}, 1),
    "gather": ("arranged", ("x i16 256", "y i16 256"), {"N": 256, "KIND": "gather"}, 1),
    "permute": ("arranged", ("x i32 256", "y i32 256"), {"N": 256, "KIND": "permute"}, 1),
    "atomic exchange": ("atomic", ("x i64 128", "y i64 128", "z i64 128", 128),
                        {"B": 128, "OP": "xchg", "PLACES": 128, "SEM": "acq_rel"}, 1),
    "atomic addition": ("atomic", ("x i32 128", "y i32 128", "z i32 128", 128),
                        {"B": 128, "OP": "add", "PLACES": 128, "SEM": "relaxed"}, 1),
    "calls": ("calls", ("x i32 6", "y i32 384"), {"B": 64}, 6),
    "random numbers": ("random_numbers", (2**40 + 7, "y i32 512"), {"B": 256}, 2),
    "uniform numbers": ("uniform_numbers", (42, "y f32 512"), {"B": 256}, 2),
    "branches": ("branchy", ("x i32 640", "y i32 640", 640), {"B": 64}, 10),
}  # fmt: skip


@pytest.mark.parametrize("name", LAUNCHES)
def test_device_and_emulator_give_the_same_bits(name):
    import torch

    from ptxdiff import emulated
    from ptxdiff.backends.gpu import device_target
    from tests.support import small_kernels

    kernel, described, meta, grid = LAUNCHES[name]
    types = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "e5m2": torch.float8_e5m2,
             "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64}  # fmt: skip
    generator = torch.Generator().manual_seed(1)
    tensors = []
    for argument in described:
        if isinstance(argument, str):
            place, kind, count = argument.split()
            values = 100 * torch.randn(int(count), generator=generator) * (place == "x")
            values = values.abs() if meta.get("OP") == "root" else values
            tensors.append(values.to(types[kind]))
        else:
            tensors.append(argument)
    function = getattr(small_kernels, kernel)
    results = []
    for device in ("cuda", "cpu"):
        arguments = [a.clone().to(device) if isinstance(a, torch.Tensor) else a for a in tensors]
        launch = function[(grid,)] if device == "cuda" else emulated(function, device_target())[(grid,)]
        launch(*arguments, **meta, enable_fp_fusion=False)
        results.append([a.cpu().view(torch.uint8) for a in arguments if isinstance(a, torch.Tensor)])
    for on_device, on_cpu in zip(*results, strict=True):
        assert torch.equal(on_device, on_cpu)
