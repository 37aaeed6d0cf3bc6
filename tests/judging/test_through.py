"""Exact results of an approximate step: every legal approximation passes, a wrong exact step fails."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from ptxdiff import Case, absolute, approximate, asm, exact, kernel, magnitude, numpy_reference, relative, ulp
from ptxdiff.inputs.generated import Counted
from ptxdiff.inputs.sets import input_sets
from ptxdiff.judging.judge import Judgement, held_exactly, judge
from ptxdiff.model.case import Case as Declared
from ptxdiff.model.describe import reference_name
from ptxdiff.model.identity.definition import changed_parts, definition
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import CaseError
from ptxdiff.references import arithmetic, conversion, reciprocal
from ptxdiff.references.formats import E4M3, F16, F32, I8, as_codes, from_ordinal, ordinal, pack
from ptxdiff.sweep.examine import Examiner
from ptxdiff.sweep.oracle import Oracle


@triton.jit
def quantize_rows(x, s, q, M, N: tl.constexpr):
    """A row; only its name is used here."""


INF, NAN, ONE, TOP = 0x7F800000, 0x7FC00000, 0x3F800000, 0x7F7FFFFF


def to_int8(q):
    return conversion.convert(q, source=F32, target=I8)


def to_e4m3(q):
    return conversion.convert(q, source=F32, target=E4M3, satfinite=True)


def quotient_to_int8(x, s):
    return to_int8(arithmetic.div(x, s))


def quotient_to_e4m3(x, s):
    return to_e4m3(arithmetic.div(x, s))


BOUND = ulp(2, overflow=True, underflow=True)
DIVIDED = {
    I8: (quotient_to_int8, exact(through=approximate(arithmetic.div, F32, BOUND, then=to_int8))),
    E4M3: (quotient_to_e4m3, exact(through=approximate(arithmetic.div, F32, BOUND, then=to_e4m3))),
}


def case_of(target: Any, **options: Any) -> Declared:
    reference, match = DIVIDED[target]
    given = {"inputs": {"x": F32, "s": F32}, "outputs": {"q": target}, "reference": reference, **options}
    return Case(variants={"v": asm("x", constraints="=r,r,r", pack=1, match=match)}, **given)


def stored(fmt: Any, codes: Any) -> np.ndarray:
    return pack(fmt, np.asarray(codes, dtype=np.int64)).astype(fmt.numpy_dtype())


def judged(case: Declared, inputs: Any, *outputs: Any) -> Judgement:
    """The judge on codes."""
    units = [
        {n: stored(f, c) for (n, f), c in zip(formats.items(), codes, strict=True)}
        for formats, codes in ((case.inputs, inputs), (case.outputs, outputs))
    ]
    return judge(case, policies(case, case.variants["v"]), *units)


@functools.cache
def quick_inputs() -> list[torch.Tensor]:
    """Every input of a quick run, as codes: the same for all cases here."""
    case = case_of(I8)
    units = [s.all() for s in input_sets(case, "quick")]
    return [torch.from_numpy(np.concatenate([as_codes(np.asarray(u[n])) for u in units])) for n in case.inputs]


def moved(q: torch.Tensor, ulps: int) -> torch.Tensor:
    """Legal approximations: finite quotients that are not zero, some ulps away on the same side of zero."""
    other = from_ordinal(F32, ordinal(F32, q) + ulps)
    ordinary = ((q & 0x7FFFFFFF) > 4) & ((q & 0x7FFFFFFF) <= TOP - 4)
    return torch.where(ordinary, other, q)


@pytest.mark.sample(3)
@pytest.mark.parametrize("target", [I8, E4M3], ids=str)
@pytest.mark.parametrize("ulps", [-2, -1, 0, 1, 2])
def test_every_approximation_within_the_bound_passes(target, ulps):
    case = case_of(target)
    x, s = quick_inputs()
    then = to_int8 if target is I8 else to_e4m3
    found = judged(case, (x, s), then(moved(arithmetic.div(x, s), ulps)))
    assert (found.different, found.unchecked) == (0, 0)


def wrong_steps(target: Any) -> dict[str, Any]:
    """Wrong last steps of a quotient."""
    found: dict[str, Any] = {}
    for rounding in ("rz", "rm", "rp"):  # rna differs from rn at ties alone, on whose other side the bound reaches
        found[rounding] = lambda q, r=rounding: conversion.convert(
            q, source=F32, target=target, rounding=r, satfinite=True
        )
    if target is I8:
        found["clamped at 126"] = lambda q: torch.where(to_int8(q) == 127, 126, to_int8(q))
        found["clamped at -127"] = lambda q: torch.where(to_int8(q) == 128, 129, to_int8(q))
        found["wraps"] = lambda q: conversion.convert(q, source=F32, target=replace(I8, code_bits=16)) & 255
        found["NaN is 127"] = lambda q: torch.where((q & 0x7FFFFFFF) > INF, 127, to_int8(q))
    else:
        found["clamped at 416"] = lambda q: torch.where(to_e4m3(q) & 0x7F == 0x7E, to_e4m3(q) - 1, to_e4m3(q))
        found["no saturation"] = lambda q: conversion.convert(q, source=F32, target=E4M3)
        found["zero without its sign"] = lambda q: torch.where(to_e4m3(q) == 0x80, 0, to_e4m3(q))
        found["flushed"] = lambda q: torch.where(to_e4m3(q) & 0x78 == 0, to_e4m3(q) & 0x80, to_e4m3(q))
        found["through f16"] = lambda q: conversion.convert(
            conversion.convert(q, source=F32, target=F16), source=F16, target=E4M3, satfinite=True
        )
    return found


WRONG = [(target, name) for target in (I8, E4M3) for name in wrong_steps(target)]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("target", "name"), WRONG, ids=str)
def test_a_wrong_last_step_fails_whatever_the_approximation(target, name):
    case = case_of(target)
    x, s = (codes[::3] for codes in quick_inputs())
    found = judged(case, (x, s), wrong_steps(target)[name](moved(arithmetic.div(x, s), 2)))
    assert found.different > 0


def test_a_failure_names_the_codes_that_would_pass():
    case = case_of(I8)
    (note,) = judged(case, ([0x3FC00000], [ONE]), [3]).notes
    assert note == "q, code 0: an intermediate value within its bound gives 0x02 or 0x01"
    assert reference_name(policies(case, case.variants["v"]).reference) == "quotient_to_int8"


def quotient_case(**bound: Any) -> Declared:
    """The quotient in float16, so that its zeros, infinities and NaN show."""

    def to_f16(q):
        return conversion.convert(q, source=F32, target=F16)

    step = approximate(arithmetic.div, F32, ulp(2, **bound), then=to_f16)
    return Case(
        inputs={"x": F32, "s": F32},
        outputs={"q": F16},
        reference=lambda x, s: to_f16(arithmetic.div(x, s)),
        variants={"v": asm("x", constraints="=h,r,r", pack=1, match=exact(through=step))},
    )


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("x", "s", "got", "verdict"),
    [
        (ONE, ONE, 0x3C00, "same"),
        (ONE, ONE, 0x3C01, "1 ulp"),
        (NAN, ONE, 0x7C00, "NaN"),
        (ONE, 0, 0x7C00, "same"),  # infinity
        (ONE, 0, 0xFC00, "infinity"),
        (ONE, 0, 0x7BFF, "infinity"),
        (0, ONE, 0, "same"),
        (0, ONE, 0x8000, "sign of zero"),
        (0, ONE, 1, "flush to zero"),
        (0x477FF000, ONE, 0x7C00, "same"),  # 65520: the tie with infinity, which is even
        (0x477FF000, ONE, 0x7BFF, "same"),  # an ulp below, it is the largest number
        (0x477FF003, ONE, 0x7BFF, "infinity"),  # three ulps above the tie
        (0x477FEFFD, ONE, 0x7C00, "infinity"),
    ],
)  # fmt: skip
def test_special_results_are_decided_on_the_set_of_legal_ones(x, s, got, verdict):
    found = judged(quotient_case(), ([x], [s]), [got])
    assert next(iter(found.classes), "same") == verdict


@pytest.mark.parametrize(("allowed", "different"), [({}, 1), ({"underflow": True}, 0)])
def test_an_intermediate_value_crosses_to_zero_only_where_the_bound_says_so(allowed, different):
    """One ulp of the quotient is the smallest subnormal; times 2^100 it is no zero."""

    def scaled(q):
        return arithmetic.mul(q, torch.full_like(q, 0x71800000))

    step = approximate(lambda x: x, F32, ulp(2, **allowed), then=scaled)
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=scaled,
        variants={"v": asm("x", constraints="=r,r", pack=1, match=exact(through=step))},
    )
    assert judged(case, ([1],), [0]).different == different
    assert judged(case, ([1],), [0x80000000]).different == 1
    assert judged(case, ([1],), scaled(torch.tensor([3]))).different == 0
    assert judged(case, ([1],), scaled(torch.tensor([4]))).different == 1
    assert judged(case, ([0],), scaled(torch.tensor([1]))).different == different


@pytest.mark.parametrize(("ftz", "kept", "flushed"), [("never", 0, 1), ("allowed", 0, 0), ("required", 1, 0)])
def test_flushes_of_the_intermediate_value_are_a_policy_and_no_tolerance(ftz, kept, flushed):
    def scaled(q):
        return arithmetic.mul(q, torch.full_like(q, 0x71800000))

    def reference(x):
        return scaled(x if ftz != "required" else arithmetic.add(x, x * 0, ftz=True))

    step = approximate(lambda x: x, F32, ulp(2), then=scaled, ftz=ftz)
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=reference,
        variants={"v": asm("x", constraints="=r,r", pack=1, match=exact(through=step))},
    )
    small = [0x00400000]
    assert judged(case, (small,), scaled(torch.tensor(small))).different == kept
    assert judged(case, (small,), [0]).different == flushed
    assert judged(case, ([ONE],), scaled(torch.tensor([ONE]))).different == 0


def test_a_relative_bound_holds_to_the_last_ulp():
    """2^-23 is one ulp above a power of two, two below it, and none further on."""
    step = approximate(lambda x: x, F32, relative(2**-23), then=lambda q: q)
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=lambda x: x,
        variants={"v": asm("x", constraints="=r,r", pack=1, match=exact(through=step))},
    )
    accepted = {d for d in range(-4, 5) if not judged(case, ([ONE],), [ONE + d]).different}
    assert accepted == {-2, -1, 0, 1}
    assert {d for d in range(-4, 5) if not judged(case, ([TOP],), [TOP + d]).different} == {-1, 0}


def parts(q):
    """The integral part and the rest."""
    whole = conversion.integral_value(q, rounding="rm")
    return whole, arithmetic.sub(q, whole)


def parts_case() -> Declared:
    step = approximate(arithmetic.div, F32, ulp(2), then=parts)
    return Case(
        inputs={"x": F32, "s": F32},
        outputs={"whole": F32, "rest": F32},
        reference=lambda x, s: parts(arithmetic.div(x, s)),
        variants={"v": asm("x", constraints="=r,=r,r,r", pack=1, match=exact(through=step))},
    )


def test_outputs_of_one_intermediate_value_come_from_the_same_one():
    case = parts_case()
    three = 0x40400000
    below, above = (parts(torch.tensor([three + d])) for d in (-1, 0))
    assert judged(case, ([three], [ONE]), *below).different == 0
    assert judged(case, ([three], [ONE]), *above).different == 0
    assert judged(case, ([three], [ONE]), below[0], above[1]).different == 1
    assert judged(case, ([three], [ONE]), above[0], below[1]).different == 1


def test_outside_the_domain_of_the_bound_differences_are_unchecked_and_counted():
    step = approximate(arithmetic.div, F32, ulp(2, on=magnitude("s", 2.0**-126, 2.0**126)), then=to_int8)
    case = replace(case_of(I8), variants={"v": asm("x", constraints="=r,r,r", pack=1, match=exact(through=step))})
    huge = 0x7F000001
    found = judged(case, ([huge, ONE], [huge, ONE]), [0, 1])
    assert (found.different, found.unchecked, found.judged["q"].judged) == (0, 1, 1)
    assert judged(case, ([huge, ONE], [huge, ONE]), [0, 0]).different == 1


def test_a_step_that_needs_other_arguments_than_the_inputs_says_what_it_is_given():
    """As of a whole kernel that computes its scales itself."""
    case = Case(
        inputs={"x": F32}, outputs={"q": I8}, reference=lambda x: to_int8(arithmetic.div(x, x)),
        variants={"v": asm("x", constraints="=r,r", pack=1,
                           match=exact(through=approximate(arithmetic.div, F32, ulp(2), then=to_int8)))},
    )  # fmt: skip
    with pytest.raises(ReferenceFault, match="needs 2 arguments and is given the case's inputs, of which there are 1"):
        judged(case, ([ONE],), [1])


def test_a_reference_that_is_not_the_two_steps_is_an_error():
    case = case_of(
        I8, reference=lambda x, s: conversion.convert(arithmetic.div(x, s), source=F32, target=I8, rounding="rz")
    )
    with pytest.raises(ReferenceFault, match=r"through= differ for q: then= makes 0x2 .*x = 0x3fe00000.* gives 0x1"):
        judged(case, ([0x3FE00000], [ONE]), [2])


@pytest.mark.parametrize(("wrong", "different"), [(False, 0), (True, 64)])
def test_a_whole_kernel_is_judged_by_its_own_shapes(wrong, different):
    """Rows with a scale each: the last step gets the inputs in their shapes."""

    def inverse(x, s):
        return reciprocal.correctly_rounded(s)

    def multiplied(r, x, s):
        return to_int8(arithmetic.mul(x, r[:, None].expand_as(x)))

    step = approximate(inverse, F32, ulp(1), then=multiplied)
    case = Case(
        inputs={"x": F32["M", "N"], "s": F32["M"]},
        outputs={"q": I8["M", "N"]},
        reference=lambda x, s: multiplied(inverse(x, s), x, s),
        sizes=[{"M": 2, "N": 64}],
        variants={"v": kernel(quantize_rows, grid=("M",), match=exact(through=step))},
    )
    x = torch.arange(128).reshape(2, 64) * 0x10000 + ONE
    s = torch.tensor([0x40400000, 0x40A00000])
    r = moved(inverse(x, s), 1)
    q = multiplied(r, x, s)
    q[1] += wrong
    given = [{"x": (x, F32), "s": (s, F32)}, {"q": (q, I8)}]
    units = [{n: stored(f, c) for n, (c, f) in d.items()} for d in given]
    found = judge(case, policies(case, case.variants["v"]), *units)
    assert (found.different, found.total) == (different, 128)


@pytest.mark.parametrize("target", [I8, E4M3], ids=str)
def test_a_sweep_accepts_what_the_plain_judge_accepts(target):
    case = case_of(target)
    policy = policies(case, case.variants["v"])
    oracle = Oracle(case, policy, Counted({"x": F32, "s": F32}))
    x, s = (codes[::16] for codes in quick_inputs())
    q = arithmetic.div(x, s)
    then = to_int8 if target is I8 else to_e4m3
    for results in (then(moved(q, 2)), then(moved(q, 3)), wrong_steps(target)["rz"](q)):
        flagged = oracle.flags({"x": x, "s": s}, {"q": results}).flagged
        assert int(flagged.sum()) == judged(case, (x, s), results).different
    assert not oracle.flags({"x": x, "s": s}, {"q": then(moved(q, 2))}).flagged.any()


def test_a_sweep_examines_several_outputs_of_one_intermediate_value_together():
    case = parts_case()
    policy = policies(case, case.variants["v"])
    oracle = Oracle(case, policy, Counted({"x": F32, "s": F32}))
    oracle.codes = lambda number: {"x": torch.full_like(number, 0x40400000), "s": torch.full_like(number, ONE)}
    below, above = (parts(torch.tensor([0x40400000 + d])) for d in (-1, 0))
    for whole, rest, failing in ((below[0], below[1], 0), (above[0], below[1], 1)):
        units = {"whole": whole.to(torch.int32), "rest": rest.to(torch.int32)}
        found = Examiner(oracle, 0, 1, "cpu").look(torch.zeros(1, dtype=torch.int64), units)
        assert found.failing is not None
        assert len(found.failing) == failing


def test_numpy_references_work_too():
    @numpy_reference
    def same(x):
        return x

    step = approximate(same, F32, ulp(1), then=lambda q: q)
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=same,
        variants={"v": asm("x", constraints="=r,r", pack=1, match=exact(through=step))},
    )
    assert judged(case, ([ONE, ONE],), [ONE + 1, ONE]).different == 0
    assert judged(case, ([ONE, ONE],), [ONE + 2, ONE]).different == 1


def test_emulated_approximate_instructions_may_be_followed_by_an_exact_step():
    through = policies(case_of(I8), case_of(I8).variants["v"])
    assert held_exactly(through, {"q": ["div.full.f32"]}) == ()
    plain = replace(through, match={"q": exact()})
    assert "through=" in held_exactly(plain, {"q": ["div.full.f32"]})[0]


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: approximate(arithmetic.div, F32, absolute(0.5), then=to_int8), "ulp.n. or relative"),
        (lambda: approximate(arithmetic.div, F32, exact(), then=to_int8), "greater than zero"),
        (lambda: approximate(arithmetic.div, I8, ulp(1), then=to_int8), "signed float format"),
        (lambda: approximate(arithmetic.div, F32, ulp(1), then=1), "then= is a function"),
        (lambda: approximate(arithmetic.div, F32, ulp(1), then=to_int8, ftz="maybe"), "ftz='maybe'"),
        (lambda: ulp(1, through=DIVIDED[I8][1].through), "belongs to exact"),
        (lambda: exact(through=arithmetic.div), "takes approximate"),
        (lambda: exact(through=DIVIDED[I8][1].through, on=magnitude("x", 1, 2)), "no on= or outside="),
        (lambda: case_of(I8, match=None) and policies_of(ulp(40)), "at most 64"),
        (lambda: policies_of(relative(2**-17)), "at most 64"),
    ],
)
def test_what_cannot_be_tried_one_by_one_is_refused_in_words(made, message):
    with pytest.raises((ValueError, CaseError), match=message):
        made()


def policies_of(bound: Any) -> Any:
    match = exact(through=approximate(arithmetic.div, F32, bound, then=to_int8))
    case = replace(case_of(I8), variants={"v": asm("x", constraints="=r,r,r", pack=1, match=match)})
    return policies(case, case.variants["v"])


def test_the_policy_is_in_words_and_in_the_digest_of_the_verdict():
    case = case_of(I8)
    words = policies(case, case.variants["v"]).describe_match()
    assert words == "exact through ulp(2) [overflow allowed, underflow allowed] of div (float32), then to_int8"

    def digests(**changes: Any) -> dict[str, str]:
        step = replace(DIVIDED[I8][1].through, **changes)
        variant = asm("mov.b32 $0, $1;", constraints="=r,r,r", pack=1, match=exact(through=step))
        other = case_of(I8)
        return definition(replace(other, variants={"v": variant}), variant)

    before = digests()
    for change in (
        {"bound": ulp(1)},
        {"ftz": "allowed"},
        {"then": lambda q: to_int8(q)},
        {"step": reciprocal.quotient},
    ):
        assert "policy" in changed_parts(before, digests(**change)), change
    assert not changed_parts(before, digests())
