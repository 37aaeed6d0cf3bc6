"""Wrong variants that a careless proof would pass: by signs, rounding, flushes, NaN, widths, definedness, domains."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.model.match import Domain, exact, relative, ulp
from ptxdiff.model.variants import AsmVariant
from ptxdiff.proving import definitions
from ptxdiff.proving import terms as t
from ptxdiff.proving.registers import changed_by_sharing
from ptxdiff.proving.verdicts import prove, prove_sharing
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import BF16, F16, F32, U8, U32

ONES = 0xFFFFFFFF
CALLS = itertools.count()


def _sum(a: Any, b: Any) -> Any:
    return (a + b) & ONES


def _signed(a: Any) -> Any:
    return (a ^ 0x80000000) - 0x80000000


def _flushing(operation: str, **fixed: Any) -> Any:
    function = getattr(arithmetic, operation)

    def reference(a: Any, b: Any, *, ftz: Any = False) -> Any:
        return function(a, b, *([a] if operation == "fma" else []), ftz=ftz, **fixed)

    return reference


WORDS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "an unsigned product for a signed one": (
        "mul.hi.u32 $0, $1, $2;", lambda a, b: (_signed(a) * _signed(b) >> 32) & ONES, {},
    ),
    "a product of 24 bits": ("mul24.lo.u32 $0, $1, $2;", lambda a, b: a * b & ONES, {}),
    "a carry into the other half": (
        "{ .reg .b32 t; mul.hi.u32 t, $1, $2; mad.lo.u32 $0, $1, $2, t; }",
        lambda a, b: (a * b & ONES) ^ (a * b >> 32 & ONES), {},
    ),
    "a reciprocal without its second step": (
        "{ .reg .b32 t; mul.hi.u32 t, $1, 0x24924925; add.u32 $0, t, 0; }", lambda a, b: a // 7, {},
    ),
    "a shift by 32": (
        "{ .reg .b32 t; and.b32 t, $2, 31; shl.b32 $0, $1, t; }",
        lambda a, b: torch.where(b < 32, a << torch.clamp(b, max=31), 0) & ONES, {},
    ),
    "a divisor of zero": (
        "{ .reg .b32 t; max.u32 t, $2, 1; div.u32 $0, $1, t; }",
        lambda a, b: torch.where(b == 0, 0, a // torch.where(b == 0, 1, b)), {},
    ),
    "an undefined register times zero": (
        "{ .reg .b32 t; mul.lo.u32 t, t, 0; add.u32 t, t, $1; add.u32 $0, t, $2; }", _sum, {},
    ),
    "an undefined guard of a step without effect": (
        "{ .reg .pred p; .reg .b32 t; add.u32 t, $1, $2; @p add.u32 t, t, 0; mov.b32 $0, t; }", _sum, {},
    ),
    "an undefined branch to the next step": (
        "{ .reg .pred p; .reg .b32 t; add.u32 t, $1, $2; @p bra on; on: mov.b32 $0, t; }", _sum, {},
    ),
    "a shared register that is written without a value": (
        "{ .reg .b32 t; mov.b32 $0, t; mov.b32 $0, $1; }", lambda a, b: a,
        {"where": Domain("a is 0", lambda v: v["a"] == 0)},
    ),
    "a shared register that is read after a write": (
        "{ .reg .b32 t; add.u32 $0, $1, $2; sub.u32 t, $0, $2; xor.b32 t, t, $1; add.u32 $0, $0, t; }", _sum, {},
    ),
    "a domain without inputs": (
        "add.u32 $0, $1, $2;", lambda a, b: a & b, {"where": Domain("none", lambda v: v["a"] > ONES)},
    ),
    "a policy that checks nothing": (
        "add.u32 $0, $1, $2;", lambda a, b: a & b, {"match": exact(on=Domain("none", lambda v: v["a"] < 0))},
    ),
    "the last input of a domain": (
        "{ .reg .pred p; .reg .b32 t; add.u32 t, $1, $2; setp.eq.u32 p, $1, 99; @p add.u32 t, t, 1; mov.b32 $0, t; }",
        _sum, {"where": Domain("a <= 99", lambda v: v["a"] <= 99)},
    ),
}  # fmt: skip
NEGATED = "{{ .reg .f32 a, b; neg.f32 a, $1; neg.f32 b, $2; add.{0}.f32 a, a, b; neg.f32 $0, a; }}"
RESULTS_ALONE = {"ftz": {"y": "required"}}
FLOATS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "another rounding": ("mul.rz.f32 $0, $1, $2;", arithmetic.mul, {}),
    "a zero's sign in a negated product": (
        "{ .reg .f32 a; neg.f32 a, $1; mul.rm.f32 a, a, $2; mov.b32 $0, a; }",
        lambda a, b: arithmetic.mul(a, b, rounding="rp"), {},
    ),
    "a zero's sign in a negated sum": (NEGATED.format("rn"), arithmetic.add, {}),
    "a negated sum rounded in the same direction": (
        NEGATED.format("rp"), lambda a, b: arithmetic.add(a, b, rounding="rp"), {},
    ),
    "a sum rounded twice": (
        "{ .reg .f64 a, b; cvt.f64.f32 a, $1; cvt.f64.f32 b, $2; add.rn.f64 a, a, b; cvt.rm.f32.f64 $0, a; }",
        lambda a, b: arithmetic.add(a, b, rounding="rm"), {},
    ),
    "two roundings for one": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, $2; add.rn.f32 $0, t, $1; }", lambda a, b: arithmetic.fma(a, b, a), {},
    ),
    "a flush that is not asked for": ("mul.rn.ftz.f32 $0, $1, $2;", arithmetic.mul, {}),
    "a flush that is missing": ("mul.rn.f32 $0, $1, $2;", _flushing("mul"), {"ftz": "required"}),
    "a flush of a rounded result": (
        "{ .reg .f32 t; mul.rn.f32 t, $1, $2; mul.rn.ftz.f32 $0, t, 0f3F800000; }", _flushing("mul"),
        {"ftz": "required"},
    ),
    "flushed operands of a sum whose results alone are flushed": (
        "add.rn.ftz.f32 $0, $1, $2;", _flushing("add"), RESULTS_ALONE,
    ),
    "flushed operands of a product whose results alone are flushed": (
        "mul.rn.ftz.f32 $0, $1, $2;", _flushing("mul"), RESULTS_ALONE,
    ),
    "flushed operands of an fma whose results alone are flushed": (
        "fma.rn.ftz.f32 $0, $1, $2, $1;", _flushing("fma"), RESULTS_ALONE,
    ),
    "one NaN in a sum": (
        "{ .reg .pred p; .reg .f32 t; add.rn.f32 t, $1, $2; setp.nan.f32 p, t, t; @p mov.f32 t, 0f7F800000; "
        "mov.b32 $0, t; }", arithmetic.add, {},
    ),
    "a NaN that a minimum loses": (
        "{ .reg .f32 t; min.f32 t, $1, $2; mov.b32 $0, t; }", lambda a, b: arithmetic.minimum(a, b, nan=True), {},
    ),
    "a root of a magnitude": (
        "{ .reg .f32 t; abs.f32 t, $1; sqrt.rn.f32 $0, t; }", lambda a, b: arithmetic.sqrt(a), {},
    ),
    "a quotient by a rounded reciprocal": (
        "div.rn.f32 $0, $1, $2;",
        lambda a, b: arithmetic.mul(a, arithmetic.div(torch.full_like(b, 0x3F800000), b)), {},
    ),
}  # fmt: skip
ATTACKS = {name: (U32, "r", 1, *one) for name, one in WORDS.items()}
ATTACKS |= {name: (F32, "r", 1, *one) for name, one in FLOATS.items()}
WIDEN = "{ .reg .f32 a, b; cvt.f32.f16 a, $1; cvt.f32.f16 b, $2; "
ATTACKS |= {
    "a half rounded twice": (
        F16, "h", 1, WIDEN + "add.rn.f32 a, a, b; cvt.rz.f16.f32 $0, a; }",
        lambda a, b: arithmetic.add(a, b, fmt=F16), {},
    ),
    "a fused half rounded twice": (
        F16, "h", 1, WIDEN + "fma.rn.f32 a, a, b, b; cvt.rn.f16.f32 $0, a; }",
        lambda a, b: arithmetic.fma(a, b, b, fmt=F16), {},
    ),
    "a flush that no instruction on bfloat16 has": (
        BF16, "h", 1, "mul.rn.bf16 $0, $1, $2;", lambda a, b: arithmetic.mul(a, b, fmt=BF16, ftz="results"), {},
    ),
    "a carry into the next element": (
        U8, "r", 4, "add.u32 $0, $1, $2;", lambda a, b: (a + b) & 255, {},
    ),
    "a pack with one wrong word": (
        U8, "r", 4, "{ .reg .b32 t, u; .reg .pred p; or.b32 t, $1, $2; setp.eq.u32 p, $1, 0xDEADBEEF; "
        "setp.eq.and.u32 p, $2, 0x01020304, p; @p xor.b32 t, t, 0x40000000; mov.b32 $0, t; }",
        lambda a, b: a | b, {},
    ),
}  # fmt: skip
SUM_OF_PRODUCT = "{{ .reg .f32 t, u, v; .reg .b64 w; .reg .pred p; mul.f32 t, $1, $2; {} }}"


def _rounded_twice(a: Any, b: Any) -> Any:
    return arithmetic.add(arithmetic.mul(a, b), b)


def _first(a: Any, b: Any) -> Any:
    return a


LOOP = """{{ .reg .b32 s, i; .reg .pred p, q; mov.b32 i, 0; mov.b32 s, $1;
    again: {} add.u32 i, i, 1; setp.lt.u32 p, i, {}; @p bra again; mov.b32 $0, s; }}"""
CONTRACTED = {
    "one of two sums fused": "add.f32 u, t, $2; add.f32 v, t, $2; xor.b32 $0, u, v;",
    "a product that is moved": "mov.f32 u, t; add.f32 $0, u, $2;",
    "a product that is negated": "neg.f32 t, t; neg.f32 u, $2; add.f32 t, t, u; neg.f32 $0, t;",
    "a product before a branch": "setp.eq.f32 p, $1, $1; @p bra on; on: add.f32 $0, t, $2;",
    "a product in a pair": "mov.b64 w, {{t, t}}; mov.b64 {{u, v}}, w; add.f32 $0, u, $2;",
    "a product that is moved under guards": "setp.eq.b32 p, $1, 9; @p mov.f32 u, t; @!p mov.f32 u, t; "
    "add.f32 $0, u, $2;",
    "a product that may be fused": "add.f32 $0, t, $2;",
}
ATTACKS |= {
    name: (F32, "r", 1, SUM_OF_PRODUCT.format(body.replace("{{", "{").replace("}}", "}")),
           (lambda a, b: a * 0) if name.startswith("one of") else _rounded_twice, {})
    for name, body in CONTRACTED.items()
}  # fmt: skip
ATTACKS |= {
    name: (F32, "r", 1, text, reference, options)
    for name, text, reference, options in (
        ("a sum with +0", "add.f32 $0, $1, 0f00000000;", _first, {}),
        ("a flushing sum with -0", "add.ftz.f32 $0, $1, 0f80000000;", _first, {}),
        ("a flushing fma with 1 and -0", "fma.rn.ftz.f32 $0, $1, 0f3F800000, 0f80000000;", _first, {}),
        ("a sum with -0 rounded down", "add.rm.f32 $0, $1, 0f80000000;",
         lambda a, b: arithmetic.add(a, torch.full_like(a, 0x80000000)), {}),
        ("a difference of equal numbers", "sub.f32 $0, $1, $1;", lambda a, b: a * 0, {}),
        ("a product with a rounded third", "mul.rn.f32 $0, $1, 0f3EAAAAAB;",
         lambda a, b: arithmetic.div(a, torch.full_like(a, 0x40400000)), {}),
        ("a comparison and its opposite for NaN",
         "{ .reg .pred p, q; setp.lt.f32 p, $1, $2; setp.ge.f32 q, $1, $2; xor.pred p, p, q; selp.b32 $0, 1, 0, p; }",
         lambda a, b: torch.ones_like(a), {}),
        ("the second predicate of a false conjunction",
         "{ .reg .pred p, q; setp.lt.and.f32 p|q, $1, $2, 0; selp.b32 $0, 1, 0, q; }",
         lambda a, b: torch.ones_like(a), {}),
        ("the edge of a domain in float32", "{ .reg .pred p; setp.eq.b32 p, $1, 0x3DCCCCCD; selp.b32 $0, 0, $1, p; }",
         _first, {"where": Domain("a >= 0.1", lambda v: v["a"] >= 0.1)}),
        ("a domain of zeros", "mov.b32 $0, 0;", _first, {"where": Domain("a is 0", lambda v: v["a"] == 0)}),
        ("an infinity within one ulp", "{ .reg .b32 t; .reg .pred p; mul.rn.f32 t, $1, $2; "
         "setp.eq.b32 p, t, 0x7F800000; @p sub.u32 t, t, 1; mov.b32 $0, t; }", arithmetic.mul, {"match": ulp(1)}),
        ("a sign of zero within one ulp", "{ .reg .b32 t; .reg .pred p; mul.rn.f32 t, $1, $2; "
         "setp.eq.b32 p, t, 0; @p mov.b32 t, 0x80000001; mov.b32 $0, t; }", arithmetic.mul, {"match": ulp(1)}),
        ("a NaN within a bound", "{ .reg .pred p; setp.nan.f32 p, $1, $1; selp.b32 $0, 0, $1, p; }", _first,
         {"match": relative(0.5)}),
    )
}  # fmt: skip
ATTACKS |= {
    name: (U32, "r", 1, text, reference, {})
    for name, text, reference in (
        ("an undefined byte for one word",
         "{ .reg .b32 t; .reg .pred p; setp.ne.u32 p, $1, 0xDEAD1234; @p mov.b32 t, $2; prmt.b32 $0, $1, t, 0x7654; }",
         lambda a, b: b),
        ("an undefined register without itself", "{ .reg .b32 t; xor.b32 t, t, t; add.u32 $0, t, $1; }", _first),
        ("an undefined choice between equals",
         "{ .reg .b32 t; .reg .pred p; setp.eq.u32 p, t, t; selp.b32 $0, $1, $1, p; }", _first),
        ("an undefined guard of an equal move", "{ .reg .pred p; mov.b32 $0, $1; @p mov.b32 $0, $1; }", _first),
        ("one turn of 160", LOOP.format(
            "setp.eq.u32 q, i, 150; setp.eq.and.u32 q, $2, 77, q; @q add.u32 s, s, 1;", 160), _first),
        ("an odd number of turns", LOOP.format("xor.b32 s, s, $2;", 7), _first),
        ("a loop that an input ends",
         "{ .reg .b32 s, i; .reg .pred p; mov.b32 s, $1; mov.b32 i, 0; again: add.u32 i, i, 1; setp.eq.u32 p, $2, i; "
         "@p add.u32 s, s, 1; setp.ne.u32 p, i, $2; @p bra again; mov.b32 $0, s; }",
         lambda a, b: (a + 1) & ONES),
        ("a guard for one word", "{ .reg .pred p; setp.eq.u32 p, $1, 5; mov.b32 $0, $2; @!p mov.b32 $0, $1; }", _first),
        ("a reference that knows the place of an input", "mov.b32 $0, $1;",
         lambda a, b: (a + torch.arange(a.numel()).reshape(a.shape)) & ONES),
        ("a reference that knows the number of inputs", "mov.b32 $0, $1;",
         lambda a, b: (a + int(a.numel() > 100)) & ONES),
        ("a reference of a sum of all inputs", "mov.b32 $0, $1;", lambda a, b: a.sum(0).expand(a.shape) & ONES),
        ("a reference that has a state", "mov.b32 $0, $1;", lambda a, b: a ^ next(CALLS)),
        ("a reference with chance", "mov.b32 $0, $1;", lambda a, b: a ^ torch.randint(0, 2, a.shape)),
        ("a reference with a branch", "mov.b32 $0, $1;", lambda a, b: a if bool((a == a).all()) else b),
    )
}  # fmt: skip
ATTACKS["equal bytes of a pack"] = (
    U8, "r", 4, "{ .reg .pred p; mov.b32 $0, $1; setp.eq.u32 p, $2, 0x01020304; @p prmt.b32 $0, $2, 0, 0x0123; }",
    _first, {},
)  # fmt: skip
QUICK = [n for n in [*ATTACKS][::7] if n != "one of two sums fused"]  # which the solver works on for three seconds


def proof(name: str) -> Any:
    fmt, letter, pack, text, reference, options = ATTACKS[name]
    case = Case(
        inputs={"a": fmt, "b": fmt}, outputs={"y": fmt}, reference=reference,
        variants={"it": asm(text, f"={letter},{letter},{letter}", pack=pack)}, **options,
    )  # fmt: skip
    return prove(case, "it", "sm_90a", seconds=15)


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ATTACKS])
def test_a_wrong_variant_is_never_proved(name: str) -> None:  # the others ask a solver about thirty variants
    assert proof(name).verdict in ("counterexample", "not settled")


UNLIKE = """{{ .reg .f32 t, s, u; .reg .pred p; mul.f32 t, $1, $2; add.f32 s, t, $2; {}
    setp.ne.b32 p, s, u; or.b32 $0, $1, $2; @p xor.b32 $0, $0, $1; }}"""
# The predicate holds only if the sum is not fused, or only if it is. Then $0 in the register of $1 changes the result.
READINGS = {
    "apart": UNLIKE.format("fma.rn.f32 u, $1, $2, $2;"),
    "fused": UNLIKE.format("mul.rn.f32 u, $1, $2; add.rn.f32 u, u, $2;"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", READINGS)
def test_shared_registers_are_right_in_every_reading(name: str) -> None:
    text = READINGS[name]
    case = Case(
        inputs={"a": F32, "b": F32}, outputs={"y": F32}, reference=_first,
        variants={"it": asm(text, "=r,r,r", pack=1)},
    )  # fmt: skip
    variant = case.variants["it"]
    assert isinstance(variant, AsmVariant)
    for fusion in (False, True):
        found = prove_sharing(case, variant, "sm_90a", 1, lambda units: "other bits", fusion=fusion, seconds=30)
        assert found.verdict == ("counterexample" if fusion or name == "apart" else "proved")
    assert changed_by_sharing(text, "=r,r,r", "sm_90a", ((0, 1),), (), 30.0)


@pytest.mark.parametrize("other", ["ex2.approx.ftz.f32", "rcp.approx.ftz.f32", "sin.approx.ftz.f32"])
def test_approximate_instructions_are_not_each_other(other: str) -> None:
    case = Case(
        inputs={"a": F32}, outputs={"y": F32}, reference=lambda a: a,
        variants={n: asm(f"{i} $0, $1;", "=r,r", pack=1) for n, i in (("it", "ex2.approx.f32"), ("other", other))},
    )  # fmt: skip
    assert prove(case, "it", "sm_90a", against="other", seconds=15).verdict != "proved"


def test_two_large_tables_are_one_function_only_if_they_are_equal() -> None:
    """Whatever their names are."""
    place = t.variable("k", 64)
    one, same, other = (definitions.entry(v, place) for v in (torch.arange(600).numpy(), torch.arange(600).numpy(),
                                                               torch.arange(600).flip(0).numpy()))  # fmt: skip
    assert one is same
    assert one is not other
