"""Elements a second that `emulate` computes; goals are for two cores that nothing else uses.

On busy cores the rate by processor time comes nearest to that: it leaves out waiting, but not the loss of caches.
"""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from ptxdiff.emulator import emulate

pytestmark = pytest.mark.slow
ELEMENTS = 1 << 24
GOALS = {
    "add.f32": 250,
    "mul.f32": 250,
    "fma.rn.f32": 250,
    "add.rz.f32": 100,
    "fma.rm.ftz.f32": 100,
    "div.rn.f32": 100,
    "div.rp.f32": 100,
    "sqrt.rn.f32": 100,
    "cvt.rn.f16.f32": 300,
    "rcp.approx.f32": 200,
    "rcp.approx.ftz.f32": 200,
    "rsqrt.approx.f32": 200,
    "rsqrt.approx.ftz.f32": 200,
    "sqrt.approx.f32": 200,
    "sqrt.approx.ftz.f32": 200,
    "sin.approx.f32": 200,
    "cos.approx.f32": 200,
    "lg2.approx.f32": 200,
    "lg2.approx.ftz.f32": 200,
    "ex2.approx.f32": 200,
    "ex2.approx.ftz.f32": 200,
    "tanh.approx.f32": 200,
    "div.approx.f32": 200,
    "div.approx.ftz.f32": 200,
    "div.full.f32": 200,
    "div.full.ftz.f32": 200,
    "fma.rn.f16x2": 72,
}
"""Millions of elements a second. At 72 all 2**32 inputs take a minute, at 200 they take 21 seconds."""


def record(benchmark: Any, values: int, goal: str) -> None:
    """Put the goal and the rate reached into the benchmark's record."""
    benchmark.extra_info["goal"] = goal
    if benchmark.stats:
        benchmark.extra_info["M/s"] = round(values / benchmark.stats["min"] / 1e6)


@pytest.mark.parametrize("spelling", GOALS)
def test_elements_a_second(spelling: str, benchmark: Any) -> None:
    """Sixteen million elements a round, which takes a tenth of a second; the goal is recorded, not asserted."""
    count = {"fma": 3, "add": 2, "mul": 2, "div": 2}.get(spelling.split(".")[0], 1)
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal(ELEMENTS).astype(np.float32) for _ in range(count)]
    asm = f"{spelling} {', '.join(f'${i}' for i in range(count + 1))};"
    half = spelling == "cvt.rn.f16.f32"
    constraints = ",".join(["=h" if half else "=r"] + ["r"] * count)
    got = benchmark(emulate, asm, constraints, columns, "float16" if half else "float32", target="sm_90a")
    record(benchmark, ELEMENTS, f"{GOALS[spelling]} M/s")
    if benchmark.stats:
        used = []
        for _ in range(3):
            before = time.process_time()
            emulate(asm, constraints, columns, "float16" if half else "float32", target="sm_90a")
            used.append(time.process_time() - before)
        benchmark.extra_info["M/s of two cores, by processor time"] = round(2 * ELEMENTS / min(used) / 1e6)
    assert got.shape == (ELEMENTS,)


PAIRS = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u16.u8 $0, t; }"


@pytest.mark.parametrize("way", ["emulate", "ml_dtypes"])
@pytest.mark.benchmark(group="float32 to e2m1, 16.8 million values")
def test_values_to_e2m1(way: str, benchmark: Any) -> None:
    """The goal is twice the rate of `astype`, which stores each value in a byte of its own."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    if way == "ml_dtypes":
        got = benchmark(x.astype, ml_dtypes.float4_e2m1fn)
        record(benchmark, ELEMENTS, "the yardstick")
        assert got.shape == (ELEMENTS,)
        return
    first, second = x[: ELEMENTS // 2], x[ELEMENTS // 2 :]
    got = benchmark(emulate, PAIRS, "=h,f,f", [first, second], "uint8", target="sm_100a")
    record(benchmark, ELEMENTS, "twice ml_dtypes")
    codes = x.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    assert np.array_equal(got, codes[: ELEMENTS // 2] << 4 | codes[ELEMENTS // 2 :])
