"""Faults of an asm block's operands fail in a case, whichever backend runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.records import Result, read

BIAS = '''"""The reciprocal square root of a sum; one variant makes the sum in its input's register."""

from harness import Case, asm, ulp
from references.formats import F32


def added(a, b):
    import torch

    x = a.to(torch.int32).view(torch.float32) + b.to(torch.int32).view(torch.float32)
    return x.view(torch.int32).to(torch.int64) & 0xFFFFFFFF


case = Case(
    inputs={"a": F32, "b": F32},
    outputs={"y": F32},
    reference=added,
    variants={
        "in its input": asm("add.f32 $1, $1, $2; mov.b32 $0, $1;", constraints="=&f,f,f", pack=1),
        "in a register of its own": asm(
            "{ .reg .f32 t; add.f32 t, $1, $2; mov.b32 $0, t; }", constraints="=&f,f,f", pack=1
        ),
        "tied": asm("add.f32 $1, $1, $2; mov.b32 $0, $1;", constraints="=f,0,f", pack=1),
    },
)
'''


@pytest.fixture
def results(run_cases: Callable[..., pytest.RunResult]) -> Callable[..., dict[str, list[Result]]]:
    """Run a case's source and give the results by variant."""

    def run(source: str, *arguments: str) -> dict[str, list[Result]]:
        run_cases("--ptx-records=run.jsonl", *arguments, planted=source)
        found: dict[str, list[Result]] = {}
        for result in read(Path("run.jsonl")).results:
            found.setdefault(result.key.variant, []).append(result)
        return found

    return run


@pytest.mark.parametrize("backend", ["emulator", "assembler"])
def test_asm_that_writes_an_input_fails_on_every_backend(results, backend):
    found = results(BIAS, f"--ptx-backend={backend}")
    assert {r.verdict for r in found["in a register of its own"] + found["tied"]} == {"pass"}
    (planted,) = found["in its input"]
    assert planted.verdict == "fail"
    assert "`add.f32 $1, $1, $2;` writes the input $1" in planted.message
    assert planted.findings
