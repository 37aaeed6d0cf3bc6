"""Which asm a sweep runs in registers, and which chunks run as the variant's own kernel beside it."""

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ptxdiff.inputs import input_sets
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.case import Case
from ptxdiff.model.compilers import PtxasChoice
from ptxdiff.model.variants import PlainVariant, asm
from ptxdiff.references.formats import E2M3, F32
from ptxdiff.sweep.kernels import OWN, asm_in_registers, own_chunks


def job_of(variant, output=F32, **setup):
    case = Case(inputs={"x": F32}, outputs={"y": output}, reference=lambda x: x, variants={"v": variant})
    return Job(case, "case", Path("."), "v", variant, "sm_90a", Setup(shape=(1 << 20,), **setup))


def counted(job):
    return next(s for s in input_sets(job.case, "exhaustive") if s.name.startswith("exhaustive"))


def served(job, inputs=None):
    return asm_in_registers(job, inputs or counted(job)) is not None


def test_asm_that_is_a_function_of_its_inputs_runs_in_registers():
    job = job_of(asm("rcp.rn.f32 $0, $1;"), pack=2)
    found = asm_in_registers(job, counted(job))
    assert found.pack == 2
    assert found.text.count("rcp.rn.f32") == 2


@pytest.mark.parametrize(
    "text",
    [
        "mul.f32 $0, $1, 0f40000000; mul.f32 $0, $0, $1;",  # an early clobber is missing
        "{ .reg .u32 t; mov.u32 t, %laneid; add.u32 $0, t, $1; }",
        "frob.f32 $0, $1;",
    ],
)
def test_asm_whose_results_may_depend_on_its_kernel_does_not(text):
    job = job_of(asm(text, constraints="=f,f", pack=1))
    assert not served(job)


def test_neither_do_other_contexts_assemblers_compilers_variants_and_inputs():
    right = asm("rcp.rn.f32 $0, $1;")
    assert served(job_of(right))
    assert not served(job_of(right, context="loop"))
    assert not served(job_of(right, fusion=True))
    assert not served(job_of(right, assembler=PtxasChoice("/usr/bin/ptxas", "12.9.86", 3, "0" * 16)))
    assert not served(job_of(replace(right, compiler="tlx")))
    job = job_of(right)
    assert not served(replace(job, variant=PlainVariant(function=None)), counted(job))
    assert not served(job_of(asm("cvt.rn.f32 $0, $1;", constraints="=r,r", pack=1), output=E2M3))
    job = job_of(right)
    assert not served(job, replace(counted(job), group=4))
    assert not served(job, replace(counted(job), generator=CountedTuples({"x": F32}, 2)))


def test_chunks_with_special_values_and_some_of_the_others_run_as_the_variants_kernel():
    for chunks in (1, 2, 3, 16, 32, 256):
        own = own_chunks(chunks)
        assert {0, chunks - 1} <= set(own) <= set(range(chunks))
        assert own == sorted(set(own))
    assert {127, 128} <= set(own)
    assert all(set(own) & set(range(k, k + OWN)) for k in range(0, 256, OWN))
