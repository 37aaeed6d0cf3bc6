"""pytest's items of --ptx-prove."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff.records import read

CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import F32, U32

case = Case(
    inputs={"a": U32, "b": U32}, outputs={"y": U32}, reference=lambda a, b: a ^ b,
    variants={
        "right": asm("xor.b32 $0, $1, $2;", "=r,r,r", pack=1),
        "rare": asm(
            "{ .reg .b64 w; .reg .pred p; .reg .b32 t; mov.b64 w, {$1, $2}; "
            "setp.eq.u64 p, w, 0x165667B19E3779F9; xor.b32 t, $1, $2; @p add.u32 t, t, 1; mov.b32 $0, t; }",
            "=&r,r,r", pack=1,
        ),
    },
)
approximate = Case(
    inputs={"a": F32}, outputs={"y": F32}, reference=lambda a: a & 0,
    variants={"ex2": asm("{ .reg .b32 t; ex2.approx.ftz.f32 t, $1; and.b32 $0, t, 1; }", "=r,r", pack=1)},
)
"""


def test_items_prove_fail_and_are_skipped(pytester: pytest.Pytester) -> None:
    """A mistake for one of 2^64 inputs fails the proof."""
    pytester.mkdir("cases").joinpath("flips.py").write_text(CASE)
    found = pytester.runpytest_inprocess(
        "cases", "--ptx-prove", "-k", "proof", "-rs", "-p", "no:cacheprovider", "--ptx-records", "run.jsonl"
    )
    found.assert_outcomes(passed=1, failed=1, skipped=1)
    found.stdout.fnmatch_lines(["*flips::rare [[]sm_90a[]] is wrong for a = 0x9e3779f9; b = 0x165667b1: y: expected*"])
    found.stdout.fnmatch_lines(["*not proved: approximate: the bits of ex2.approx.ftz.f32 are a model*"])
    proofs = {p.variant: p for p in read(pytester.path / "run.jsonl").proofs}
    assert {n: p.verdict for n, p in proofs.items()} == {
        "right": "proved", "rare": "counterexample", "ex2": "not settled",
    }  # fmt: skip
    assert proofs["rare"].inputs == {"a": ("0x9e3779f9",), "b": ("0x165667b1",)}


TRITON = """
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import U32


@triton.jit
def right(a):
    return a ^ 5


@triton.jit
def rare(a):
    return tl.where(a == 0x9E3779F9, a, a ^ 5)


case = Case(
    inputs={"a": U32}, outputs={"y": U32}, reference=lambda a: a ^ 5,
    variants={"asm": asm("xor.b32 $0, $1, 5;", "=r,r", pack=1), "right": plain(right), "rare": plain(rare)},
)
"""


@pytest.mark.slow
def test_items_of_triton_functions_and_of_machine_code(pytester: pytest.Pytester) -> None:
    """Machine code is right even of a function that is not: the question is what ptxas kept."""
    pytest.importorskip("triton")
    pytester.mkdir("cases").joinpath("flips.py").write_text(TRITON)
    found = pytester.runpytest_inprocess(
        "cases", "--ptx-prove-against=reference", "--ptx-prove-against=sass", "-k", "proof", "-rs", "-p",
        "no:cacheprovider", "--ptx-records", "run.jsonl",
    )  # fmt: skip
    found.assert_outcomes(passed=5, failed=1)
    found.stdout.fnmatch_lines(["*flips::rare [[]sm_90a[]] is wrong for a = 0x9e3779f9: y: expected*"])
    proofs = {(p.variant, p.against): p for p in read(pytester.path / "run.jsonl").proofs}
    assert {key: p.verdict for key, p in proofs.items()} == {
        ("asm", "reference"): "proved", ("right", "reference"): "proved", ("rare", "reference"): "counterexample",
        ("asm", "sass"): "proved", ("right", "sass"): "proved", ("rare", "sass"): "proved",
    }  # fmt: skip
    assert proofs["right", "sass"].assembler
    by_default = pytester.runpytest_inprocess("cases", "--ptx-prove", "--collect-only", "-q", "-k", "proof")
    by_default.stdout.fnmatch_lines(["*rare[[]proof[]]"])
    by_default.stdout.no_fnmatch_line("*proof-sass*")
