"""The sass backend: results only from forms that are taught, and only with the bits of the PTX."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
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
from ptxdiff.sass.cubin import MachineCode, Parameter, digest_of
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


@pytest.mark.slow
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


def test_a_kept_run_does_not_outlive_the_rows_that_it_rests_on(backend, monkeypatch) -> None:
    job = _job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32))
    assert backend.run(job).status == "ran"
    monkeypatch.delitem(rows.ROWS, "FMUL")
    assert "FMUL" in backend.run(job).words


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


# One run of machine code for several variants -------------------------------------------------------------------------

TWINS = ptxdiff.Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x + 1,
    variants={
        "unsigned": ptxdiff.asm("add.u32 $0, $1, 1;", "=r,r"),
        "signed": ptxdiff.asm("add.s32 $0, $1, 1;", "=r,r"),
        "two": ptxdiff.asm("add.u32 $0, $1, 2;", "=r,r"),
    },
)  # fmt: skip


def _twin(name: str, inputs: np.ndarray) -> Job:
    job = _job(SUM, inputs)
    return replace(job, case=TWINS, variant_name=name, variant=TWINS.variants[name])


@pytest.fixture
def runs(monkeypatch):
    """Records the runs of machine code."""
    found: list[object] = []
    real = sass.run_machine_code

    def counted(*given: Any, **more: Any) -> Any:
        found.append(given)
        return real(*given, **more)

    monkeypatch.setattr(sass, "run_machine_code", counted)
    return found


def test_equal_machine_code_on_equal_inputs_runs_once(backend, runs) -> None:
    values = np.arange(300, dtype=np.uint32)
    found = [backend.run(_twin(name, values)) for name in ("unsigned", "signed")]
    assert len(runs) == 1
    assert [outcome.status for outcome in found] == ["ran", "ran"]
    assert all((outcome.outputs["y"] == values + 1).all() for outcome in found)
    assert len({outcome.identity for outcome in found}) == 2  # their PTX differs


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "other",
    [
        lambda job: replace(job, inputs={"x": job.inputs["x"] + 1}),
        lambda job: _twin("two", job.inputs["x"]),
        lambda job: _twin("signed", job.inputs["x"][:200]),
        lambda job: replace(job, setup=replace(job.setup, num_warps=8)),
        lambda job: replace(job, setup=replace(job.setup, alignment=8)),
        lambda job: replace(job, target="sm_80"),
    ],
    ids=["inputs", "an immediate", "the shape", "warps", "alignment", "the target"],
)
def test_a_run_with_anything_else_is_its_own(backend, runs, other) -> None:
    job = _twin("unsigned", np.arange(300, dtype=np.uint32))
    found = [backend.run(job), backend.run(other(job))]
    assert len(runs) == 2
    assert [outcome.status for outcome in found] == ["ran", "ran"]


def test_a_run_with_other_scratch_memory_is_its_own(backend, runs, monkeypatch) -> None:
    """It is no argument of the kernel, and its machine code reads where it begins."""
    job, real = _twin("unsigned", np.arange(300, dtype=np.uint32)), sass.assembled
    assert backend.run(job).status == "ran"

    def with_scratch(given: Job) -> Any:
        launch, built = real(given)
        return launch, replace(built, compilation=replace(built.compilation, scratch=16))

    monkeypatch.setattr(sass, "assembled", with_scratch)
    backend.run(job)
    assert len(runs) == 2


def test_a_kept_run_is_compared_with_the_ptx_of_each_variant(backend, runs, monkeypatch) -> None:
    """An assembler that gives two variants the same code is wrong about one of them."""
    values, real = np.arange(300, dtype=np.uint32), sass.assembled
    right = real(_twin("unsigned", values))
    assert backend.run(_twin("unsigned", values)).status == "ran"

    def confused(given: Job) -> Any:
        launch, built = real(given)
        return launch, replace(built, assembly=right[1].assembly)

    monkeypatch.setattr(sass, "assembled", confused)
    outcome = backend.run(_twin("two", values))
    assert len(runs) == 1
    assert outcome.status == "not run"
    assert "machine code gives 0x00000001 and the PTX 0x00000002" in outcome.words


@pytest.mark.parametrize(("name", "most"), [("_MOST_RUNS", 1), ("_MOST_BYTES", 2000)])
def test_the_oldest_runs_are_forgotten(backend, runs, monkeypatch, name, most) -> None:
    monkeypatch.setattr(sass, name, most)
    values = np.arange(300, dtype=np.uint32)
    for variant in ("unsigned", "two", "two", "unsigned"):
        assert backend.run(_twin(variant, values)).status == "ran"
    assert len(runs) == 3
    assert backend._runs._bytes == 1200


def test_a_kept_run_cannot_be_changed_by_who_got_it(backend) -> None:
    outcome = backend.run(_twin("unsigned", np.arange(300, dtype=np.uint32)))
    with pytest.raises(ValueError, match="read-only"):
        outcome.outputs["y"][0] = 7


def test_all_of_a_kernel_is_in_its_digest() -> None:
    """A kernel that differs in any field, or in any field of an instruction that decides something, is another one."""
    add = text.functions(
        '\t.section\t.text.k,"ax"\n        /*0000*/  IADD3 R1, R2, 0x1, RZ ;  /* 0x0000000102017810 */\n'
        "                                              /* 0x000fe20007ffe0ff */\n"
    )["k"]
    code = MachineCode("k", "sm_90", add, (Parameter(0, 8),), 0x210, {3: b"one"}, 16, 32, b"four", (1, 1, 1))
    (first,) = add.instructions

    def function(**changed: Any) -> Any:
        return replace(add, instructions=(first._replace(**changed),))

    others: dict[str, list[Any]] = {
        "name": ["l"], "target": ["sm_80"], "base": [0x160], "parameters": [(Parameter(0, 4),), (Parameter(8, 8),)],
        "banks": [{3: b"two"}, {4: b"one"}], "local": [32], "shared": [16], "variables": [b"five"],
        "cluster": [None, (2, 1, 1)],
        "function": [
            replace(add, labels={"done": 16}), replace(add, instructions=()), function(low=first.low + (1 << 32)),
            function(high=first.high + (1 << 41)), function(text="IADD3 R1, R2, 0x2, RZ"), function(address=16),
        ],
    }  # fmt: skip
    assert others.keys() == {field.name for field in fields(MachineCode)}
    changed = [replace(code, **{name: value}) for name, values in others.items() for value in values]
    assert len({digest_of(one) for one in (code, *changed)}) == 1 + len(changed)


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


@pytest.mark.sample(2)
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
