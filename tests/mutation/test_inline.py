"""Mutants of asm within Triton functions: the asm is found, the mutant compiled in its place, and survivors are
settled."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.model.load import load
from ptxdiff.mutation import kernels
from ptxdiff.mutation.campaign import Budget, mutate
from ptxdiff.mutation.settle import Search
from ptxdiff.mutation.trial import Subject
from ptxdiff.triton.compile import swapping
from ptxdiff.triton.spec import AsmSwap

SEARCH = Search(16, 1 << 22, 30.0)
FEW = Budget(search=Search(16, 1 << 16, 2.0))
SOURCE = '''
"""Asm in Triton functions, in a module of its own and here."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, kernel, plain
from ptxdiff.references.formats import U32

from ._texts import COUNTED, counted_beside

SHIFT = 1
SHIFTED = tl.constexpr(f"shl.b32 $0, $1, {SHIFT};")


@triton.jit
def shifted(x):
    return tl.inline_asm_elementwise(SHIFTED, "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def given(x, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)


@triton.jit
def whole(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, shifted(tl.load(x + i, mask=i < n, other=0)), mask=i < n)


@triton.jit
def added(x):
    return x + x


def doubled(x):
    """Twice, in 32 bits."""
    return (x << 1) & 0xFFFFFFFF


def ones(x):
    """How many bits are set."""
    return sum((x >> k) & 1 for k in range(32))


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=doubled,
    variants={
        "constant": plain(shifted),
        "argument": plain(given, constants={"TEXT": "shl.b32 $0, $1, 1;"}),
        "without": plain(added),
        "asm": asm("shl.b32 $0, $1, 1;"),
    },
    source="made for this test",
)
beside = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=ones,
    variants={"module": plain(counted_beside)}, source="made for this test",
)
kernels = Case(
    inputs={"x": U32["n"]}, outputs={"y": U32["n"]}, reference=doubled, sizes=[{"n": 100}],
    variants={"kernel": kernel(whole, grid=(1,), meta={"BLOCK": 128})}, source="made for this test",
)
'''
TEXTS = """
import triton
import triton.language as tl

COUNTED = tl.constexpr("popc.b32 $0, $1;")


@triton.jit
def counted_beside(x):
    return tl.inline_asm_elementwise(COUNTED, "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)
"""
# After a shift, an xor and a multiplication one number in 2^20 gets a special result: no input set has such a number.
WEAK = '''
"""A word that, mixed and multiplied with 0x9E3779B1, ends in 0x5A5A5 gives 1, every other one 0."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references.formats import U32


@triton.jit
def equals(x):
    text: tl.constexpr = "{ .reg .b32 t; .reg .pred p; shr.u32 t, $1, 13; xor.b32 t, t, $1; mul.lo.u32 t, t, 0x9E3779B1; and.b32 t, t, 0xFFFFF; setp.eq.u32 p, t, 0x5A5A5; selp.b32 $0, 1, 0, p; }"
    return tl.inline_asm_elementwise(text, "=&r,r", [x], dtype=tl.uint32, is_pure=True, pack=1)


def special(x):
    """1 for the one pattern."""
    return torch.where(((x ^ x >> 13) * 0x9E3779B1 & 0xFFFFF) == 0x5A5A5, 1, 0)


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=special, variants={"triton": plain(equals)},
    source="made for this test",
)
'''  # noqa: E501


@pytest.fixture
def cases(tmp_path: Path):
    folder = tmp_path / "cases"
    folder.mkdir()
    (folder / "_texts.py").write_text(TEXTS)
    (folder / "shifts.py").write_text(SOURCE)
    return {c.attribute: c for c in load(folder / "shifts.py")}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("case", "variant", "text"),
    [
        ("case", "constant", "shl.b32 $0, $1, 1;"),
        ("case", "argument", "shl.b32 $0, $1, 1;"),
        ("beside", "module", "popc.b32 $0, $1;"),
        ("kernels", "kernel", "shl.b32 $0, $1, 1;"),
    ],
)
def test_asm_is_found_in_every_way_of_writing_it_and_its_mistakes_are_killed(cases, case, variant, text):
    loaded = cases[case]
    assert kernels.blocks_of(Subject(loaded, "sm_90a", 60.0), variant) == ((text, "=r,r"),)
    (found,) = mutate(loaded, [variant], "sm_90a", FEW, ["asm"])
    assert found.words == ""
    assert found.count("killed") >= 2
    assert not found.count("missed")
    assert not found.count("undecided")


@pytest.mark.slow
def test_as_many_are_killed_as_of_the_same_asm_outside(cases):
    inside, outside = mutate(cases["case"], ["constant", "asm"], "sm_90a", FEW, ["asm"])
    common = inside.killed.keys() & outside.killed.keys()
    assert common >= {"opcode", "operands swapped", "shift amount"}
    assert {n: inside.killed[n] for n in common} == {n: outside.killed[n] for n in common}


def test_a_function_without_asm_says_so(cases):
    (found,) = mutate(cases["case"], ["without"], "sm_90a", FEW, ["asm"])
    assert found.words == "it has no asm of its own"


def test_a_mutant_does_not_change_its_variant(cases):
    """The variant has its own asm, both when compiled before its mutants and after them."""
    subject = Subject(cases["case"], "sm_90a", 60.0)
    assert subject.baseline("constant") == ""
    with swapping(AsmSwap("shl.b32 $0, $1, 1;", "=r,r", "shl.b32 $0, $1, 2;", "=r,r")):
        assert "does not pass" in subject.baseline("constant")
    assert subject.baseline("constant") == ""


def test_a_mutant_that_is_in_no_kernel_is_no_survivor(cases):
    """If a swap without a match were accepted, the original would run and the mutant would count as equivalent."""
    subject = Subject(cases["case"], "sm_90a", 60.0)
    with swapping(AsmSwap("shl.b32 $0, $1, 7;", "=r,r", "shl.b32 $0, $1, 8;", "=r,r")):
        found = subject.run("constant")
    assert {r.verdict for r in found.results} == {"error"}
    assert "the kernel has no inline asm 'shl.b32 $0, $1, 7;', which was to be replaced" in found.results[0].words


@pytest.mark.slow
def test_the_input_that_detects_a_missed_mutant_is_offered_as_an_edge(tmp_path):
    (tmp_path / "cases").mkdir()
    path = tmp_path / "cases" / "weak.py"
    path.write_text(WEAK)
    subject = Subject(load(path)[0], "sm_90a", 60.0)
    assert subject.baseline("triton") == ""
    blocks = kernels.blocks_of(subject, "triton")
    mutant = next(m for m in kernels.inline_mutants(blocks) if "0x5a5a6" in m.swap.new_text)
    assert kernels.try_inline(subject, "triton", mutant).fate == "survived"
    (settled,) = kernels.settle_inline(subject, "triton", [mutant], SEARCH)
    assert settled.fate == "missed", "the planted weakness was not found"
    edge = int(dict(settled.edge)["x"], 16)
    assert (edge ^ edge >> 13) * 0x9E3779B1 & 0xFFFFF in (0x5A5A5, 0x5A5A6)


@pytest.mark.slow
def test_mutants_that_the_binder_refuses_are_counted_separately_in_asm_with_effects_too():
    loaded = load(Path("cases/effects.py"))[0]
    (found,) = mutate(loaded, ["counter"], "sm_90a", FEW, ["asm"])
    assert found.refused >= 2  # an address that is a number, an atomic addition of 16 bits
    assert not found.count("undecided")
    assert found.count("killed") >= 3


def test_a_variant_without_asm_is_not_run(cases, monkeypatch):
    monkeypatch.setattr(Subject, "baseline", lambda self, name: pytest.fail(name))
    (found,) = mutate(cases["case"], ["without"], "sm_90a", FEW, ["asm"])
    assert found.words == "it has no asm of its own"
