"""Variants written in LLVM's and CUDA C++'s conventions run like Triton's, on every backend, with the same checks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import Case, asm
from ptxdiff.backends.compiled import compile_job
from ptxdiff.backends.emulator import EmulatorBackend
from ptxdiff.backends.snippet import shareable
from ptxdiff.emulator.text import CONVENTIONS
from ptxdiff.jobs import Job, Setup
from ptxdiff.model import variants as model_variants
from ptxdiff.model.derive import DerivationError, asm_form, compiled_form, packs_of
from ptxdiff.model.identity.definition import changed_parts, definition
from ptxdiff.model.variants import CaseError
from ptxdiff.records import read
from ptxdiff.references.formats import F16, F32
from ptxdiff.triton.build import build
from ptxdiff.triton.diagnostics import Refusal

SPELLINGS = '''"""The sum of two halves in three spellings, right ones and mistaken ones."""

from ptxdiff import Case, asm, exact
from ptxdiff.references.formats import U16


def added(a, b):
    return (a + b) & 0xFFFF


case = Case(
    inputs={"a": U16, "b": U16},
    outputs={"y": U16},
    reference=added,
    match=exact(),
    targets="sm_90a",
    variants={
        "triton": asm("add.u16x2 $0, $1, $2;", "=r,r,r", pack=2),
        "llvm": asm("add.u16 $0, $2, $4; add.u16 $1, $3, $5;", "=&h,=h,h,h,h,h", pack=2, convention="llvm"),
        "cuda": asm("add.u16x2 %0, %1, %2;", '"=r"(y) : "r"(a), "r"(b)', pack=2, convention="cuda"),
        "cuda, one half": asm("add.u16 %0, %1, %2;", '"=h"(y) : "h"(a), "h"(b)', convention="cuda"),
        "cuda, derived": asm("add.u16 %0, %1, %2;", convention="cuda"),
        "cuda, the wrong half": asm(
            "add.u16 %0, %2, %4; add.u16 %1, %3, %4;",
            '"=&h"(y0), "=h"(y1) : "h"(a0), "h"(a1), "h"(b0), "h"(b1)', pack=2, convention="cuda",
        ),
        "llvm, no early clobber": asm(
            "add.u16 $0, $2, $4; add.u16 $1, $3, $5;", "=h,=h,h,h,h,h", pack=2, convention="llvm"
        ),
        "cuda, an input written": asm(
            "add.u16 %1, %1, %2; mov.b16 %0, %1;", '"=h"(y) : "h"(a), "h"(b)', convention="cuda"
        ),
    },
)
'''


def test_three_conventions_run_beside_each_other_and_mistakes_show_in_each(run_cases):
    run_cases("--ptx-records=run.jsonl", "--ptx-backend=emulator", planted=SPELLINGS)
    verdicts, messages = {}, {}
    for result in read(Path("run.jsonl")).results:
        verdicts.setdefault(result.key.variant, set()).add(result.verdict)
        messages.setdefault(result.key.variant, []).append(result.message)
    right = ("triton", "llvm", "cuda", "cuda, one half", "cuda, derived")
    assert {name: verdicts[name] for name in right} == {name: {"pass"} for name in right}
    assert "fail" in verdicts["cuda, the wrong half"]
    assert "fail" in verdicts["llvm, no early clobber"]
    assert any("make the constraint of $0 '=&h'" in m for m in messages["llvm, no early clobber"])
    assert verdicts["cuda, an input written"] == {"fail"}
    assert "writes the input $1" in messages["cuda, an input written"][0]


ROUNDED = {
    "triton": asm("rcp.rn.f32 $0, $1;", "=f,f", pack=1),
    "llvm": asm("rcp.rn.f32 $0, $1;", "=f,f", convention="llvm"),
    "cuda": asm("rcp.rn.f32 %0, %1;", '"=f"(y) : "f"(x)', convention="cuda"),
    "cuda, constraints alone": asm("rcp.rn.f32 %0, %1;", "=f,f", convention="cuda"),
}
PAIRS = {
    "triton": asm("mul.f16x2 $0, $1, $1;", "=r,r", pack=2),
    "llvm": asm("mul.f16x2 $0, $1, $1;", "=r,r", pack=2, convention="llvm"),
    "cuda": asm("mul.f16x2 %0, %1, %1;", '"=r"(y) : "r"(x)', pack=2, convention="cuda"),
}


def case_of(fmt, variants):
    return Case(inputs={"x": fmt}, outputs={"y": fmt}, reference=lambda x: x, variants=variants)


def job_of(case, name):
    variant = case.variants[name]
    setup = Setup(pack=max(variant.texts), shape=(64,))
    return Job(
        case=case,
        case_name="c",
        path="c.py",
        variant_name=name,
        variant=variant,
        target="sm_90a",
        setup=setup,
        inputs={},
    )


@pytest.mark.parametrize(("fmt", "variants"), [(F32, ROUNDED), (F16, PAIRS)])
def test_the_ptx_through_triton_is_the_same_for_all(fmt, variants):
    case = case_of(fmt, variants)
    texts = {compile_job(job_of(case, name)).compilation.ptx for name in variants}
    assert len(texts) == 1
    assert "inline asm" in texts.pop()


def test_operands_of_one_half_are_accepted_by_triton_and_ptxas():
    halves = asm(
        "mul.f16 %0, %2, %2; mul.f16 %1, %3, %3;", '"=&h"(y0), "=h"(y1) : "h"(x0), "h"(x1)', pack=2, convention="cuda"
    )
    kernel = compile_job(job_of(case_of(F16, {"halves": halves}), "halves"))
    assert kernel.compilation.ptx.count("mul.f16 ") == 2
    assert not isinstance(build(kernel.compilation.spec), Refusal)


@pytest.mark.parametrize(
    ("text", "constraints"),
    [
        ("xor.b16 $0, $2, 0x8000; xor.b16 $1, $3, 0x8000;", "=&h,=h,h,h"),
        ("xor.b32 $0, $1, 0x80008000;", "=r,r"),
    ],
)
def test_the_compiled_kernel_computes_what_the_block_does(text, constraints):
    variant = asm(text, constraints, pack=2, convention="llvm")
    case = case_of(F16, {"v": variant})
    codes = np.arange(64, dtype=np.uint16) * 1021
    job = replace(job_of(case, "v"), inputs={"x": codes})
    outcome = EmulatorBackend().run(job)
    assert outcome.status == "ran", outcome.words
    np.testing.assert_array_equal(outcome.outputs["y"], codes ^ 0x8000)


def test_in_a_loop_only_registers_with_the_same_elements_are_shared():
    early = "xor.b16 $0, $1, 0x8000; xor.b16 $0, $0, $2;"
    variant = asm(early, "=h,h,r", pack=1, convention="llvm")
    case = Case(
        inputs={"x": F16, "z": F16},
        outputs={"y": F16},
        reference=lambda x, z: x,
        variants={"v": variant},
        carry={"y": "z"},
    )
    form = asm_form(case, variant, 1)
    assert shareable(case, form, {"y": "x"}) == {0: 1}
    assert shareable(case, form, {"y": "z"}) == {}


def test_messages_are_the_emulators():
    assert CONVENTIONS == model_variants.CONVENTIONS


def test_the_identity_contains_the_convention():
    one, other = (asm("add.f16x2 $0, $1, $1;", "=r,r", pack=2, convention=c) for c in ("triton", "llvm"))
    case = case_of(F16, {"one": one, "other": other})
    parts = changed_parts(definition(case, one), definition(case, other))
    assert parts == ("convention",)
    assert asm_form(case, one, 2) != asm_form(case, other, 2)


def test_a_derived_variant_has_the_packs_that_tritons_has():
    case = case_of(F16, {"t": asm("neg.f16 $0, $1;"), "c": asm("neg.f16 %0, %1;", convention="cuda")})
    for pack in packs_of(case, case.variants["t"]):
        assert asm_form(case, case.variants["c"], pack) == asm_form(case, case.variants["t"], pack)


def test_tritons_form_runs():
    halves = asm("neg.f16 $0, $2; neg.f16 $1, $3;", "=&h,=h,h,h", pack=2, convention="llvm")
    case = case_of(F16, {"v": halves})
    own = asm_form(case, halves, 2)
    form = compiled_form(case, own)
    assert (own.convention, form.convention) == ("llvm", "triton")
    assert form.constraints == "=&r,r"
    assert compiled_form(case, replace(form)) == form


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (asm("neg.f16 %0, %x1;", '"=h"(y) : "h"(x)', convention="cuda"), "%x1 is written %%x1"),
        (asm("{ neg.f16 $0, $2; neg.f16 $1, $3; }", pack=2, convention="llvm"), "constraints= is missing"),
        (
            asm("neg.f16 %0, %1;", '"=h"(x) : "h"(y)', convention="cuda"),
            r"the statement has \(x\) where the case has 'y'",
        ),
    ],
)
def test_what_cannot_be_translated_is_refused_in_words(variant, words):
    case = case_of(F16, {"v": variant})
    with pytest.raises(DerivationError, match=words):
        asm_form(case, variant, max(variant.texts))


def test_operands_that_do_not_fit_are_refused_before_triton_sees_them():
    variant = asm("neg.f16 $0, $1;", "=h,h", pack=4, convention="llvm")
    case = case_of(F16, {"v": variant})
    with pytest.raises(DerivationError, match="do not fit pack=4"):
        compiled_form(case, asm_form(case, variant, 4))


def test_an_unknown_convention_is_refused():
    with pytest.raises(CaseError, match="convention='gcc' is none of triton, llvm, cuda"):
        asm("neg.f16 %0, %1;", convention="gcc")


@pytest.mark.parametrize("named", ["y", "x", "acc"])
def test_a_register_that_is_read_and_written_goes_by_the_name_of_its_output_or_its_input(named):
    """`"+f"(acc)` has one expression, and is two arguments of a case: an input and an output."""
    variant = asm("sub.f32 %0, %0, %1;", f'"+f"({named}) : "f"(z)', convention="cuda")
    case = Case(inputs={"z": F32, "x": F32}, outputs={"y": F32}, reference=abs, variants={"v": variant})
    assert asm_form(case, variant, 1).constraints == "=f,f,0"


@pytest.mark.parametrize(
    ("names", "first"), [(("z", "x"), "(z) where the case has 'y'"), (("x", "y"), "(y) where the")]
)
def test_a_register_that_is_read_and_written_by_another_name_is_refused(names, first):
    variant = asm("sub.f32 %0, %0, %1;", '"+f"({}) : "f"({})'.format(*names), convention="cuda")
    case = Case(inputs={"z": F32, "x": F32}, outputs={"y": F32}, reference=abs, variants={"v": variant})
    with pytest.raises(DerivationError) as error:
        asm_form(case, variant, 1)
    assert first in str(error.value)


def test_a_number_in_a_register_operand_is_refused_with_what_to_write():
    """CUDA C++ has registers for constants; a case has no input for one."""
    words = '"=r"(y) : "r"(x), "r"(0x64006400), "n"(3)'
    case = Case(
        inputs={"x": F32}, outputs={"y": F32}, source="PTX ISA, lop3", reference=lambda x: x,
        variants={"v": asm("lop3.b32 %0, %1, %2, 0, %3;", words, pack=1, convention="cuda")},
    )  # fmt: skip
    with pytest.raises(DerivationError, match=r'numbers 0x64006400, .*write "n"\(0x64006400\)'):
        asm_form(case, case.variants["v"], 1)
    fitting = replace(case, inputs={"x": F32, "k": F32}, reference=lambda x, k: x)
    assert asm_form(fitting, case.variants["v"], 1).constraints == "=r,r,r"
