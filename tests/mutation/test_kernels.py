"""Mutants of whole kernels' PTX: each instruction can be changed, runs in its place, and the kernel itself stays
unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.model.load import load
from ptxdiff.mutation import kernels
from ptxdiff.mutation.asm import kernel_mutants, replaced
from ptxdiff.mutation.campaign import Budget, mutate
from ptxdiff.mutation.settle import Search
from ptxdiff.mutation.trial import Subject

FEW = Budget(search=Search(16, 1 << 16, 2.0))
PTX = """.version 8.0
.target sm_80
.address_size 64

.visible .entry tripled(.param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    .shared .align 4 .b8 kept[128];
    ld.param.u64 %rd0, [x];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r0, [n];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 p, %r1, %r0;
    mul.wide.u32 %rd2, %r1, 4;
    add.s64 %rd3, %rd0, %rd2; // x + 4 tid; the text of a comment is left alone: add.s64 a, b, c;
    add.s64 %rd4, %rd1, %rd2;
    mov.u32 %r2, 0;
    @!p ld.global.u32 %r2, [%rd3];
    mov.u32 %r4, kept;
    shl.b32 %r5, %r1, 2;
    add.s32 %r5, %r5, %r4;
    st.shared.u32 [%r5], %r2;
    bar.sync 0;
    xor.b32 %r5, %r5, 64;
    ld.shared.u32 %r3, [%r5];
    add.u32 %r3, %r3, %r2;
    @!p st.global.u32 [%rd4], %r3;
    ret;
}
"""
# A thread's partner for the shared sum is 16 threads away; with one or two warps its word belongs to another thread.
SOURCE = '''
"""Each element and the one 16 places away."""

import torch

from ptxdiff import Case, ptx
from ptxdiff.references.formats import U32

TEXT = """%s"""


def summed(x):
    """With its partner's."""
    return (x + x.reshape(-1, 2, 16).flip(1).reshape(-1)) & 0xFFFFFFFF


case = Case(
    inputs={"x": U32["n"]}, outputs={"y": U32["n"]}, reference=summed, sizes=[{"n": 32}],
    variants={"given": ptx(TEXT, grid=1, block=32, parameters=["x", "y", "n"])}, source="made for this test",
)
'''
TRITON = '''
"""Twice a number, in a whole kernel and as a function of elements."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, plain
from ptxdiff.references.formats import U32


@triton.jit
def added(x):
    return x + x


@triton.jit
def whole(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, added(tl.load(x + i, mask=i < n, other=0)), mask=i < n)


def doubled(x):
    """Twice, in 32 bits."""
    return (x << 1) & 0xFFFFFFFF


kernels = Case(
    inputs={"x": U32["n"]}, outputs={"y": U32["n"]}, reference=doubled, sizes=[{"n": 100}],
    variants={"kernel": kernel(whole, grid=(1,), meta={"BLOCK": 128})}, source="made for this test",
)
case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=doubled, variants={"triton": plain(added)},
    source="made for this test",
)
'''


@pytest.fixture
def given(tmp_path: Path):
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "given.py"
    path.write_text(SOURCE % PTX)
    return load(path)[0]


@pytest.fixture
def compiled(tmp_path: Path):
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "compiled.py"
    path.write_text(TRITON)
    return {c.attribute: c for c in load(path)}


def mutant(subject: Subject, change: str) -> kernels.PlacedMutant:
    found = kernels.kernels_of(subject, "given")
    assert not isinstance(found, str)
    return next(m for m in kernels.placed_mutants(found) if m.mutant.change == change)


@pytest.mark.parametrize(
    ("operator", "change"),
    [
        ("comparison", "setp.ge.u32 p, %r1, %r0; -> setp.gt.u32 p, %r1, %r0;"),
        ("instruction dropped", "bar.sync 0; -> "),
        ("guard negated", "@!p ld.global.u32 %r2, [%rd3]; -> @p ld.global.u32 %r2, [%rd3];"),
        ("shift amount", "shl.b32 %r5, %r1, 2; -> shl.b32 %r5, %r1, 3;"),
        ("address", "ld.shared.u32 %r3, [%r5]; -> ld.shared.u32 %r3, [%r5+16];"),
        ("register replaced", "add.u32 %r3, %r3, %r2; -> add.u32 %r3, %r3, %r3;"),
        ("constant off by one", "mul.wide.u32 %rd2, %r1, 4; -> mul.wide.u32 %rd2, %r1, 5;"),
    ],
)
def test_each_instruction_of_a_kernel_is_changed_in_its_place(operator, change):
    found = {m.change: m for m in kernel_mutants(PTX)}
    assert found[change].operator == operator
    before, after = (PTX.splitlines(), replaced(PTX, found[change].changes).splitlines())
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_no_two_mutants_of_a_kernel_are_the_same_text():
    texts = [replaced(PTX, m.changes) for m in kernel_mutants(PTX)]
    assert len(texts) > 60
    assert PTX not in texts


def test_given_ptx_is_mutated_and_no_wrong_mutant_passes(given):
    (found,) = mutate(given, ["given"], "sm_90a", FEW, ["asm"])
    assert found.words == ""
    assert found.count("killed") > 40
    assert not found.count("missed")
    assert not found.count("undecided"), [s for s in found.survivors if s.fate == "undecided"]


def test_a_dropped_barrier_does_not_pass_with_right_bits(given):
    """One warp in lockstep gives the right bits without the barrier, so only the race makes the mutant fail."""
    subject = Subject(given, "sm_90a", 60.0)
    assert subject.baseline("given") == ""
    trial = kernels.try_kernel(subject, "given", mutant(subject, "bar.sync 0; -> "))
    assert trial.fate == "killed"
    assert "race" in trial.words or "barrier" in trial.words


def test_a_mutant_does_not_change_its_variant(given):
    subject = Subject(given, "sm_90a", 60.0)
    assert subject.baseline("given") == ""
    wrong = mutant(subject, "add.u32 %r3, %r3, %r2; -> sub.u32 %r3, %r3, %r2;")
    assert kernels.try_kernel(subject, "given", wrong).fate == "killed"
    assert subject.baseline("given") == ""


def test_a_mutant_whose_place_is_in_no_kernel_is_no_survivor(given):
    """If the mutant were accepted, the original would run, and the mutant would count as equivalent."""
    subject = Subject(given, "sm_90a", 60.0)
    found = mutant(subject, "shl.b32 %r5, %r1, 2; -> shl.b32 %r5, %r1, 3;")
    text = found.kernel.compilation.ptx.replace("tripled", "another")
    elsewhere = kernels.PlacedMutant(
        kernels.Compiled(kernels.replace(found.kernel.compilation, ptx=text), found.kernel.setup), found.mutant
    )
    with elsewhere.in_place() as place:
        assert subject.baseline("given") == ""
    assert not place.used
    (settled,) = kernels.settle_kernels(subject, "given", [elsewhere], FEW.search)
    assert settled.fate == "undecided"


def test_a_kernel_that_does_not_end_does_not_pass(given):
    subject = Subject(given, "sm_90a", 60.0).limited(0.5)
    found = mutant(subject, "bar.sync 0; -> ")
    endless = "bar.sync 0; AGAIN: bra AGAIN;"
    changes = tuple((word, endless) for word, _ in found.mutant.changes)
    placed = kernels.PlacedMutant(found.kernel, kernels.KernelMutant("endless", "", changes))
    trial = kernels.try_kernel(subject, "given", placed)
    assert (trial.fate, "still running" in trial.words) == ("killed", True)


@pytest.mark.slow
def test_tritons_ptx_of_a_kernel_is_mutated_on_demand(compiled):
    few = Budget(most=30, search=FEW.search)
    (found,) = mutate(compiled["kernels"], ["kernel"], "sm_90a", few, ["ptx"])
    assert (found.subject, found.words) == ("ptx", "")
    assert found.count("killed") > 10
    assert found.left_out
    assert not found.count("missed")
    assert not found.count("undecided")
    (other,) = mutate(compiled["case"], ["triton"], "sm_90a", few, ["ptx"])
    assert other.words == "it is no kernel() of a whole-kernel case"
    assert [m.subject for m in mutate(compiled["kernels"], ["kernel"], "sm_90a", few)] == ["asm", "reference"]
