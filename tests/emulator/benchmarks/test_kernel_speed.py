"""Thread-instructions a second of whole kernels on the CPU; goals are for two cores that nothing else uses."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these benchmarks")

from ptxdiff import emulated
from tests.support.emulator import triton_kernels as k

pytestmark = pytest.mark.slow


def timed(benchmark: Any, launch: Any) -> None:
    """Compile once, then time the launch; the record also has thread-instructions a second."""
    report = launch()
    benchmark.pedantic(launch, rounds=3)
    if benchmark.stats:
        rate = report.thread_instructions / benchmark.stats["min"]
        benchmark.extra_info["thread-instructions"] = report.thread_instructions
        benchmark.extra_info["million thread-instructions a second"] = round(rate / 1e6)


@pytest.mark.parametrize("races", [True, False], ids=["races", "no-races"])
def test_elementwise(benchmark: Any, races: bool) -> None:
    """A multiplication and an addition on each of four million float32. Goal: seconds."""
    n = 1 << 22
    x, z = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    y = np.zeros_like(x)
    kernel = emulated(k.multiply_add, "sm_90a", races=races)[(n // 1024,)]
    timed(benchmark, lambda: kernel(x, z, y, n, B=1024, enable_fp_fusion=False))
    np.testing.assert_array_equal(y, x * z + x)


@pytest.mark.parametrize("name", ["softmax", "layer_norm"])
def test_rows(benchmark: Any, name: str) -> None:
    """1024 rows of 1000 float32."""
    x = np.random.default_rng(0).standard_normal((1024, 1000)).astype(np.float32)
    w, b, y = np.ones(1000, np.float32), np.zeros(1000, np.float32), np.zeros_like(x)
    kernel = emulated(getattr(k, name), "sm_90a")[(1024,)]
    arguments = (x, y, 1000) if name == "softmax" else (x, w, b, y, 1000, 1e-5)
    timed(benchmark, lambda: kernel(*arguments, B=1024))
    assert np.isfinite(y).all()


@pytest.mark.parametrize("target", ["sm_100a", "sm_120a"])
def test_block_scaled_quantisation(benchmark: Any, target: str) -> None:
    """NVFP4 of 512 x 4096 bfloat16. Goal: under a minute."""
    m, n = 512, 4096
    x = np.random.default_rng(0).standard_normal((m, n)).astype(ml_dtypes.bfloat16)
    q, scales = np.zeros((m, n // 2), np.uint8), np.zeros((m, n // 16), np.uint8)
    kernel = emulated(k.nvfp4, target)[(m // 16, n // 128)]
    timed(benchmark, lambda: kernel(x, q, scales, np.float32([6.0]), m, n, BM=16, BN=128))
    assert q.any()


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_a_product_of_matrices(target: str, benchmark: Any) -> None:
    """1024 x 1024 x 1024 in float16; the goal is 10 s on two cores that nothing else uses."""
    import triton.language as tl

    side = 1024
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((side, side)).astype(np.float16) for _ in range(2))
    out = np.zeros((side, side), np.float32)
    launch = emulated(k.matmul, target)[(side // 32, side // 32)]
    benchmark.pedantic(
        lambda: launch(x, y, out, side, side, side, B=32, STEP=64, ACC=tl.float32), rounds=1, warmup_rounds=0
    )
    benchmark.extra_info["goal"] = "10 s"
    np.testing.assert_allclose(out, x.astype(np.float32) @ y.astype(np.float32), atol=1e-3)
