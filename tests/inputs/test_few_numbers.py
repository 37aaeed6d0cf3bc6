"""Inputs of whole kernels that hold few numbers: each number of a list is used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ptxdiff.inputs.fill import kernel_inputs
from ptxdiff.inputs.kernel_sets import NAMES, few_sets
from ptxdiff.model.case import Case
from ptxdiff.model.load import load
from ptxdiff.mutation import kernels
from ptxdiff.mutation.trial import Subject
from ptxdiff.references.formats import BF16, F32, I32, UE8M0, Scalar
from ptxdiff.running.plan import plan

SIZES = {"N": 100}
NUMBERS = {0, 1 << 31, 0x3F800000, 0xBF800000, 1, 0x7F7FFFFF, 0x7F800000, 0x7FFFFFFF}
LOADED = load(Path("cases/scalar_and_loop.py"))[0]


def case(sizes=SIZES, **inputs) -> Case:
    return replace(LOADED.case, inputs={"x": F32["N"], **inputs}, outputs={"y": F32["N"]}, sizes=[sizes])


def numbers_of(found: Case, name: str) -> list[int]:
    return [int(u) for s in NAMES for u in np.ravel(kernel_inputs(found, s, SIZES)[name])]


def test_a_scalar_has_every_number_of_the_list_and_random_ones():
    found = case(c=Scalar(F32))
    assert few_sets(found, SIZES) == NAMES
    values = numbers_of(found, "c")
    assert set(values[: len(NUMBERS)]) == NUMBERS
    assert len(set(values) - NUMBERS) >= 3


def test_two_scalars_have_different_numbers_at_once():
    found = case(a=Scalar(F32), b=Scalar(BF16))
    pairs = list(zip(numbers_of(found, "a"), numbers_of(found, "b"), strict=True))
    assert (0, 0) not in pairs
    assert len(set(pairs)) == len(pairs)


def test_the_elements_of_a_small_tensor_have_different_numbers():
    sizes = SIZES | {"K": 8}
    units = kernel_inputs(case(sizes, c=F32["K"]), NAMES[0], sizes)["c"]
    assert set(units.tolist()) == NUMBERS


@pytest.mark.parametrize(
    ("inputs", "sizes"),
    [({"k": Scalar(I32)}, SIZES), ({"s": UE8M0["K"]}, SIZES | {"K": 3}), ({"c": Scalar(F32)}, {"N": 4096})],
    ids=["integers", "8-bit-floats", "large"],
)
def test_other_formats_and_large_kernels_have_no_such_sets(inputs, sizes):
    assert few_sets(case(sizes, **inputs), sizes) == ()


def test_kernels_run_on_them_and_are_not_compiled_for_them():
    found = case(c=Scalar(F32))
    sets = {b: [i.input_set for i in plan(found, found.variants["fma"], b, "quick", "sm_90a")] for b in
            ("emulator", "gpu", "assembler")}  # fmt: skip
    assert sets["emulator"] == sets["gpu"]
    assert list(dict.fromkeys(name for name in sets["gpu"] if name in NAMES)) == list(NAMES)
    assert not set(sets["assembler"]) & set(NAMES)


@pytest.mark.parametrize(
    ("variant", "size", "change"),
    [
        ("fma", 1, "fma.rn.f32 %r5, %r2, %r3, %r4; -> fma.rz.f32 %r5, %r2, %r3, %r4;"),
        ("two", 512, "add.rn.f32 %r2, %r5, 0f00000000; -> sub.rn.f32 %r2, %r5, 0f00000000;"),
    ],
)
def test_mistakes_that_only_few_numbers_show_are_detected(variant, size, change):
    """The code of one element is rounded towards zero; or the scalar -0 is not changed to +0."""
    subject = Subject(LOADED, "sm_90a", 60.0)
    found = kernels.kernels_of(subject, variant)
    assert not isinstance(found, str)
    (mutant, *_) = [
        m for m in kernels.placed_mutants(found) if m.mutant.change == change and m.kernel.setup.sizes["N"] == size
    ]
    assert kernels.try_kernel(subject, variant, mutant).fate == "killed"
