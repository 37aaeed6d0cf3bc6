"""The judge: which bits are accepted, and the class of a wrong answer."""

from __future__ import annotations

import warnings
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ptxdiff import Case, Domain, Meets, absolute, asm, exact, magnitude, relative, ulp
from ptxdiff.judging import judge as judging
from ptxdiff.judging.differences import Difference, classify_differences, count_steps, step_bin
from ptxdiff.judging.judge import Judgement, judge_same, passes
from ptxdiff.model.match import DomainError
from ptxdiff.model.policies import policies
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import either
from ptxdiff.references.formats import (
    BF16,
    E2M1X2,
    E4M3,
    F16,
    F32,
    F64,
    I64,
    TF32,
    U8,
    Format,
    encode,
    fraction,
    is_finite,
    is_nan,
    is_zero,
)
from ptxdiff.strategies import codes
from tests.support.running.float_codes import INF, LEAST_NORMAL, MINUS, NAN, ONE, TINY, TOP, units


def judge(*arguments: Any) -> Judgement:
    """The judgement; `passes` says of the same outputs whether it is a pass."""
    found = judging.judge(*arguments)
    assert passes(*arguments) == found.passed
    return found


def verdict_on(
    expected: int, got: int, *, fmt: Format = F32, nan: Any = "any", ftz: Any = "never", **options: Any
) -> str:
    """The judge's name for one pair of codes: a class, "unchecked" or "same"."""
    kind = options.pop("kind", exact)
    bound = options.pop("bound", ())
    match = kind(*([bound] if bound != () else []), **options)
    case = Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=lambda x: x,
        variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", match=match, nan=nan, ftz=ftz)},
    )
    found = judge(case, policies(case, case.variants["v"]), {"x": units(fmt, expected)}, {"y": units(fmt, got)})
    assert found.total == 1
    if found.unchecked:
        return "unchecked"
    return next(iter(found.classes), "same")


# expected, got, options, the judge's result
TABLE: list[tuple[int, int, dict[str, Any], str]] = [
    (ONE, ONE, {}, "same"),
    (ONE, ONE + 1, {}, "1 ulp"),
    (ONE, ONE + 2, {}, "larger than 1 ulp"),
    (ONE, ONE | MINUS, {}, "sign"),
    (0, MINUS, {}, "sign of zero"),
    (0, MINUS, {"zero_sign": "any"}, "same"),
    (0, MINUS, {"kind": ulp, "bound": 5}, "sign of zero"),
    # A bound never covers NaN, which is compared as the policy says.
    (NAN, NAN + 1, {}, "same"),
    (NAN, NAN + 1, {"nan": "payload"}, "NaN payload"),
    (NAN, NAN, {"nan": "payload"}, "same"),
    (NAN, 0x7FFFFFFF, {"nan": "canonical"}, "same"),
    (NAN, NAN + 1, {"nan": "canonical"}, "NaN payload"),
    (NAN, INF, {"kind": ulp, "bound": (1 << 30) - 1}, "NaN"),
    (INF, NAN, {}, "NaN"),
    (ONE, NAN, {"kind": absolute, "bound": 1e30}, "NaN"),
    # Infinity passes only if the policy allows overflow, and then within the bound.
    (INF, TOP, {"kind": ulp, "bound": 1}, "infinity"),
    (INF, TOP, {"kind": ulp, "bound": 1, "overflow": True}, "same"),
    (TOP, INF, {"kind": ulp, "bound": 1, "overflow": True}, "same"),
    (INF, TOP - 1, {"kind": ulp, "bound": 1, "overflow": True}, "infinity"),
    (INF, TOP | MINUS, {"kind": ulp, "bound": 1, "overflow": True}, "infinity"),
    (INF, INF | MINUS, {"kind": ulp, "bound": 1, "overflow": True}, "infinity"),
    (INF, TOP, {"kind": relative, "bound": 2.0**-24, "overflow": True}, "same"),
    (INF, TOP - 1, {"kind": relative, "bound": 2.0**-24, "overflow": True}, "infinity"),
    (TOP, INF, {"kind": absolute, "bound": 2.0**104, "overflow": True}, "same"),
    (TOP, INF, {"kind": absolute, "bound": 2.0**103, "overflow": True}, "infinity"),
    # Zero: a flush is a class of its own, and a bound reaches zero only if underflow is allowed.
    (TINY, 0, {"kind": ulp, "bound": 4}, "flush to zero"),
    (0, TINY, {"kind": ulp, "bound": 4}, "flush to zero"),
    (TINY, 0, {"kind": ulp, "bound": 4, "underflow": True}, "same"),
    (5, 0, {"kind": ulp, "bound": 4, "underflow": True}, "flush to zero"),
    (TINY | MINUS, MINUS, {"kind": ulp, "bound": 4, "underflow": True}, "same"),
    (TINY | MINUS, 0, {"kind": ulp, "bound": 4, "underflow": True}, "sign of zero"),
    (0, TINY | MINUS, {"kind": ulp, "bound": 4, "underflow": True}, "sign of zero"),
    (TINY | MINUS, 0, {"kind": ulp, "bound": 4, "underflow": True, "zero_sign": "any"}, "same"),
    (LEAST_NORMAL, 0, {"kind": ulp, "bound": 4}, "larger than 1 ulp"),
    (TINY, TINY | MINUS, {"kind": ulp, "bound": 4}, "sign"),
    # An absolute bound covers every finite pair; two zeros with different signs are still a class.
    (TINY, TINY | MINUS, {"kind": absolute, "bound": 1.0}, "same"),
    (ONE, ONE | MINUS, {"kind": absolute, "bound": 1.0}, "sign"),
    (ONE, ONE | MINUS, {"kind": absolute, "bound": 2.0}, "same"),
    (0, TINY, {"kind": absolute, "bound": 1e-6}, "same"),
    (TINY, MINUS, {"kind": absolute, "bound": 1e-6}, "same"),
    (MINUS, LEAST_NORMAL, {"kind": absolute, "bound": 1e-6}, "same"),
    (0, ONE, {"kind": absolute, "bound": 0.5}, "larger than 1 ulp"),
    (0, TINY, {"kind": absolute, "bound": Fraction(1, 1 << 150)}, "flush to zero"),
    (0, MINUS, {"kind": absolute, "bound": 1.0}, "sign of zero"),
    (0, MINUS, {"kind": absolute, "bound": 1.0, "zero_sign": "any"}, "same"),
    (INF, TOP, {"kind": absolute, "bound": 1e38}, "infinity"),
    (NAN, 0, {"kind": absolute, "bound": 1e38}, "NaN"),
    (NAN + 1, NAN + 1, {"nan": "canonical"}, "NaN payload"),
    (NAN + 1, 0x7FFFFFFF, {"nan": "canonical"}, "same"),
    # A distance equal to the bound passes, a larger one does not.
    (ONE, ONE + 3, {"kind": ulp, "bound": 3}, "same"),
    (ONE, ONE + 4, {"kind": ulp, "bound": 3}, "larger than 1 ulp"),
    (ONE, ONE + 1, {"kind": absolute, "bound": Fraction(1, 1 << 23)}, "same"),
    (ONE, ONE + 1, {"kind": absolute, "bound": Fraction(1, 1 << 23) - Fraction(1, 1 << 80)}, "1 ulp"),
    (ONE + 2, ONE + 3, {"kind": relative, "bound": Fraction(1, (1 << 23) + 2)}, "same"),
    (ONE + 2, ONE + 3, {"kind": relative, "bound": Fraction(1, (1 << 23) + 2) - Fraction(1, 1 << 90)}, "1 ulp"),
]


@pytest.mark.parametrize(("expected", "got", "options", "said"), TABLE)
def test_one_pair_of_codes(expected, got, options, said):
    assert verdict_on(expected, got, **options) == said


@pytest.mark.parametrize("word", ["allowed", "required"])
@pytest.mark.parametrize(("fmt", "lost", "least"), [(E2M1X2, 0x11, 0), (E4M3, 3, 0), (F64, 3, 0), (TF32, 3 << 13, 0)])
def test_ftz_excuses_no_flush_in_a_format_without_it(fmt, lost, least, word):
    """Each +-0.5 in an e2m1 output is subnormal."""
    case = Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=lambda x: x,
        variants={"v": asm("x", constraints="=r,r", ftz=word)},
    )
    x, y = units(fmt, lost), units(fmt, least)
    assert not judge(case, policies(case, case.variants["v"]), {"x": x}, {"y": y}).passed
    assert judge(case, policies(case, case.variants["v"]), {"x": x}, {"y": x}).passed


def test_float64_bounds_near_overflow_raise_no_warning():
    top = 0x7FEFFFFFFFFFFFFF
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert verdict_on(top, top | 1 << 63, fmt=F64, kind=relative, bound=1e-3) == "sign"
        assert verdict_on(top, top - 1, fmt=F64, kind=relative, bound=1e-3) == "same"


def test_integers_are_compared_as_numbers_at_every_width():
    top = 1 << 62
    assert verdict_on(top, top + 1, fmt=I64) == "value"
    assert verdict_on(top, top + 1, fmt=I64, kind=absolute, bound=1) == "same"
    assert verdict_on(top, top + 2, fmt=I64, kind=absolute, bound=1) == "value"
    assert verdict_on((1 << 64) - 1, 0, fmt=I64, kind=ulp, bound=1) == "same"


SUBNORMAL = 0x00400000


@pytest.mark.parametrize(
    ("ftz", "got", "said"),
    [
        ("never", SUBNORMAL, "same"),
        ("never", 0, "flush to zero"),
        ("required", 0, "same"),
        ("required", SUBNORMAL, "flush to zero"),
        ("allowed", 0, "same"),
        ("allowed", SUBNORMAL, "same"),
        ("allowed", 1, "larger than 1 ulp"),
        ("allowed", MINUS, "sign of zero"),
    ],
)
def test_flushing_is_required_allowed_or_forbidden(ftz, got, said):
    assert verdict_on(SUBNORMAL, got, ftz=ftz) == said


def doubled() -> Case:
    """For y = 2x with flushed inputs, a flush changes the result of a subnormal input by a large amount."""

    def reference(x: torch.Tensor) -> torch.Tensor:
        floats = x.to(torch.int32).view(torch.float32) * 2.0**100
        return floats.view(torch.int32).to(torch.int64) & 0xFFFFFFFF

    return Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=reference,
        variants={
            "never": asm("mov.b32 $0, $1;", constraints="=r,r"),
            "required": asm("mov.b32 $0, $1;", constraints="=r,r", ftz="required"),
            "inputs only": asm("mov.b32 $0, $1;", constraints="=r,r", ftz={"x": "required"}),
            "allowed": asm("mov.b32 $0, $1;", constraints="=r,r", ftz="allowed"),
        },
    )


def scaled(code: int) -> int:
    return int((np.array([code], dtype=np.uint32).view(np.float32) * np.float32(2.0**100)).view(np.uint32)[0])


@pytest.mark.parametrize(
    ("variant", "keeps", "flushes"),
    [
        ("never", "same", "flush to zero"),
        ("required", "flush to zero", "same"),
        ("inputs only", "flush to zero", "same"),
        ("allowed", "same", "same"),
    ],
)
def test_a_flush_of_inputs_is_recognised_by_its_effect_on_the_result(variant, keeps, flushes):
    """2^100 times a subnormal is a large number, so that only the opposite flush explains the difference."""
    case = doubled()
    for got, said in ((scaled(SUBNORMAL), keeps), (0, flushes)):
        policy = policies(case, case.variants[variant])
        found = judge(case, policy, {"x": units(F32, SUBNORMAL)}, {"y": units(F32, got)})
        assert next(iter(found.classes), "same") == said


def judged(got: list[int], expected: list[int], pack: int = 1, **fields: Any) -> Judgement:
    fmt = fields.pop("fmt", F32)
    variant = asm("mov.b32 $0, $1;", constraints="=r,r", **fields)
    case = Case(inputs={"x": fmt}, outputs={"y": fmt}, reference=lambda x: x, variants={"v": variant})
    return judge(case, policies(case, variant), {"x": units(fmt, *expected)}, {"y": units(fmt, *got)}, pack)


def test_the_question_whether_outputs_pass_looks_for_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repairs ask it of hundreds of texts."""
    case = doubled()
    given = case, policies(case, case.variants["never"]), {"x": units(F32, SUBNORMAL)}
    monkeypatch.setattr(judging, "likely_cause", pytest.fail)
    monkeypatch.setattr(judging, "_explained", pytest.fail)
    assert not passes(*given, {"y": units(F32, 0)})


def test_a_difference_outside_the_domain_is_only_counted():
    on = Domain("x >= 1", lambda v: v["x"] >= 1)
    found = judged([ONE + 1, TINY + 7], [ONE, TINY], match=ulp(1, on=on))
    assert (found.total, found.different, found.unchecked, found.judged["y"].judged) == (2, 0, 1, 1)
    found = judged([ONE, TINY + 7], [ONE, TINY], match=ulp(1, on=on, outside=ulp(6)))
    assert (found.different, found.unchecked, found.judged["y"].judged) == (1, 0, 2)


def test_specials_belong_to_every_magnitude():
    """A magnitude is a range of sizes; zero, infinities and NaN are always checked."""
    found = judged([0, INF, ONE], [MINUS, INF | MINUS, NAN], match=ulp(1, on=magnitude("x", 1e10, 1e20)))
    assert found.classes == {"sign of zero": 1, "infinity": 1, "NaN": 1}


def test_meets_compares_the_variant_with_the_cases_reference_too():
    variant = asm(
        "mov.b32 $0, $1;", constraints="=r,r", reference=lambda x: x + 1, meets=Meets(magnitude("x", 1, 2), exact())
    )
    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x, variants={"v": variant})
    two = 0x40800000
    found = judge(case, policies(case, variant), {"x": units(F32, ONE, two)}, {"y": units(F32, ONE + 1, two + 1)})
    assert (found.total, found.classes) == (2, {"1 ulp": 1})
    assert [s.judged for s in found.judged.values()] == [2, 1]
    assert found.offenders[0].output == "y (the case's reference)"


def test_the_loop_must_give_equal_bits():
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=lambda x: x,
        match=ulp(9),
        variants={"v": asm("mov.b32 $0, $1;")},
    )
    inputs = {"x": units(F32, ONE, NAN)}
    found = judge_same(case, inputs, {"y": units(F32, ONE, NAN)}, {"y": units(F32, ONE + 1, NAN + 1)})
    assert found.classes == {"1 ulp": 1, "NaN payload": 1}


RANDOM = np.random.default_rng(1).integers(0x3F000000, 0x42000000, 64).tolist()


@pytest.mark.parametrize("error", [0, 1])
def test_exchanged_places_are_called_positional(error):
    """Exchanged places are recognised even if the variant has only a bound."""
    got = [x + error for k in range(0, 64, 4) for x in (RANDOM[k], RANDOM[k + 2], RANDOM[k + 1], RANDOM[k + 3])]
    found = judged(got, RANDOM, 4, match=ulp(1))
    assert found.classes == {"positional": 32}
    assert found.notes == [
        "y: place 1 of a pack holds the result of place 2",
        "y: place 2 of a pack holds the result of place 1",
    ]
    assert [o.place for o in found.offenders[:2]] == [1, 2]


def test_constant_results_show_no_exchanged_places():
    assert judged([RANDOM[0]] * 64, RANDOM, 4).classes == {"larger than 1 ulp": 63}


def test_counted_inputs_show_no_places():
    """With ascending inputs, byte xor 2 looks like a result from two places further on; only other inputs show which it
    is."""
    counted = list(range(256))
    assert judged([x ^ 2 if x % 4 == 0 else x for x in counted], counted, 4, fmt=U8).classes == {"value": 64}


def test_nibbles_exchanged_within_a_byte():
    rng = np.random.default_rng(0)
    expected = rng.integers(0, 256, 64).tolist()
    got = [(x >> 4) | ((x & 15) << 4) for x in expected]
    assert set(judged(got, expected, fmt=E2M1X2).classes) == {"positional"}


def test_the_offender_and_the_histogram_say_how_much():
    found = judged([ONE + 1, ONE - 20, INF], [ONE, ONE, ONE])
    assert found.ulps == {"1": 1, "-17..32": 1}
    assert [o.ulp for o in found.offenders[:2]] == [1, -20]
    assert found.worst is not None
    assert found.worst.ulp == -20, "the envelope covers finite results only"
    assert found.offenders[0].inputs["x"].value == "1.0"


def test_half_precision_by_the_same_rules():
    assert verdict_on(0x3C00, 0x3C01, fmt=F16) == "1 ulp"
    assert verdict_on(0x7C00, 0x7BFF, fmt=F16, kind=ulp, bound=1) == "infinity"
    assert verdict_on(0x0001, 0x8000, fmt=F16) == "flush to zero"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        (lambda x: x[:1], r"returned 1 codes of shape \(1,\) for y; there are 2"),
        (lambda x: x.float(), "returned float32 for y"),
        (lambda x: -x, r"returned -0x3f800000 to -0x1 for y; codes of float32 are 0 to 0xffffffff"),
    ],
)
def test_a_fault_of_a_reference_is_described(reference, words):
    case = Case(inputs={"x": F32}, outputs={"y": F32}, reference=reference, variants={"v": asm("mov.b32 $0, $1;")})
    with pytest.raises(ReferenceFault, match=words):
        judge(case, policies(case, case.variants["v"]), {"x": units(F32, ONE, 1)}, {"y": units(F32, 0, 0)})


def test_a_fault_of_a_domain_is_described():
    with pytest.raises(
        DomainError, match=r"domain '0 <= \|z\| <= 1 and specials': no input is called 'z'; there are x"
    ):
        judged([ONE + 1], [ONE], match=ulp(1, on=magnitude("z", 0, 1)))


MATCHES = [exact(), ulp(3), absolute(Fraction(1, 3)), relative(Fraction(1, 1000))]


@settings(max_examples=100, deadline=None, database=None)
@given(
    codes(F16), codes(F16), st.sampled_from([exact(), ulp(3), absolute(Fraction(1, 3)), relative(Fraction(1, 1000))])
)
def test_the_judge_agrees_with_its_definition_in_rationals(expected, got, match):
    """Every pair of codes, decided a second time by the definitions in ptxdiff.model.match."""

    def passes() -> bool:
        if is_nan(F16, expected) or is_nan(F16, got):
            return bool(is_nan(F16, expected) and is_nan(F16, got))
        zeros = {bool(is_zero(F16, expected)), bool(is_zero(F16, got))}
        if not (is_finite(F16, expected) and is_finite(F16, got)) or zeros == {True}:
            return expected == got
        a, b = fraction(F16, expected), fraction(F16, got)
        if match.kind == "absolute":
            return abs(a - b) <= match.bound
        if True in zeros:
            return False
        if (a < 0) != (b < 0):
            return False
        limit = {"exact": 0, "relative": match.bound * abs(a)}
        if match.kind == "ulp":
            return abs(expected - got) <= match.bound  # codes of the same sign differ by one if they are neighbours
        return abs(a - b) <= limit[match.kind]

    found = judged([got], [expected], fmt=F16, match=match)
    assert found.passed == passes()
    assert found.different + int(found.passed) == 1


def test_all_outputs_of_an_element_must_match_one_reference():
    """Smaller and larger, in either order: no reference gives the smaller one twice."""
    case = Case(
        inputs={"a": U8, "b": U8},
        outputs={"y": U8, "z": U8},
        reference=either(lambda a, b: (a, b), lambda a, b: (b, a)),
        variants={"v": asm("{ mov.b32 $0, $2; mov.b32 $1, $3; }")},
    )
    policy = policies(case, case.variants["v"])
    given = {"a": units(U8, 1, 1, 1, 1), "b": units(U8, 2, 2, 2, 2)}
    got = {"y": units(U8, 1, 2, 1, 2), "z": units(U8, 2, 1, 1, 2)}
    found = judge(case, policy, given, got)
    assert [(o.index, o.output) for o in found.offenders] == [(3, "y"), (2, "z")]
    own = replace(policy, reference=lambda a, b: (a, a), meets=Meets(Domain("all", lambda v: v["a"] >= 0), exact()))
    found = judge(case, own, given, {"y": units(U8, 1, 1, 1, 1), "z": units(U8, 1, 1, 1, 1)})
    assert found.classes == {"value": 4}


def test_every_distance_is_counted_in_its_bin():
    """One by one against the table: single distances up to 16, then powers of two, on both sides, to the ends of 64
    bits."""
    ends = [s * (1 << k) + d for k in range(63) for s in (1, -1) for d in (-1, 0, 1)]
    distances = sorted({*ends, *range(-70, 71), (1 << 63) - 1, -(1 << 63) + 1, -(1 << 63)})
    expected: dict[str, int] = {}
    for distance in distances:
        expected[step_bin(distance)] = expected.get(step_bin(distance), 0) + 1
    assert count_steps(np.array(distances)) == expected


def test_permitted_flushes_are_not_counted_among_failing_distances():
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=lambda x: x,
        variants={"v": asm("mov.b32 $0, $1;", "=r,r", match=ulp(1), ftz={"y": "allowed"})},
    )
    tiny, normal = 0x00400000, ONE
    inputs = {"x": units(F32, tiny, normal, normal, normal)}
    found = judge(
        case, policies(case, case.variants["v"]), inputs, {"y": units(F32, 0, normal, normal + 1, normal + 2)}
    )
    assert found.ulps == {"0": 1, "1": 1, "2": 1, "-2097153..4194304": 1}
    assert (found.different, found.ulps_failing, found.ulps_unchecked) == (1, {"2": 1}, {})


def test_distances_outside_the_domain_of_the_bound_are_counted_apart():
    domain = ulp(1, on=magnitude("x", 1, 2))
    case = Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=lambda x: x,
        variants={"v": asm("mov.b32 $0, $1;", "=r,r", match=domain)},
    )
    far = 0x42000000
    inputs = {"x": units(F32, ONE, far)}
    found = judge(case, policies(case, case.variants["v"]), inputs, {"y": units(F32, ONE + 2, far + 9)})
    assert (found.ulps_failing, found.ulps_unchecked) == ({"2": 1}, {"9": 1})


@pytest.mark.parametrize(("fmt", "bound"), [(BF16, 2.0**-8), (F16, 3 * 2.0**-12), (F64, 2.0**-53)])
def test_errors_that_lie_on_a_bound_again_and_again_are_each_decided_exactly(fmt: Format, bound: float) -> None:
    """Half of the pairs lie on the bound or one step beside it, in an order that mixes them."""
    rng = np.random.default_rng(7)
    half = encode(fmt, 0.5)
    expected = half + rng.integers(0, 40, size=600)
    got = expected + rng.integers(-4, 5, size=600)
    value = [[fraction(fmt, int(c)) for c in codes] for codes in (expected, got)]
    within = np.array([abs(g - e) <= Fraction(bound) for e, g in zip(*value, strict=True)])
    assert 0 < within.sum() < within.size
    found = classify_differences(fmt, absolute(bound, source="a test"), "any", expected, got)
    assert np.array_equal(found == Difference.SAME, within)
