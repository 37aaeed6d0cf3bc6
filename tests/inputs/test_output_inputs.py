"""Inputs chosen by the reference's results, and inputs chosen for rounding: thresholds, binades, cancellation, ties."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

from ptxdiff import Case, Domain, asm, numpy_reference
from ptxdiff.inputs import input_sets, named_set
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.reference import ReferenceFault, apply_reference
from ptxdiff.references import arithmetic, exponential, reciprocal
from ptxdiff.references.formats import (
    BF16,
    E2M1X4,
    F16,
    F16X2,
    F32,
    F64,
    FORMATS,
    I32,
    I64,
    U32,
    U64,
    Format,
    encode,
    is_zero,
    magnitude,
    to_float64,
)
from tests.support.rounding_mutants import exact, rounded
from tests.support.sampling import spread


def case_of(reference, *inputs: Format, output: Format | None = None, **fields) -> Case:
    return Case(
        inputs={f"x{k}": fmt for k, fmt in enumerate(inputs)},
        outputs={"y": output or inputs[0]},
        reference=reference,
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1)},
        **fields,
    )


def inputs_of(case: Case, name: str = "outputs/1", effort: str = "quick"):
    return codes_of(case.inputs, named_set(case, effort, name).all())


def answers(case: Case, codes):
    return apply_reference(case, case.reference, codes)["y"]


@pytest.mark.parametrize("number", [1.2345, 87.33655, -3.0e-39, 448.1, 1e30, -0.7])
def test_both_sides_of_a_constant_that_no_format_knows(number):
    """Only the reference determines where it changes: from x to a clamp, or from one constant to another."""
    code = int(np.array([number], dtype=np.float32).view(np.uint32)[0])

    def clamped(x):
        value = to_float64(F32, x)
        return torch.where(value > to_float64(F32, torch.tensor(code)), code, x)

    def stepped(x):
        return torch.where(to_float64(F32, x) > to_float64(F32, torch.tensor(code)), 0x3F800000, 0)

    for reference in (clamped, stepped):
        found = set(inputs_of(case_of(reference, F32))["x0"].tolist())
        assert {code, code + 1, code - 1} <= found


@pytest.mark.parametrize("fmt", [I32, U32, I64, U64], ids=str)
def test_both_sides_of_a_limit_of_integers(fmt):
    case = case_of(lambda x: torch.where(x > 123_456, 123_456, x), fmt)
    assert {123_455, 123_456, 123_457} <= set(inputs_of(case)["x0"].tolist())


def test_every_binade_of_an_approximate_result_and_both_sides_of_each():
    case = case_of(exponential.ex2, F32)
    codes = inputs_of(case)
    results = answers(case, codes)
    binades = np.bincount(magnitude(F32, results) >> 23, minlength=256)
    assert (binades >= 4).all()
    lengths = np.frexp(results[results < 0x00800000].astype(np.float64))[1]
    assert set(lengths.tolist()) == set(range(24))  # every binade of subnormals, and zero
    for power in (-126, -1, 1, 87, 127, 128):
        code = encode(F32, float(power))
        beside = {code - 1 if power > 0 else code + 1, code}  # the step below a power of two, and the power
        assert beside <= set(codes["x0"].tolist())
    assert {encode(F32, -150.0), encode(F32, -150.0) - 1} <= set(codes["x0"].tolist())  # zero, and the smallest number
    values = to_float64(F32, codes["x0"])
    quarters = np.unique(np.floor(4 * values[np.abs(values) < 150]).astype(int))
    # Between -1 and 1 places are spread over the binades of x.
    assert set(quarters.tolist()) >= {*range(-4 * 126, -4), *range(4, 4 * 128)}


@pytest.mark.parametrize("fmt", [F16, BF16, F32, F64], ids=str)
def test_sums_cancel_to_zero_and_to_a_last_bit(fmt):
    if fmt is F64:
        from ptxdiff.references import double

        reference = double.fma
    else:
        reference = functools.partial(arithmetic.fma, fmt=fmt)
    case = case_of(reference, fmt, fmt, fmt)
    both = [inputs_of(case, name) for name in ("outputs/1", "rounding/1")]
    codes = {n: np.concatenate([b[n] for b in both]) for n in case.inputs}
    results = answers(case, codes)
    ordinary = (magnitude(fmt, codes["x2"]) >= fmt.min_normal) & (magnitude(fmt, codes["x2"]) < fmt.max_finite)
    assert np.count_nonzero(ordinary & is_zero(fmt, results)) > 20
    depth = (magnitude(fmt, codes["x2"]) >> fmt.mantissa_bits) - (magnitude(fmt, results) >> fmt.mantissa_bits)
    deepest = depth[ordinary & ~is_zero(fmt, results)]
    assert np.count_nonzero(deepest > fmt.mantissa_bits) > 20  # bits that the product has beyond the format's
    assert {fmt.max_finite, fmt.min_normal} <= set((results & fmt.magnitude_mask).tolist())


@pytest.mark.parametrize("fmt", [F16, BF16, F32], ids=str)
def test_products_tie_whether_normal_or_subnormal(fmt):
    case = case_of(functools.partial(arithmetic.mul, fmt=fmt), fmt, fmt)
    codes = list(inputs_of(case, "rounding/1").values())
    value, down, up = exact(fmt, "mul", codes), *(rounded(fmt, "mul", r, codes) for r in ("rm", "rp"))
    with np.errstate(invalid="ignore"):
        tie = (down != up) & (value == (to_float64(fmt, down) + to_float64(fmt, up)) / 2)
    subnormal = magnitude(fmt, down) < fmt.min_normal
    assert np.count_nonzero(tie & subnormal) > 20
    assert np.count_nonzero(tie & ~subnormal) > 20


def test_only_inputs_within_where_and_the_last_of_them():
    seen = []

    def reference(x):
        seen.append(x.clone())
        return exponential.ex2(x)

    case = case_of(reference, F32, where=Domain("|x| <= 3.7", lambda v: np.abs(v["x0"]) <= 3.7))
    codes = inputs_of(case)["x0"]
    assert (np.abs(to_float64(F32, torch.cat(seen).numpy())) <= 3.7).all()
    above = int(np.array([3.7], dtype=np.float32).view(np.uint32)[0])  # 3.70000005
    assert above not in codes
    assert above - 1 in codes


def test_a_reference_that_raises_is_run_on_those_inputs():
    def reference(x):
        if ((x & 0x7FFFFFFF) == 0x00123456 + 0x42000000).any() or (to_float64(F32, x) == 2.0).any():
            raise ValueError("no such number")
        return torch.where(to_float64(F32, x) >= 2.0, 0, x)

    case = case_of(reference, F32)
    codes = inputs_of(case)
    assert len(codes["x0"])
    with pytest.raises(ReferenceFault, match="no such number"):
        answers(case, codes)


def test_a_reference_of_numpy_is_searched_too():
    case = case_of(numpy_reference(lambda x: np.where(x == 0x42280000, np.int64(1), np.int64(0))), F32)
    assert len(inputs_of(case)["x0"]) > 100


def test_slots_of_a_unit_hold_the_wanted_codes():
    case = case_of(lambda a, b: arithmetic.add(a, b, fmt=F16), F16X2, F16X2)
    codes = inputs_of(case)
    results = answers(case, codes).reshape(-1, 2)
    for slot in range(2):
        assert np.count_nonzero(is_zero(F16, results[:, slot])) > 20
        assert F16.max_finite in results[:, slot]


WIDE = [f for f in FORMATS.values() if f.unit_bits >= 16]


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    "fmt", spread(WIDE, 12, lambda f: [(f.is_float, f.code_bits), (f.codes_per_unit, f.unit_bits)], str)
)
def test_every_format_can_be_searched(fmt):
    """Formats wider than a byte: all combinations of two inputs are too many to run."""
    case = case_of(lambda a, b: torch.where(a & 1 == 1, a, b), fmt, fmt)
    names = {s.name: s.count for s in input_sets(case, "quick")}
    assert names["outputs/1"] > 50
    assert ("rounding/1" in names) == (fmt.is_float and fmt.code_bits > 8)


def test_sizes_stay_small_and_equal_cases_have_equal_inputs():
    case = case_of(reciprocal.quotient, F32, F32)
    counts = {s.name: s.count for s in input_sets(case, "quick")}
    assert counts["outputs/1"] + counts["rounding/1"] < 10_000
    one = named_set(case, "quick", "outputs/1").all()["x0"]
    again = named_set(case_of(reciprocal.quotient, F32, F32), "quick", "outputs/1").all()["x0"]
    np.testing.assert_array_equal(one, again)


def test_two_codes_of_four_bits_need_no_search():
    assert [s.name for s in input_sets(case_of(lambda x: x, E2M1X4), "quick")] == [
        "exhaustive/1",
        "neighbours/1",
    ]
