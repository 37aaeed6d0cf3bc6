"""Wrong roundings after an approximate step: inputs on which each shows, whatever the name of the case."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ptxdiff import Case, Domain, approximate, asm, emulate, exact, ulp
from ptxdiff.inputs.sets import InputSet, input_sets
from ptxdiff.judging.judge import Judgement, judge
from ptxdiff.model.case import Case as Declared
from ptxdiff.model.policies import policies
from ptxdiff.references import arithmetic, conversion, reciprocal
from ptxdiff.references.formats import BF16, E4M3, F16, F32, I8, Format

NORMAL = Domain("scale is normal", lambda v: (v["scale"] >= 2**-126) & (v["scale"] <= 2**126))
CONVERTED = {
    I8: "cvt.rni.sat.s8.f32 $0, q;",
    E4M3: "cvt.rn.satfinite.e4m3x2.f32 h, 0f00000000, q; mov.b32 $0, {h, h};",
    F16: "cvt.rn.f16.f32 h, q; mov.b32 $0, {h, h};",
    BF16: "cvt.rn.bf16.f32 h, q; mov.b32 $0, {h, h};",
}
OTHER_MODES = ("rz", "rm", "rp")


def inverse(x, scale, *, ftz=True):
    return reciprocal.correctly_rounded(scale, ftz=ftz)


def converted(value: Any, target: Format) -> Any:
    return conversion.convert(value, source=F32, target=target, satfinite=target is E4M3)


def text(steps: str) -> Any:
    return asm(f"{{ .reg .f32 q; .reg .b16 h, k; {steps} }}", constraints="=&r,r,r", pack=1)


def case_of(
    target: Format, then: Callable[..., Any], variants: Mapping[str, str], *, divided: bool = False
) -> Declared:
    """variants: the asm of each, of which "rn" is right."""
    step = arithmetic.div if divided else inverse
    bound = ulp(2, overflow=True, underflow=True) if divided else ulp(1, underflow=True)
    through = approximate(step, F32, bound, then=then, ftz="never" if divided else "required")
    return Case(
        inputs={"x": F32, "scale": F32},
        outputs={"q": target},
        reference=lambda x, scale: then(step(x, scale), x, scale),
        match=exact(through=through),
        variants={n: text(steps) for n, steps in variants.items()},
        where=NORMAL,
        source="PTX ISA, rcp",
    )


def product_of(target: Format) -> Declared:
    """x * rcp.approx(scale) in float32, converted."""
    return case_of(
        target,
        lambda r, x, scale: converted(arithmetic.mul(x, r), target),
        {m: f"rcp.approx.ftz.f32 q, $2; mul.{m}.f32 q, q, $1; {CONVERTED[target]}" for m in ("rn", *OTHER_MODES)},
    )


def scaled_quotient() -> Declared:
    """127 * div.full(x, scale), converted; the quotient is seldom two ulp off."""
    return case_of(
        I8,
        lambda q, x, scale: converted(arithmetic.mul(q, q * 0 + 0x42FE0000), I8),
        {m: f"div.full.f32 q, $1, $2; mul.{m}.f32 q, q, 0f42fe0000; {CONVERTED[I8]}" for m in ("rn", *OTHER_MODES)},
        divided=True,
    )


def in_halves() -> Declared:
    """float16(x) * float16(rcp.approx(scale)) in float16, converted."""

    def then(r: Any, x: Any, scale: Any) -> Any:
        product = arithmetic.mul(*(converted(value, F16) for value in (x, r)), fmt=F16)
        return conversion.convert(product, source=F16, target=I8)

    def steps(first: str, second: str) -> str:
        halves = f"cvt.{first}.f16.f32 h, q; cvt.{second}.f16.f32 k, $1;"
        return f"rcp.approx.ftz.f32 q, $2; {halves} mul.rn.f16 h, h, k; cvt.rni.sat.s8.f16 $0, h;"

    return case_of(I8, then, {"rn": steps("rn", "rn"), "rz": steps("rz", "rn"), "rz of x": steps("rn", "rz")})


CASES: dict[str, Callable[[], Declared]] = {
    "quantise": functools.partial(product_of, I8),
    "rows_to_e4m3": functools.partial(product_of, E4M3),
    "a": functools.partial(product_of, F16),
    "softmax": functools.partial(product_of, BF16),
    "scaled": scaled_quotient,
    "halves": in_halves,
}
"""By the name of the case."""


@functools.cache
def made(name: str) -> tuple[Declared, InputSet]:
    case = CASES[name]()
    sets = {s.name: s for s in input_sets(case, "quick")}
    return case, sets["through/1"]


def judged(case: Declared, variant: str, units: Mapping[str, Any]) -> Judgement:
    (given,) = case.variants[variant].texts.values()
    dtype = case.outputs["q"].numpy_dtype()
    results = emulate(given.text, "=&r,r,r", list(units.values()), dtype, target="sm_90a")
    return judge(case, policies(case, case.variants[variant]), units, {"q": results})


SLOW = {"rows_to_e4m3", "softmax", "halves"}
"""More of a class that the others show: each takes some seconds."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES])
def test_every_wrong_rounding_after_an_approximate_step_fails(name):
    case, inputs = made(name)
    units = inputs.all()
    assert judged(case, "rn", units).passed
    wrong = [v for v in case.variants if v != "rn"]
    assert [v for v in wrong if judged(case, v, units).passed] == []


def test_a_last_step_that_rounds_once_needs_no_such_inputs():
    case = case_of(I8, lambda r, x, scale: converted(r, I8), {"rn": f"rcp.approx.ftz.f32 q, $2; {CONVERTED[I8]}"})
    assert "through/1" not in {s.name for s in input_sets(case, "quick")}
