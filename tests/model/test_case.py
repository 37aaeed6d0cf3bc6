"""The case model: valid declarations, their meaning, and the errors for contradictions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from ptxdiff import (
    ALL,
    Case,
    Domain,
    ExpectedFailure,
    Meets,
    absolute,
    asm,
    exact,
    kernel,
    only,
    plain,
    relative,
    since,
    ulp,
)
from ptxdiff.model.policies import policies
from ptxdiff.model.variants import CaseError
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import BF16, BF16X2, E2M1X2, E4M3, F16, F32, F64, TF32, U8, Scalar

VARIANTS = {"v": asm("rcp.rn.f32 $0, $1;")}


class Jit:
    """A stand-in for a @triton.jit function, with the attributes that the model reads."""

    def __init__(self) -> None:
        self.fn = lambda x: x


def case(**fields: Any) -> Case:
    return Case(
        **{"inputs": {"x": F32}, "outputs": {"y": F32}, "reference": lambda x: x, "variants": VARIANTS, **fields}
    )


def variant(**fields: Any) -> dict[str, Any]:
    return {"v": asm("rcp.rn.f32 $0, $1;", **fields)}


LOOP = ExpectedFailure("missing early clobber", context=("shared", "loop"))
POSITIVE = Domain("x > 0", lambda v: v["x"] > 0)

CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"match": ulp(1 << 30)}, "accepts nearly every number"),
    ({"match": absolute(1e39)}, "accepts nearly every number"),
    ({"match": relative(1)}, "accepts nearly every number"),
    ({"variants": variant(match=exact(on=POSITIVE, outside=ulp(1 << 31)))}, "accepts nearly every number"),
    ({"outputs": {}}, "at least one output"),
    ({"variants": {}}, "at least one variant"),
    ({"variants": [1]}, "variants are given by name"),
    ({"variants": {"v": "rcp"}}, "variant 'v' is a str; write asm"),
    ({"variants": {"a/b": VARIANTS["v"]}}, "leave out brackets, slashes"),
    ({"inputs": {"x": "float32"}}, "'x' is 'float32', no format; use one of ptxdiff.references.formats"),
    ({"inputs": [F32]}, "write names with their formats"),
    ({"inputs": {"x-1": F32}}, "is no argument name"),
    ({"inputs": {"y": F32}}, r"'y' is an input and an output, .* give it dimensions, F32\['N'\], and sizes="),
    ({"inputs": {"y": F32["N"]}, "sizes": [{"N": 4}]}, "'y' is float32.* among the inputs and float32 among the outp"),
    ({"inputs": {"y": F32["N"]}, "outputs": {"y": F16["N"]}, "sizes": [{"N": 4}]}, "'y' is float32.* and float16.* am"),
    ({"inputs": {"y": F32["N"]}, "outputs": {"y": F32["2*N"]}, "sizes": [{"N": 4}]}, "one format and one shape"),
    ({"inputs": {"y": Scalar(F32)}, "outputs": {"y": F32["N"]}, "sizes": [{"N": 4}]}, "'y' is .* among the inputs and"),
    ({"inputs": {"y": E4M3["N"]}, "outputs": {"y": E4M3.typed["N"]}, "sizes": [{"N": 4}]}, "one format and one shape"),
    ({"outputs": {"y": F32.scalar}}, "output 'y' is passed by value"),
    ({"reference": None}, "give a function from codes to codes"),
    ({"hard_cases": [(1, 2)]}, "has 2 codes for 1 inputs"),
    ({"hard_cases": [(1 << 32,)]}, "is no code of x"),
    (
        {"hard_cases": [(0,), (1 << 31,), (5,)], "where": POSITIVE},
        r"hard case \(0x0\), \(0x80000000\): where= excludes",
    ),
    (
        {"inputs": {"x": F32["M"]}, "sizes": [{"M": 4}], "hard_cases": [(1,)]},
        "a whole kernel takes them from generate=",
    ),
    (
        {"ftz": {"x": "allowed"}, "inputs": {"x": F64}},
        "ftz= names 'x', which is float64: .* float32, float16 and bfloat16",
    ),
    ({"ftz": {"y": "required"}, "outputs": {"y": E2M1X2}}, "ftz= names 'y', which is e2m1x2"),
    ({"variants": variant(ftz={"y": "required"}), "outputs": {"y": U8}}, "variant 'v': ftz= names 'y', which is uint8"),
    ({"nan": "quiet"}, "the case: nan='quiet'; one of any, canonical, payload"),
    ({"ftz": {"z": "never"}}, "ftz names 'z'; the inputs and outputs are x, y"),
    ({"ftz": "yes"}, "ftz='yes'; one of required, allowed, never"),
    ({"match": {"z": exact()}}, "match names 'z'; the outputs are y"),
    ({"match": 1}, r"match=1; write exact\(\), ulp"),
    ({"sizes": [{"M": 1}]}, "no argument of this case has any"),
    ({"inputs": {"x": F32["M"]}}, "arguments with dimensions need sizes"),
    ({"inputs": {"x": F32["M"]}, "sizes": [{"M": 4}], "where": POSITIVE}, "a domain for each input that has one"),
    ({"inputs": {"x": F32["M"]}, "sizes": [{"M": 4}], "where": {"z": POSITIVE}}, "where= names 'z'; the inputs are x"),
    ({"where": {"x": POSITIVE}}, "where= of an elementwise case is one domain"),
    ({"inputs": {"x": F32["M"]}, "sizes": [{"N": 1}]}, "no size given for M"),
    ({"inputs": {"x": F32["M/3"]}, "sizes": [{"M": 4}]}, "not a whole number"),
    ({"inputs": {"x": F32["M"]}, "sizes": [{"M": 4}]}, "asm.. computes elementwise; arguments with dimensions need k"),
    ({"inputs": {"x": F32["M"]}, "sizes": [{"M": 4}], "variants": {"v": plain(Jit())}}, "plain.. computes elementwise"),
    ({"variants": {"v": plain(len)}}, "plain.. takes a Triton function; decorate <.*len> with @triton.jit"),
    ({"variants": {"v": kernel(len, grid=(1,))}}, "kernel.. takes a Triton function"),
    ({"variants": variant(pack=0, constraints="=r,r")}, None),
    ({"variants": {"v": asm({0: "x;"})}}, "a pack is a number of elements, at least 1"),
    ({"variants": variant(meets=Meets(Domain("all", lambda v: True), exact()))}, "meets= relates an own reference="),
    ({"variants": variant(targets=only("sm_90"), refused=only("sm_90"))}, "'sm_90a' both in targets= and in refused="),
    ({"targets": only("sm_90"), "refused": only("sm_90")}, "both in targets= and in refused="),
    (
        {"reference": arithmetic.sqrt, "inputs": {"x": F16}, "outputs": {"y": F16}},
        r"sqrt computes in float32 .* no argument is float32: reference=functools.partial\(sqrt, fmt=F16\)",
    ),
    ({"carry": {"z": "x"}}, "carry names 'z'; the outputs are y"),
    ({"carry": {"y": "z"}}, "carry names 'z'; the inputs are x"),
    ({"carry": {"y": "x"}, "outputs": {"y": F16}}, r"feeds float16 \(16 bits\) into float32"),
    ({"variants": variant(expected_failure=LOOP)}, "needs carry="),
    ({"variants": variant(expected_failure="it truncates")}, "write expected_failure=ExpectedFailure"),
    ({"variants": variant(expected_failure=ExpectedFailure("missing early clobber"))}, 'context="shared"'),
    (
        {"variants": variant(expected_failure=ExpectedFailure("missing early clobber", "loop"), carry={"y": "x"})},
        r'context=\("shared", "loop"\)',
    ),
]


@pytest.mark.parametrize(("fields", "words"), [row for row in CONTRADICTIONS if row[1]])
def test_a_contradiction_is_reported_where_it_is_declared(fields, words):
    with pytest.raises(CaseError, match=words):
        case(**fields)


@pytest.mark.parametrize(
    ("reference", "fmt"),
    [(arithmetic.sqrt, F32), (partial(arithmetic.sqrt, fmt=F16), F16), (partial(arithmetic.sqrt, fmt=BF16), BF16X2)],
)
def test_a_reference_in_the_cases_format_is_accepted(reference, fmt):
    assert case(reference=reference, inputs={"x": fmt}, outputs={"y": fmt})


def test_an_unknown_diagnosis_is_refused():
    with pytest.raises(CaseError, match="no diagnosis is called 'bad luck'; known: missing early clobber"):
        ExpectedFailure("bad luck")


@pytest.mark.parametrize(
    ("arguments", "options"), [(({1: "x;"},), {"pack": 2}), (("x;",), {"packs": (1,), "constraints": "=r"})]
)
def test_packs_are_stated_once(arguments, options):
    with pytest.raises(CaseError, match="pack"):
        asm(*arguments, **options)


def test_a_variant_overrides_the_case():
    made = case(match=ulp(2), ftz="required", nan="payload", variants=variant(match=exact(), ftz={"y": "allowed"}))
    policy = policies(made, made.variants["v"])
    assert policy.describe_match() == "exact"
    assert policy.ftz == {"x": "never", "y": "allowed"}
    assert policy.nan == "payload"


@pytest.mark.parametrize(
    ("of_case", "of_variant", "targets", "refused"),
    [
        ({}, {}, ALL, only()),
        ({"refused": only("sm_75")}, {}, ALL - only("sm_75"), only("sm_75")),
        ({"targets": since("sm_100")}, {}, since("sm_100"), only()),
        ({"targets": since("sm_100"), "refused": ALL - since("sm_100")}, {"targets": ALL}, ALL, only()),
        ({}, {"refused": only("sm_75")}, ALL - only("sm_75"), only("sm_75")),
    ],
)
def test_a_variants_targets_replace_the_cases(of_case, of_variant, targets, refused):
    made = case(**of_case, variants=variant(**of_variant))
    policy = policies(made, made.variants["v"])
    assert (set(policy.targets), set(policy.refused)) == (set(targets), set(refused))


@pytest.mark.parametrize("word", ["allowed", "required"])
def test_ftz_as_a_word_applies_to_formats_that_have_it(word):
    formats = {"a": F32, "b": F16, "c": BF16X2, "d": F64, "e": E4M3, "f": E2M1X2, "g": TF32, "h": U8}
    found = policies(case(inputs=formats, ftz=word), case(inputs=formats, ftz=word).variants["v"]).ftz
    assert found == {**dict.fromkeys("abcy", word), **dict.fromkeys("defgh", "never")}


def test_never_is_allowed_for_every_format():
    assert case(inputs={"x": F64}, ftz={"x": "never", "y": "required"})
