"""`ptxdiff list`: cases by family, and the variants whose PTX contains an instruction."""

from __future__ import annotations

import textwrap

import pytest

from ptxdiff.cli.list import uses
from tests.support.case_sources import FLIP
from tests.support.command_line import here, said

__all__ = ["here"]

TRITON = '''
"""Inline asm in Triton's functions."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import U8

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
    """Two case files, one without a family and one with."""
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
    assert lines[-2:] == ["", "2 cases, 5 variants, 1 family"]


def test_cases_without_families_have_no_headings(here, capsys):
    code, out, _ = said(capsys, "list")
    assert code == 0
    assert out.startswith("flip  (x: uint8)")
    assert out.endswith("\n\n1 case, 2 variants\n")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("popc", ["called"]),  # in a function that another calls
        ("clz", ["constant"]),  # with a guard, in a compile-time argument
        ("setp.lt", ["constant"]),
        ("setp.s32", ["constant"]),  # with another modifier in between
        ("and", ["derived"]),
        ("xor.b32", ["right", "wrong"]),
    ],
)
def test_variants_are_found_by_instruction(two, capsys, word, expected):
    code, out, _ = said(capsys, "list", "--using", word)
    assert (code, variants(out)) == (0, expected)


@pytest.mark.parametrize("word", ["lop3", "brev", "an", "xor.b64", "lt.setp"])
def test_an_unused_instruction_is_an_error_with_the_nearest_names(two, capsys, word):
    code, out, err = said(capsys, "list", "--using", word)
    assert (code, out) == (2, "")
    assert f"no variant here uses {word}; the nearest that are used:" in err
    assert ("xor.b32" in err) or word != "xor.b64"


def test_the_search_covers_only_the_given_names(two, capsys):
    assert said(capsys, "list", "flip", "--using", "popc")[0] == 2
    assert variants(said(capsys, "list", "flip", "right", "--using", "xor")[1]) == ["right"]


def test_a_word_is_an_opcode_and_modifiers_in_order():
    assert uses("mul.rn.f16x2", "mul")
    assert uses("mul.rn.f16x2", "mul.f16x2")
    assert not uses("mul24.lo.u32", "mul")
    assert not uses("mul.rn.f16x2", "mul.f16x2.rn")
    assert not uses("cvt.rn.f16.f32", "cvt.f16x2")


def test_a_family_is_one_word_or_several(here, capsys):
    (here / "cases" / "flip.py").write_text(FLIP.replace("reference=flipped,", "reference=flipped, family=3,"))
    code, _, err = said(capsys, "list")
    assert code == 2
    assert "family=3" in err


BROKEN = {
    "name": (
        "from ptxdiff import Case\n\ncase = Case(inputs=nothing)\n",
        "cases/broken.py:3: NameError: name",
    ),
    "syntax": ("from ptxdiff import Case\ncase = Case(\n", "cases/broken.py:2: SyntaxError"),
    "no case": ("import ptxdiff\n", "cases/broken.py: a case file binds a Case"),
    "exit": ("import sys\nimport ptxdiff\nsys.exit(0)\n", "cases/broken.py:3: SystemExit"),
    "two lines": ("import ptxdiff\nraise ValueError('one\\ntwo')\n", "cases/broken.py:2: ValueError: one two"),
}


@pytest.mark.parametrize(("source", "words"), BROKEN.values(), ids=list(BROKEN))
def test_a_broken_file_hides_no_other_one(two, capsys, source, words):
    (two / "cases" / "broken.py").write_text(source)
    code, out, err = said(capsys, "list")
    assert code == 2
    assert variants(out) == ["called", "constant", "derived", "right", "wrong"]
    assert err.count("\n") == 1
    assert err.startswith(f"ptxdiff list: {words}")


def test_several_broken_files_have_a_line_each_for_every_way_of_naming_them(two, capsys):
    for name in ("a", "z"):
        (two / "cases" / f"{name}.py").write_text("import ptxdiff\nharness.nothing\n")
    for words in ((), ("cases/a.py", "cases/flip.py", "z.py")):
        code, out, err = said(capsys, "list", *words)
        assert code == 2
        assert "right" in variants(out)
        assert [line.split(":")[1].strip() for line in err.splitlines()] == ["cases/a.py", "cases/z.py"]


def test_a_broken_file_does_not_stop_the_search_for_an_instruction(two, capsys):
    (two / "cases" / "broken.py").write_text("import ptxdiff\n1 / 0\n")
    code, out, err = said(capsys, "list", "--using", "popc")
    assert (code, variants(out)) == (2, ["called"])
    assert "cases/broken.py:2: ZeroDivisionError" in err
    code, out, err = said(capsys, "list", "cases/broken.py", "--using", "popc")
    assert (code, out) == (2, "")
    assert "ZeroDivisionError" in err
    assert "no variant here uses" not in err


def test_a_variant_of_a_broken_file_is_an_error_with_its_reason(two, capsys):
    (two / "cases" / "broken.py").write_text("import ptxdiff\n1 / 0\n")
    code, out, err = said(capsys, "list", "cases/broken.py::right")
    assert (code, out) == (2, "")
    assert "cases/broken.py:2: ZeroDivisionError" in err
