"""`.ftz` and the smallest normal value: hardware flushes a tiny result that rounds up to it only in the format."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ptxdiff import Case, asm, either, emulate, exact, numpy_reference
from ptxdiff.inputs.generated import Stratified
from ptxdiff.judging.evaluate import accepted
from ptxdiff.judging.judge import judge
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import flushes_itself
from ptxdiff.references import arithmetic, conversion, reciprocal
from ptxdiff.references.formats import F16, F32, Format
from ptxdiff.sweep.oracle import Oracle

LEAST = 0x00800000
# Exact products of 2^-126 * (1 - 2^-24) and a quarter of an ulp less: both round up to 2^-126 in the format.
FACTORS = (0x3F7FFFFF, 0x00800000), (0x3F800001, 0x007FFFFF), (0x3FFFFFFF, 0x00400000)


def case_of(reference: Any, form: str, fmt: Format, names: str, ftz: Any) -> Case:
    return Case(
        inputs=dict.fromkeys(names, fmt),
        outputs={"y": fmt},
        reference=reference,
        variants={"v": asm(f"{form} $0, {', '.join(f'${k + 1}' for k in range(len(names)))};", ftz=ftz, match=exact())},
    )


def units(fmt: Format, codes: Any) -> np.ndarray:
    return np.asarray(codes).astype(f"uint{fmt.unit_bits}")


def run(form: str, fmt: Format, *columns: Any) -> np.ndarray:
    letter = "h" if fmt.unit_bits == 16 else "r"
    operands = ", ".join(f"${k}" for k in range(len(columns) + 1))
    constraints = f"={letter}" + f",{letter}" * len(columns)
    given = [units(fmt, c) for c in columns]
    return emulate(f"{form} {operands};", constraints, given, f"uint{fmt.unit_bits}")


def near_the_smallest(fmt: Format, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of codes whose product lies within a few ulp of the smallest normal value."""
    rng = np.random.default_rng(1)
    fraction = rng.integers(0, 1 << fmt.mantissa_bits, count)
    a = rng.integers(1, 2 * fmt.bias, count) << fmt.mantissa_bits | fraction
    exact_quotient = 2.0**fmt.min_exponent / value(fmt, a)
    b = torch.from_numpy(exact_quotient)
    codes = conversion.round_float64(fmt, b).numpy() + rng.integers(-2, 3, count)
    return a, codes.clip(0, fmt.max_finite) | rng.integers(0, 2, count) << fmt.sign_shift


def value(fmt: Format, codes: np.ndarray) -> np.ndarray:
    from ptxdiff.references.formats import to_float64

    return np.asarray(to_float64(fmt, codes))


MUL16 = partial(arithmetic.mul, fmt=F16)


@pytest.mark.sample(3)
@pytest.mark.parametrize("ftz", ["required", "allowed"])
@pytest.mark.parametrize(
    ("form", "reference", "fmt"),
    [("mul.rn.ftz.f32", arithmetic.mul, F32), ("mul.ftz.f16", MUL16, F16)]
    + [(f"mul.{r}.ftz.f32", partial(arithmetic.mul, rounding=r), F32) for r in ("rz", "rm", "rp")],
)
def test_a_correct_product_passes_an_exact_policy(form: str, reference: Any, fmt: Format, ftz: str) -> None:
    a, b = near_the_smallest(fmt, 1 << 16)
    case = case_of(reference, form, fmt, "ab", ftz)
    found = judge(
        case, policies(case, case.variants["v"]), {"a": units(fmt, a), "b": units(fmt, b)}, {"y": run(form, fmt, a, b)}
    )
    assert found.different == 0, found.classes


@pytest.mark.parametrize("factors", FACTORS)
def test_both_readings_of_allowed(factors: tuple[int, int]) -> None:
    """Code that keeps subnormals gives the smallest normal value, code that flushes gives zero; no other result
    passes."""
    a, b = factors
    for got, right in ((LEAST, True), (0, True), (LEAST - 1, False), (LEAST | 1 << 31, False)):
        case = case_of(arithmetic.mul, "mul.rn.f32", F32, "ab", "allowed")
        given = {"a": units(F32, [a]), "b": units(F32, [b])}
        found = judge(case, policies(case, case.variants["v"]), given, {"y": units(F32, [got])})
        assert (found.different == 0) is right, hex(got)


def quotients() -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    b = rng.integers(1 << 23, 0x7F000000, 1 << 16)
    a = conversion.round_float64(F32, torch.from_numpy(2.0**-126 * value(F32, b))).numpy() + rng.integers(
        -2, 3, 1 << 16
    )
    return a.clip(0, None), b


@pytest.mark.sample(3)
@pytest.mark.parametrize("r", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    "form", ["div.{}.ftz.f32", "fma.{}.ftz.f32", "rcp.{}.ftz.f32", "sqrt.{}.ftz.f32", "add.{}.ftz.f32"]
)
def test_the_other_operations(form: str, r: Any) -> None:
    form = form.format(r)
    if form.startswith("div"):
        columns, reference = quotients(), arithmetic.div
    elif form.startswith("fma"):
        rng = np.random.default_rng(4)
        tiny = rng.integers(0, 1 << 31, 1 << 16) & rng.choice([0x80000003, 0x00800001, 0x80FFFFFF], 1 << 16)
        columns, reference = (*near_the_smallest(F32, 1 << 16), tiny), arithmetic.fma
    elif form.startswith("add"):
        rng = np.random.default_rng(4)
        a = rng.integers(0, 1 << 25, 1 << 16)
        columns, reference = (a, a + rng.integers(-3, 4, 1 << 16) & 0x7FFFFFFF | 1 << 31), arithmetic.add
    else:
        rng = np.random.default_rng(3)
        columns = (np.concatenate([rng.integers(0, 1 << 32, 1 << 15), 0x7E800000 + np.arange(-4096, 4096)]),)
        reference = reciprocal.correctly_rounded if form.startswith("rcp") else arithmetic.sqrt
    case = case_of(partial(reference, rounding=r), form, F32, "abc"[: len(columns)], "required")
    given = {n: units(F32, c) for n, c in zip("abc", columns, strict=False)}
    found = judge(case, policies(case, case.variants["v"]), given, {"y": run(form, F32, *columns)})
    assert found.different == 0, found.classes


@pytest.mark.parametrize("ftz", ["required", "allowed", {"y": "required"}, {"a": "required"}, {"y": "allowed"}])
def test_the_sweeps_oracle_accepts_what_the_plain_judge_accepts(ftz: Any) -> None:
    case = case_of(arithmetic.mul, "mul.rn.f32", F32, "ab", ftz)
    policy = policies(case, case.variants["v"])
    oracle = Oracle(case, policy, Stratified(case.inputs, 1))
    a, b = near_the_smallest(F32, 1 << 12)
    given = codes_of(case.inputs, {"a": units(F32, a), "b": units(F32, b)})
    plain = [answer["y"].tolist() for answer in accepted(case, policy, given)]
    swept = oracle.answers(oracle.comparisons[0], {n: torch.from_numpy(c) for n, c in given.items()})
    assert [answer["y"].tolist() for answer in swept] == plain


def test_a_reference_without_the_argument_is_flushed_afterwards() -> None:
    """A plain function of codes is called as before: its result that rounds up to the smallest normal value is kept."""
    assert flushes_itself(arithmetic.mul)
    assert flushes_itself(MUL16)
    assert flushes_itself(lambda a, b, *, ftz=False: arithmetic.mul(a, b, ftz=ftz))
    for plain in (lambda a, b: arithmetic.mul(a, b), lambda a, ftz: a, np.add, numpy_reference(lambda a, b: a + b)):
        assert not flushes_itself(plain)
    case = case_of(lambda a, b: arithmetic.mul(a, b), "mul.rn.ftz.f32", F32, "ab", "required")
    (a, b) = FACTORS[0]
    given = codes_of(case.inputs, {"a": units(F32, [a, 1]), "b": units(F32, [b, 0x3F800000])})
    (answer,) = accepted(case, policies(case, case.variants["v"]), given)
    assert answer["y"].tolist() == [LEAST, 0]


def test_either_of_two_references_flushes_for_itself() -> None:
    two = either(arithmetic.mul, lambda a, b: arithmetic.mul(a, b))
    case = case_of(two, "mul.rn.ftz.f32", F32, "ab", "required")
    (a, b) = FACTORS[0]
    given = codes_of(case.inputs, {"a": units(F32, [a]), "b": units(F32, [b])})
    answers = [answer["y"].tolist() for answer in accepted(case, policies(case, case.variants["v"]), given)]
    assert answers == [[0], [LEAST]]
