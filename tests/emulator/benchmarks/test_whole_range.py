"""Time and memory that `emulate` needs for all 2**32 inputs of an instruction."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SWEEP = """
import json, resource, sys, time
import numpy as np
from ptxdiff.emulator import emulate

spelling, bits, step = sys.argv[1], int(sys.argv[2]), 1 << 24
first = np.arange(step, dtype=np.uint32)
emulate(f"{spelling} $0, $1;", "=r,r", [first], "uint32")
began, total = time.perf_counter(), 0
for start in range(0, 1 << bits, step):
    got = emulate(f"{spelling} $0, $1;", "=r,r", [first | np.uint32(start)], "uint32")
    total += got.size
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
print(json.dumps({"inputs": total, "seconds": round(seconds, 1), "peak MiB": peak}))
"""
"""A program that sweeps in pieces of 16 million inputs; it drops the result of a piece before the next."""


def sweep(spelling: str, bits: int) -> dict[str, Any]:
    """Inputs, seconds and peak memory of a sweep over the lowest 2**bits patterns, in a process of its own."""
    printed = subprocess.run(
        [sys.executable, "-c", SWEEP, spelling, str(bits)], capture_output=True, text=True, check=True
    ).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


@pytest.mark.parametrize("spelling", ["rcp.rn.f32", "ex2.approx.f32", "sin.approx.f32", "tanh.approx.f32"])
def test_all_inputs(spelling: str, benchmark: Any) -> None:
    """One round. The goal is under a minute on two cores that nothing else uses, in memory that does not grow."""
    found = benchmark.pedantic(sweep, (spelling, 32), rounds=1)
    benchmark.extra_info.update(found, goal="60 s")
    assert found["inputs"] == 1 << 32


def test_memory_does_not_grow_with_the_inputs() -> None:
    short, long = sweep("neg.f32", 26), sweep("neg.f32", 29)
    assert long["peak MiB"] < short["peak MiB"] + 64
