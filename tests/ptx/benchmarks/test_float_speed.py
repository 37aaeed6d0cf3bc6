"""How many float32 elements a second `emulate` serves; the goals are for two cores that nothing else uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.ptx import emulate

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
    "rcp.approx.ftz.f32": 72,
    "sin.approx.f32": 72,
    "tanh.approx.f32": 72,
    "fma.rn.f16x2": 72,
}
"""Millions a second. 72 is every one of 2**32 inputs in a minute."""


@pytest.mark.parametrize("spelling", GOALS)
def test_elements_a_second(spelling: str, benchmark: Any) -> None:
    """Sixteen million elements a round, which takes a tenth of a second; the goal is noted, not asserted."""
    count = {"fma": 3, "add": 2, "mul": 2, "div": 2}.get(spelling.split(".")[0], 1)
    rng = np.random.default_rng(0)
    columns = [rng.standard_normal(ELEMENTS).astype(np.float32) for _ in range(count)]
    asm = f"{spelling} {', '.join(f'${i}' for i in range(count + 1))};"
    constraints = ",".join(["=r"] + ["r"] * count)
    benchmark.extra_info["goal"] = f"{GOALS[spelling]} M/s"
    got = benchmark(emulate, asm, constraints, columns, "float32", target="sm_90a")
    if benchmark.stats:
        benchmark.extra_info["M/s"] = round(ELEMENTS / benchmark.stats["min"] / 1e6)
    assert got.shape == (ELEMENTS,)
