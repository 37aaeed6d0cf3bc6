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


CLOBBER = '''"""A sum of three: what asm does that writes its output before it has read every input."""

from harness import Case, ExpectedFailure, asm
from references.formats import U32

EARLY = "add.u32 $0, $1, $2; add.u32 $0, $0, $3;"
LATE = "{ .reg .b32 t; add.u32 t, $1, $2; add.u32 $0, t, $3; }"
GUARDED = "{ .reg .pred p; setp.lt.u32 p, $1, $2; @p add.u32 $0, $1, $2; @!p add.u32 $0, $1, $2; add.u32 $0, $0, $3; }"
GUARDED_LAST = (
    "{ .reg .pred p; .reg .b32 t; add.u32 t, $1, $2; setp.lt.u32 p, $1, $2;"
    "@p add.u32 $0, t, $3; @!p add.u32 $0, t, $3; }"
)


def total(a, b, c):
    return (a + b + c) & 0xFFFFFFFF


case = Case(
    inputs={"a": U32, "b": U32, "c": U32},
    outputs={"y": U32},
    reference=total,
    variants={
        "missing": asm(EARLY, constraints="=r,r,r,r", pack=1),
        "early clobber": asm(EARLY, constraints="=&r,r,r,r", pack=1),
        "reads first": asm(LATE, constraints="=r,r,r,r", pack=1),
        "guarded": asm(GUARDED, constraints="=r,r,r,r", pack=1),
        "guarded and right": asm(GUARDED_LAST, constraints="=r,r,r,r", pack=1),
        "tied": asm(EARLY, constraints="=r,r,r,0", pack=1),
        "tied too, read first": asm("{ .reg .b32 t; add.u32 t, $1, $2; add.u32 $0, t, $3; }", "=r,0,r,r", pack=1),
        "tied and equal": asm("add.u32 $0, $0, $2; add.u32 $0, $0, $3;", "=r,0,r,r", pack=1),
        "known": asm(
            EARLY,
            constraints="=r,r,r,r",
            pack=1,
            expected_failure=ExpectedFailure("missing early clobber", context="shared"),
        ),
        "cured": asm(
            EARLY,
            constraints="=&r,r,r,r",
            pack=1,
            expected_failure=ExpectedFailure("missing early clobber", context="shared"),
        ),
    },
)
'''


def test_a_missing_early_clobber_fails_without_carry(results):
    found = results(CLOBBER)
    failing = {name for name, each in found.items() if any(r.verdict == "fail" for r in each)}
    assert failing == {"missing", "tied", "tied and equal", "guarded", "known", "cured"}
    for name in ("missing", "tied and equal"):
        failed = [r for r in found[name] if r.verdict == "fail"]
        assert {r.key.context for r in failed} == {"shared"}
        assert {r.diagnosis for r in failed} == {"missing early clobber"}
        assert "in the register of $3 (input c)" in failed[0].message
        assert "make the constraint of $0 '=&r'" in failed[0].message
    told = [r.words for r in found["cured"] if r.verdict == "fail"]
    assert told == ["expected to fail in the shared context (missing early clobber) and did not"]
    assert all(r.expected_failure for r in found["known"] if r.verdict == "fail")


def test_asm_that_reads_before_it_writes_is_not_run_again(results):
    found = results(CLOBBER)
    for name in ("early clobber", "reads first", "tied too, read first"):
        assert {r.key.context for r in found[name]} == {"straight"}
    assert {r.key.context for r in found["guarded and right"]} == {"straight", "shared"}, "run, and found to be right"
