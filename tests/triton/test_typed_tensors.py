"""Tensors of 8-bit floats in whole kernels: bytes, or Triton's own types where the declaration asks for them."""

import pytest

from ptxdiff import Case, asm
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import BF16, E4M3, E5M2

CASE = """
import triton
import triton.language as tl

from ptxdiff import Case, kernel
from ptxdiff.references import conversion
from ptxdiff.references.formats import E4M3, E5M2, F32


@triton.jit
def narrowed(x, y, n, BLOCK: tl.constexpr, TO: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n).to(TO), mask=i < n)


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n).to(tl.float32) SECOND, mask=i < n)


def case_of(x, y, function, reference, **meta):
    return Case(
        inputs={"x": x["n"]}, outputs={"y": y["n"]}, reference=reference, sizes=[{"n": 300}],
        variants={"v": kernel(function, grid="ceil(n/BLOCK)", meta={"BLOCK": 128, **meta})}, source="a test",
    )


def to(fmt):
    return lambda x: conversion.convert(x, source=F32, target=fmt, satfinite=True)


e4m3 = case_of(F32, E4M3.typed, narrowed, to(E4M3), TO=tl.constexpr(tl.float8e4nv))
bytes_ = case_of(F32, E4M3, narrowed, to(E4M3), TO=tl.constexpr(tl.float8e4nv))
loaded = case_of(E5M2.typed, F32, doubled, lambda x: conversion.convert(x, source=E5M2, target=F32))
"""


def test_a_kernel_stores_and_loads_types_of_its_own(run_cases):
    result = run_cases(typed=CASE.replace("SECOND", ""))
    result.stdout.fnmatch_lines(
        ["*bytes_::v*: error: *cannot cast fp8e4nv*(the tensor holds bytes; in a case E4M3.typed[[]...[]]*"]
    )
    result.assert_outcomes(passed=2, failed=1)


def test_a_wrong_kernel_fails(run_cases):
    result = run_cases("cases/typed.py", "-k", "loaded", typed=CASE.replace("SECOND", "* 2"))
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*loaded::v*codes differ*"])


def test_other_formats_and_elementwise_cases_have_none():
    assert E5M2.typed.element_type == "fp8e5"
    with pytest.raises(ValueError, match=r"bfloat16 has no 8-bit type of Triton.s own; e4m3 and e5m2 have"):
        _ = BF16.typed
    with pytest.raises(CaseError, match=r".y.: .typed is for tensors of whole kernels"):
        Case(inputs={"x": E4M3}, outputs={"y": E4M3.typed}, reference=abs, variants={"v": asm("mov.b32 $0, $1;")})
