"""The sass backend: results only from forms that are taught, and only with the bits of the PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ptxdiff
from ptxdiff.backends import BACKENDS, create, sass
from ptxdiff.backends.assembler import assembled
from ptxdiff.backends.compiled import EmulatedTensor
from ptxdiff.conformance import taught
from ptxdiff.jobs import Job, Outcome, Setup, block_of
from ptxdiff.references.formats import F32, U32, Format
from ptxdiff.sass import rows, text
from tests.support.sass.assembly import plant

TARGET = "sm_90a"


def _case(fmt: Format, name: str, text: str, reference: Callable[..., Any] = lambda x: x) -> ptxdiff.Case:
    variants = {name: ptxdiff.asm(text, "=r,r")}
    return ptxdiff.Case(inputs={"x": fmt}, outputs={"y": fmt}, reference=reference, variants=variants)


SUM = _case(U32, "add", "add.u32 $0, $1, 1;", lambda x: x + 1)
FUSED = _case(F32, "mul", "mul.f32 $0, $1, $1;")
CONTRACTED = _case(F32, "two", "{ .reg .f32 p; mul.f32 p, $1, $1; add.f32 $0, p, $1; }")
UNDEFINED = _case(U32, "unset", "{ .reg .u32 p; add.u32 $0, p, $1; }")


def _job(case: ptxdiff.Case, inputs: np.ndarray) -> Job:
    (name,) = case.variants
    setup = Setup(shape=inputs.shape, block=block_of(1))
    return Job(case, "case", Path(__file__), name, case.variants[name], TARGET, setup, {"x": inputs})


@pytest.fixture
def backend():
    made = create("sass")
    if words := made.unavailable(TARGET):
        pytest.skip(words)
    return made


def test_it_is_a_backend_that_auto_includes() -> None:
    assert BACKENDS["sass"].automatic


def test_it_runs_a_kernel(backend) -> None:
    values = np.arange(300, dtype=np.uint32)
    outcome = backend.run(_job(SUM, values))
    assert outcome.status == "ran", outcome.words
    assert (outcome.outputs["y"] == values + 1).all()
    assert outcome.evidence == "model"
    assert outcome.identity
    assert any("timing" in note for note in outcome.notes)


def test_it_runs_a_kernel_with_scratch_memory(backend) -> None:
    from tests.support.small_kernels import described

    case = ptxdiff.Case(
        inputs={"x": F32["M", "N"]}, outputs={"y": F32["M", "N"]}, reference=lambda x: x, sizes=[{"M": 16, "N": 16}],
        variants={"described": ptxdiff.kernel(described, grid=(1,), meta={"B": 16})},
    )  # fmt: skip
    values = np.arange(256, dtype=np.uint32).reshape(16, 16)
    setup = Setup(sizes={"M": 16, "N": 16})
    job = Job(case, "case", Path(__file__), "described", case.variants["described"], TARGET, setup, {"x": values})
    outcome = backend.run(job)
    assert outcome.status == "ran", outcome.words
    assert (outcome.outputs["y"] == values).all()


class PtxRan(Exception):
    """The kernel's own PTX ran."""


@pytest.fixture
def without_the_kernel(monkeypatch):
    """The PTX of the kernel around asm refuses to run."""

    def refused(*_: object) -> None:
        raise PtxRan

    monkeypatch.setattr(sass, "run_compiled", refused)


def test_asm_alone_says_what_is_right(backend, without_the_kernel) -> None:
    """With the bits of asm alone, the PTX of the kernel around it need not run."""
    values = np.arange(300, dtype=np.uint32)
    outcome = backend.run(_job(SUM, values))
    assert outcome.status == "ran", outcome.words
    assert (outcome.outputs["y"] == values + 1).all()


def test_other_bits_than_those_of_asm_alone_are_settled_by_the_kernel(backend, without_the_kernel, monkeypatch) -> None:
    monkeypatch.setattr(backend._alone, "asm_alone", lambda job: Outcome("ran", outputs={"y": job.inputs["x"]}))
    with pytest.raises(PtxRan):
        backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))


def test_asm_that_may_be_contracted_is_settled_by_the_kernel(backend, without_the_kernel) -> None:
    job = _job(CONTRACTED, np.arange(300, dtype=np.uint32))
    with pytest.raises(PtxRan):
        backend.run(replace(job, setup=replace(job.setup, fusion=True)))
    assert backend.run(job).status == "ran"


def test_a_loop_is_settled_by_the_kernel(backend, without_the_kernel) -> None:
    job = _job(replace(SUM, carry={"y": "x"}), np.arange(300, dtype=np.uint32))
    with pytest.raises(PtxRan):
        backend.run(replace(job, setup=replace(job.setup, context="loop", steps=3)))


def test_asm_that_depends_on_undefined_bits_is_settled_by_the_kernel(backend, without_the_kernel) -> None:
    with pytest.raises(PtxRan):
        backend.run(_job(UNDEFINED, np.arange(300, dtype=np.uint32)))


def test_what_machine_code_does_beside_the_right_bits_is_settled_by_the_kernel(
    backend, without_the_kernel, monkeypatch
) -> None:
    monkeypatch.setattr(EmulatedTensor, "changes", lambda _: ["an input was overwritten"])
    with pytest.raises(PtxRan):
        backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))


def test_a_form_that_is_not_taught_gives_no_result(backend, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(taught, "PATH", tmp_path / "none.jsonl")
    outcome = backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))
    assert outcome.status == "not run"
    assert "unsettled" in outcome.words
    assert "not taught" in outcome.words


def test_a_difference_from_the_ptx_accuses_nobody(backend, monkeypatch) -> None:
    """A wrong row that counts as taught: the words have both words, and no verdict rests on it."""
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _bigger)
        for r in rows.ROWS["FMUL"]
    ]
    plant(monkeypatch, "FMUL", planted)
    outcome = backend.run(_job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32)))
    assert outcome.status == "not run"
    assert "0x40100001" in outcome.words
    assert "0x40100000" in outcome.words


def _bigger(a: int, b: int) -> int:
    return 0x40100001


def test_an_instruction_without_a_row_gives_no_result(backend, monkeypatch) -> None:
    monkeypatch.delitem(rows.ROWS, "FMUL")
    outcome = backend.run(_job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32)))
    assert outcome.status == "not run"
    assert "FMUL" in outcome.words


def test_a_result_that_is_used_too_early_is_a_finding_of_its_own(backend, monkeypatch) -> None:
    """The wait of the instruction that uses what was loaded is removed from the control codes."""
    found = text.Control.of
    monkeypatch.setattr(text.Control, "of", lambda high: replace(found(high), waits=0))
    sass._read.cache_clear()
    outcome = backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))
    sass._read.cache_clear()
    assert outcome.status == "not run"
    assert "unsettled: machine code uses a result too early: 0x" in outcome.words
    assert not outcome.suspected


MIXED = ptxdiff.Case(
    inputs={"x": F32, "z": F32}, outputs={"y": F32}, reference=lambda x, z: x,
    variants={"two": ptxdiff.asm(
        "{ .reg .f32 p, q; mul.f32 p, $1, $1; add.f32 q, p, $2; mul.f32 p, $2, $2; add.rn.f32 $0, p, q; }", "=r,r,r",
    )},
)  # fmt: skip
KEPT = ptxdiff.Case(
    inputs={"x": F32, "z": F32}, outputs={"y": F32}, reference=lambda x, z: x,
    variants={"one": ptxdiff.asm(
        "{ .reg .f32 p, q; mul.f32 p, $1, $1; add.f32 q, p, $2; mul.f32 p, q, q; sub.f32 $0, p, $1; }", "=r,r,r",
    )},
)  # fmt: skip


def _pairs(count: int = 300) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {n: rng.uniform(0.5, 2, count).astype(np.float32).view(np.uint32) for n in "xz"}


@pytest.mark.parametrize(("case", "texts"), [(MIXED, ["add.f32"]), (KEPT, ["add.f32", "sub.f32"])])
def test_it_says_which_products_ptxas_fused(backend, case, texts) -> None:
    inputs = _pairs()
    job = replace(_job(case, inputs["x"]), inputs=inputs, setup=Setup(shape=(300,), block=block_of(1), fusion=True))
    outcome = backend.run(job)
    assert outcome.status == "ran", outcome.words
    lines = list(outcome.fused.values())
    assert all("mul.f32" in line for line in lines)
    assert {text for text in texts for line in lines if text in line} == set(texts)
    assert not any("add.rn.f32" in line for line in lines)
    ptx = outcome.artifacts.ptx.splitlines()
    assert all("add" in ptx[int(n) - 1] or "sub" in ptx[int(n) - 1] for n in outcome.fused)


def test_without_fusion_no_product_is_named(backend) -> None:
    inputs = _pairs()
    job = replace(_job(KEPT, inputs["x"]), inputs=inputs)
    outcome = backend.run(job)
    assert outcome.status == "ran", outcome.words
    assert outcome.fused == {}


APART = ptxdiff.Case(
    inputs={"x": F32, "z": F32}, outputs={"y": F32}, reference=lambda x, z: x,
    variants={"one": ptxdiff.asm(
        "{ .reg .f32 p, q; mul.f32 p, $1, $1; add.rn.f32 q, p, $2; mul.f32 p, q, q; sub.f32 $0, p, $1; }", "=r,r,r",
    )},
)  # fmt: skip


@pytest.mark.parametrize("wrong", [False, True])
def test_one_product_may_be_fused_and_another_apart(backend, monkeypatch, wrong) -> None:
    """Then the bits are neither of the two readings. Wrong bits are not explained by any choice of products."""
    inputs = _pairs()
    job = replace(_job(APART, inputs["x"]), inputs=inputs, setup=Setup(shape=(300,), block=block_of(1), fusion=True))
    launch, built = assembled(job)
    text = built.compilation.ptx
    assert "add.rn.f32" in text
    open_ = replace(built, compilation=replace(built.compilation, ptx=text.replace("add.rn.f32", "add.f32")))
    if wrong:
        planted = [
            rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _unrounded)
            for r in rows.ROWS["FFMA"]
        ]
        plant(monkeypatch, "FFMA", planted)
    outcome = backend._ran(job, launch, open_)
    if wrong:
        assert (outcome.status, outcome.fused) == ("not run", {})
    else:
        assert outcome.status == "ran", outcome.words
        assert outcome.fused
        assert all("sub.f32" in words and "add.f32" not in words for words in outcome.fused.values())


def _unrounded(a: int, b: int, c: int, ftz: int, rnd: int, sat: int) -> int:
    return 0x3FC00001


def test_a_result_carries_the_weakest_form_that_ran(backend, monkeypatch) -> None:
    monkeypatch.setattr("ptxdiff.backends.first_difference.weakest", lambda forms, target: ("FMUL", 2, 0))
    outcome = backend.run(_job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32)))
    assert outcome.weakest == "the weakest form that ran is FMUL, taught in 2 contexts, confirmed by no GPU"
