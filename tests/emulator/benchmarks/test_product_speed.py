"""Times of products of matrices and of attention on the CPU; goals are for two cores that nothing else uses.

Processor time is recorded too: it shows which of two versions is faster even on a busy machine.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed; it compiles the kernels of these benchmarks")

import triton.language as tl

from ptxdiff import emulated
from tests.support import descriptor_kernels
from tests.support.emulator import triton_kernels as k

pytestmark = pytest.mark.slow
TARGETS = ["sm_80", "sm_90a", "sm_100a"]


def timed(benchmark: Any, goal: str, launch: Callable[[], Any]) -> None:
    """Time one launch, with compiling; record processor time and the process's peak memory so far."""
    before = time.process_time()
    benchmark.pedantic(launch, rounds=1, warmup_rounds=0)
    benchmark.extra_info |= {
        "goal": goal,
        "processor seconds": round(time.process_time() - before, 2),
        "most MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
    }


@pytest.mark.parametrize("target", TARGETS)
def test_large_tiles(benchmark: Any, target: str) -> None:
    """1024 x 1024 x 1024 in float16, in tiles of 128 x 128, as kernels for these GPUs have them."""
    side = 1024
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((side, side)).astype(np.float16) for _ in range(2))
    out = np.zeros((side, side), np.float32)
    launch = emulated(k.matmul, target, limit=None)[(side // 128, side // 128)]
    step = 32 if target == "sm_80" else 64
    timed(benchmark, "10 s", lambda: launch(x, y, out, side, side, side, B=128, STEP=step, ACC=tl.float32))
    np.testing.assert_allclose(out, x.astype(np.float32) @ y.astype(np.float32), atol=1e-3)


@pytest.mark.parametrize("target", TARGETS)
def test_attention_of_eight_heads(benchmark: Any, target: str) -> None:
    """1 x 8 heads x 1024 x 64 in float16."""
    n, generator = 1024, torch.Generator().manual_seed(3)
    q, keys, v = (torch.randn(8, n, 64, generator=generator).half() for _ in range(3))
    out = torch.zeros(8, n, 64)
    launch = emulated(descriptor_kernels.attention, target, limit=None)[(n // 128, 8)]
    timed(benchmark, "20 s", lambda: launch(q, keys, v, out, n, 0.18, BM=128, BN=64, D=64))
    wanted = torch.softmax((q.double() @ keys.double().transpose(1, 2)) * 0.18 * np.log(2), -1) @ v.double()
    assert (out.double() - wanted).abs().max() < 2e-3
