"""`ptxdiff list`: cases by family, and those whose PTX holds an instruction."""

from __future__ import annotations

import textwrap

import pytest

from harness.cli.using import uses
from tests.case_sources import FLIP
from tests.cli.test_commands import here, said

__all__ = ["here"]

TRITON = '''
"""Inline asm in Triton's functions."""

import triton
import triton.language as tl

from harness import Case, asm, plain
from references.formats import U8

POPC = tl.constexpr("popc.b32 $0, $1;")


@triton.jit
def inner(x):
    """brev.b32 in a docstring is no asm;"""
    return tl.inline_asm_elementwise(POPC, "=r,r", [x], dtype=tl.uint8, is_pure=True, pack=1)


@triton.jit
def outer(x):
    return inner(x)


@triton.jit
def given(x, TEXT: tl.constexpr):
    return tl.inline_asm_elementwise(TEXT, "=r,r", [x], dtype=tl.uint8, is_pure=True, pack=1)


def count(x):
    return x


case = Case(
    inputs={"x": U8},
    outputs={"y": U8},
    reference=count,
    variants={
        "called": plain(outer),
        "constant": plain(given, constants={"TEXT": "{ .reg .pred p; setp.lt.s32 p, $1, 3; @p clz.b32 $0, $1; }"}),
        "derived": asm("and.b32 $0, $1, $1; // lop3.b32 in a comment", packs=(4,)),
    },
    family="counting",
)
'''


@pytest.fixture
def two(here):
    """A case without a family, and one with."""
    (here / "cases" / "counts.py").write_text(textwrap.dedent(TRITON).lstrip())
    return here


def variants(text: str) -> list[str]:
    """The names of the variants in a listing."""
    return [line.split()[0] for line in text.splitlines() if line.startswith("    ")]


def test_cases_are_grouped_by_family(two, capsys):
    code, out, _ = said(capsys, "list")
    lines = out.splitlines()
    assert code == 0
    assert [line for line in lines if line.endswith(":")] == ["counting:", "no family:"]
    assert lines.index("counting:") < out.splitlines().index("no family:")
    assert lines[lines.index("no family:") + 1].startswith("flip  ")
    assert variants(out) == ["called", "constant", "derived", "right", "wrong"]


def test_cases_without_families_have_no_headings(here, capsys):
    code, out, _ = said(capsys, "list")
    assert code == 0
    assert out.startswith("flip  (x: uint8)")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("popc", ["called"]),  # in a function that another calls
        ("clz", ["constant"]),  # guarded, in a compile-time argument
        ("setp.lt", ["constant"]),
        ("setp.s32", ["constant"]),  # with a modifier between
        ("and", ["derived"]),
        ("xor.b32", ["right", "wrong"]),
    ],
)
def test_variants_are_found_by_instruction(two, capsys, word, expected):
    code, out, _ = said(capsys, "list", "--using", word)
    assert (code, variants(out)) == (0, expected)


@pytest.mark.parametrize("word", ["lop3", "brev", "an", "xor.b64", "lt.setp"])
def test_what_nobody_uses_is_said_with_what_is_near(two, capsys, word):
    code, out, err = said(capsys, "list", "--using", word)
    assert (code, out) == (2, "")
    assert f"no variant here uses {word}; the nearest that are used:" in err
    assert ("xor.b32" in err) or word != "xor.b64"


def test_the_search_stays_within_the_names_given(two, capsys):
    assert said(capsys, "list", "flip", "--using", "popc")[0] == 2
    assert variants(said(capsys, "list", "flip", "right", "--using", "xor")[1]) == ["right"]


def test_a_word_is_an_opcode_and_modifiers_in_order():
    assert uses("mul.rn.f16x2", "mul")
    assert uses("mul.rn.f16x2", "mul.f16x2")
    assert not uses("mul24.lo.u32", "mul")
    assert not uses("mul.rn.f16x2", "mul.f16x2.rn")
    assert not uses("cvt.rn.f16.f32", "cvt.f16x2")


def test_a_family_is_a_word_or_several(here, capsys):
    (here / "cases" / "flip.py").write_text(FLIP.replace("reference=flipped,", "reference=flipped, family=3,"))
    code, _, err = said(capsys, "list")
    assert code == 2
    assert "family=3" in err
