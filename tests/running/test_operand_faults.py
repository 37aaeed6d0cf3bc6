"""Faults of an asm block's operands make a case fail on every backend."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, asm
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.derive import AsmForm
from ptxdiff.records import Result, read
from ptxdiff.references.formats import U8
from ptxdiff.running.asm_faults import fault_of

BIAS = '''"""The reciprocal square root of a sum; one variant makes the sum in its input's register."""

from ptxdiff import Case, asm, ulp
from ptxdiff.references.formats import F32


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
    """A function that runs a case's source and returns the results by variant."""

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


LANES = '''"""Bytes that become 1; two variants read a special register, and of one the result depends on it."""

import torch

from ptxdiff import Case, asm
from ptxdiff.references.formats import U8
from ptxdiff.running.asm_faults import fault_of

case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=torch.ones_like,
    variants={
        "by lane": asm("{ .reg .b32 t; mov.u32 t, %laneid; and.b32 t, t, 3; min.u32 $0, t, $1; }", "=r,r", pack=1),
        "of no effect": asm("{ .reg .b32 t; mov.u32 t, %laneid; and.b32 t, t, 0; add.u32 $0, t, 1; }", "=r,r", pack=1),
        "a word like one": asm("{ .reg .b32 %tidy; mov.b32 %tidy, 1; mov.b32 $0, %tidy; }", "=r,r", pack=1),
    },
)
'''


@pytest.mark.parametrize("backend", ["emulator", "assembler"])
def test_a_result_that_depends_on_a_special_register_fails_on_every_backend(results, backend):
    found = results(LANES, f"--ptx-backend={backend}")
    assert {r.verdict for r in found["of no effect"] + found["a word like one"]} == {"pass"}
    assert {r.verdict for r in found["by lane"]} == {"fail"}
    (text,) = found["by lane"][0].findings
    assert (
        "a result depends on %laneid, which has no value in asm alone: line 1, column 16: element 0 of output 0" in text
    )


CLOBBER = '''"""Clear the lowest bit that is set, in bytes: asm that writes its output before it has read its input."""

from ptxdiff import Case, ExpectedFailure, asm
from ptxdiff.references.formats import U8
from ptxdiff.running.asm_faults import fault_of

EARLY = "xor.b32 $0, $1, 0x01010101; and.b32 $0, $0, $1;"
LATE = "{ .reg .b32 t; xor.b32 t, $1, 0x01010101; and.b32 $0, t, $1; }"
GUARD = "{ .reg .pred p; .reg .b32 t; mov.b32 t, 5; setp.lt.u32 p, t, 9; xor.b32 t, $1, 0x01010101;"
GUARDED = GUARD + "@p mov.b32 $0, t; @!p mov.b32 $0, t; and.b32 $0, $0, $1; }"
GUARDED_LAST = GUARD + "@p and.b32 $0, t, $1; @!p and.b32 $0, t, $1; }"
EXPECTED = {"expected_failure": ExpectedFailure("missing early clobber", context="shared")}


case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=lambda x: x & 0xFE,
    variants={
        "missing": asm(EARLY, constraints="=r,r", pack=4),
        "early clobber": asm(EARLY, constraints="=&r,r", pack=4),
        "reads first": asm(LATE, constraints="=r,r", pack=4),
        "guarded": asm(GUARDED, constraints="=r,r", pack=4),
        "guarded and right": asm(GUARDED_LAST, constraints="=r,r", pack=4),
        "tied": asm(LATE, constraints="=r,0", pack=4),
        "known": asm(EARLY, constraints="=r,r", pack=4, **EXPECTED),
        "cured": asm(EARLY, constraints="=&r,r", pack=4, **EXPECTED),
    },
)
'''

SEVERAL = '''"""Two outputs that are both written before the input is read for the last time."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

TEXT = "add.u32 $0, $2, 1; add.u32 $1, $2, 2; xor.b32 $0, $0, $2; xor.b32 $1, $1, $2;"
case = Case(
    inputs={"x": U32},
    outputs={"y": U32, "z": U32},
    reference=lambda x: ((x + 1 & 0xFFFFFFFF) ^ x, (x + 2 & 0xFFFFFFFF) ^ x),
    variants={"both": asm(TEXT, constraints="=r,=r,r"), "one": asm(TEXT, constraints="=&r,=r,r")},
)
'''

EQUAL = '''"""A result made in the register of an input: wrong where the compiler finds both inputs equal."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U8
from ptxdiff.running.asm_faults import fault_of

case = Case(
    inputs={"a": U8, "b": U8},
    outputs={"y": U8},
    reference=lambda a, b: (a ^ 1) & b,
    variants={
        "tied": asm("xor.b32 $0, $0, 0x01010101; and.b32 $0, $0, $2;", constraints="=r,0,r", pack=4),
        "early clobber": asm("xor.b32 $0, $0, 0x01010101; and.b32 $0, $0, $2;", constraints="=&r,0,r", pack=4),
    },
)
'''


@pytest.mark.parametrize(
    ("variant", "repair"),
    [
        ("both", "make the constraint of $0 '=&r', and of $1 '=&r'"),
        ("one", "make the constraint of $1 '=&r'"),
    ],
)
def test_every_output_that_needs_an_early_clobber_is_named_at_once(results, variant, repair):
    failed = [r for r in results(SEVERAL)[variant] if r.verdict == "fail"]
    assert failed
    assert all(f"missing early clobber: {repair}; " in r.words for r in failed)


def test_a_missing_early_clobber_fails_without_carry(results):
    found = results(CLOBBER)
    failing = {name for name, each in found.items() if any(r.verdict == "fail" for r in each)}
    assert failing == {"missing", "guarded", "known", "cured"}
    failed = [r for r in found["missing"] if r.verdict == "fail"]
    assert {r.key.context for r in failed} == {"shared"}
    assert {r.diagnosis for r in failed} == {"missing early clobber"}
    assert "with $0 (output y) in the register of $1 (input x), as the compiler may choose" in failed[0].message
    assert "make the constraint of $0 '=&r'" in failed[0].message
    assert "context=shared" in failed[0].replay
    assert all(r.expected_failure for r in found["known"] if r.verdict == "fail")
    words = [r.words for r in found["cured"] if r.verdict == "fail"]
    assert words == ["expected to fail in the shared context (missing early clobber) and did not"]
    for name in ("early clobber", "reads first", "tied"):
        assert {r.key.context for r in found[name]} == {"straight"}, "proved by the text, not run again"
    assert {r.key.context for r in found["guarded and right"]} == {"straight", "shared"}, "run, with right results"


def test_an_output_that_is_tied_to_one_of_two_equal_inputs_is_the_other_too(results):
    found = results(EQUAL)
    assert {r.verdict for r in found["early clobber"]} == {"pass"}
    failed = [r for r in found["tied"] if r.verdict == "fail"]
    assert {r.key.context for r in failed} == {"shared"}
    assert "where the two inputs $1 and $2 are equal" in failed[0].message


CARRIED = '''"""A step of a generator: bits go in as a float's, and come out as an integer's."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import F32, U32


@triton.jit
def in_triton(x):
    return x.to(tl.uint32, bitcast=True) * 1664525 + 1013904223


def step(x):
    return (x * 1664525 + 1013904223) & 0xFFFFFFFF


case = Case(
    inputs={"x": F32},
    outputs={"y": U32},
    reference=step,
    carry={"y": "x"},
    variants={
        "asm": asm("mad.lo.u32 $0, $1, 1664525, 1013904223;", constraints="=r,r", pack=1),
        "missing": asm(
            "{ .reg .b32 t; mul.lo.u32 $0, $1, 1664525; sub.u32 $0, $0, $1; add.u32 $0, $0, $1;"
            "add.u32 $0, $0, 1013904223; }",
            constraints="=r,r",
            pack=1,
        ),
        "triton": plain(in_triton),
    },
)
'''


def test_carry_passes_bits_between_formats_of_the_same_size(results):
    found = results(CARRIED)
    assert {r.verdict for r in found["asm"] + found["triton"]} == {"pass"}
    assert {r.key.context for r in found["asm"]} == {r.key.context for r in found["triton"]} == {"straight", "loop"}
    failed = [r for r in found["missing"] if r.verdict == "fail"]
    assert {r.key.context for r in failed} == {"loop", "shared"}
    assert {r.diagnosis for r in failed} == {"missing early clobber"}
    loop = next(r for r in failed if r.key.context == "loop")
    assert "applied 1 time straight" in loop.message, "the first step differs already"


PLACE = '''"""A dither by the element's place, as its author takes the thread for one."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=lambda x: x & 0xFFFFFFFF,
    variants={
        "by a high bit of the lane": asm(
            "{ .reg .b32 t; mov.u32 t, %laneid; shr.u32 t, t, 5; add.u32 $0, $1, t; }", constraints="=r,r", pack=1
        ),
        "by the clock": asm(
            "{ .reg .b32 t; mov.u32 t, %globaltimer_hi; shr.u32 t, t, 31; add.u32 $0, $1, t; }",
            constraints="=r,r",
            pack=1,
        ),
        "reads the clock alone": asm(
            "{ .reg .b32 t; mov.u32 t, %clock; mov.b32 $0, $1; }", constraints="=r,r", pack=1
        ),
    },
)
'''


def test_a_result_that_depends_on_a_thread_or_a_clock_fails_though_its_bits_are_right(results):
    """The stand-ins are zero, so that only the dependence shows the fault."""
    found = results(PLACE)
    assert {r.verdict for r in found["reads the clock alone"]} == {"pass"}
    for variant, register in (("by a high bit of the lane", "%laneid"), ("by the clock", "%globaltimer_hi")):
        failed = [r for r in found[variant] if r.verdict == "fail"]
        assert failed
        assert f"a result depends on {register}" in failed[0].message


WITHIN = '''"""Twice a number, in asm within a function of Triton's."""

import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references.formats import U32


@triton.jit
def in_its_input(x):
    return tl.inline_asm_elementwise(
        "add.u32 $1, $1, $1; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1
    )


@triton.jit
def in_its_output(x):
    return tl.inline_asm_elementwise("add.u32 $0, $1, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)


case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=lambda x: (2 * x) & 0xFFFFFFFF,
    variants={"in its input": plain(in_its_input), "in its output": plain(in_its_output)},
)
'''


@pytest.mark.parametrize("backend", ["emulator", "assembler"])
def test_asm_within_a_function_that_writes_an_input_passes_on_no_backend(results, backend):
    found = results(WITHIN, f"--ptx-backend={backend}")
    assert {r.verdict for r in found["in its output"]} == {"pass"}
    (planted,) = found["in its input"]
    assert planted.verdict == "error"
    assert "inline asm, line 1" in planted.words
    assert "writes the input $1" in planted.words


def test_the_limit_of_a_run_applies_to_shared_registers(tmp_path):
    endless = "{ .reg .pred p; mov.b32 $0, 0; L: add.u32 $0, $0, 1; setp.lt.u32 p, $1, 256; @p bra L; }"
    case = Case(
        inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x,
        variants={"v": asm(endless, constraints="=r,r", pack=4)},
    )  # fmt: skip
    setup = Setup(pack=4, shape=(4,), context="shared")
    job = Job(case, "c", tmp_path / "c.py", "v", case.variants["v"], "sm_90a", setup, {"x": np.zeros(4, np.uint8)})
    began = time.monotonic()
    outcome = EmulatorBackend(limit=0.5).run(job)
    assert outcome.status == "error"
    assert "0.5 s" in outcome.words
    assert time.monotonic() - began < 20


def test_a_fault_is_that_of_the_text_with_its_constraints() -> None:
    """A text that writes an input under some constraints writes an output under others."""
    text = "add.u32 $1, $1, 1; mov.b32 $0, $1;"
    variant = asm(text, constraints="=r,r", pack=1)
    case = Case(inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x, variants={"v": variant})
    job = Job(case, "c", Path("c.py"), "v", variant, "sm_90a", Setup(), {})
    for _ in range(2):
        assert "$1" in str(fault_of(job, AsmForm(text, "=r,r", 1)))
        assert fault_of(job, AsmForm(text, "=r,=r", 1)) is None
        assert fault_of(job, AsmForm(text.replace("$1, $1", "$0, $1"), "=r,r", 1)) is None
