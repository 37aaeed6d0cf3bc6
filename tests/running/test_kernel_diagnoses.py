"""Expected failures of whole kernels: only results in the opposite order within registers are excused."""

import json

CASE = '''"""Next numbers, each at its place."""

import triton
import triton.language as tl

from ptxdiff import Case, ExpectedFailure, kernel
from ptxdiff.references.formats import I32

REVERSED = ExpectedFailure("results reversed within registers", reason="planted")


@triton.jit
def next_number(x, y, n: tl.constexpr, MOVED: tl.constexpr, ADDED: tl.constexpr):
    i = tl.arange(0, n)
    tl.store(y + (i ^ MOVED), tl.load(x + i) + ADDED)


def variant(moved, added):
    meta = {"MOVED": moved, "ADDED": added}
    return kernel(next_number, grid=(1,), num_warps=1, meta=meta, expected_failure=REVERSED)


case = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=lambda x: (x + 1) & 0xFFFFFFFF,
    sizes=[{"n": 64}],
    variants={"pairs": variant(1, 1), "fours": variant(3, 1), "a warp apart": variant(32, 1), "right": variant(0, 1),
              "wrong": variant(0, 2), "elsewhere": variant(2, 1)},
)
'''


def test_only_results_that_are_right_in_the_opposite_order_are_excused(run_cases, pytester, monkeypatch):
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")
    run_cases("--ptx-records=r.jsonl", case=CASE)
    found = [json.loads(line) for line in (pytester.path / "r.jsonl").read_text().splitlines()]
    outcomes = {}
    for r in (r for r in found if r["record"] == "result" and r["key"]["input_set"] == "random/1"):
        outcomes[r["key"]["variant"]] = "expected" if r.get("expected_failure") else r["verdict"]
    assert {n: outcomes[n] for n in ("pairs", "fours", "a warp apart")} == dict.fromkeys(
        ("pairs", "fours", "a warp apart"), "expected"
    )
    assert (outcomes["wrong"], outcomes["elsewhere"]) == ("fail", "fail")
    right = [r for r in found if r["record"] == "result" and r["key"]["variant"] == "right"]
    assert any("expected to fail in the straight context" in r.get("words", "") for r in right)


WORDS = '''"""Four words of each counter, in the order of a generator of random numbers."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references.formats import Scalar, U32


@triton.jit
def four_words(seed, y, n: tl.constexpr):
    i = tl.arange(0, 4 * n)
    tl.store(y + (i ^ 3), (i + seed) * 40503 * 65537)


def reference(seed):
    import torch

    return (torch.arange(256) + seed) * 40503 * 65537 & 0xFFFFFFFF


case = Case(
    inputs={"seed": Scalar(U32)}, outputs={"y": U32["4*n"]}, reference=reference, sizes=[{"n": 64}],
    variants={"reversed": kernel(four_words, grid=(1,), num_warps=1)},
)
'''


def test_words_in_memory_are_in_the_wrong_order_and_not_reversed_in_registers(run_cases, monkeypatch):
    """A register of 32 bits holds one of these words."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")
    result = run_cases(case=WORDS)
    result.assert_outcomes(failed=1)
    said = "*: each 4 consecutive codes of y are in the wrong order: those of places 3, 2, 1, 0; *"
    result.stdout.fnmatch_lines([said])
    result.stdout.no_fnmatch_line("*within registers*")
