"""Wrong variants that a careless proof would pass: by signs, rounding, flushes, NaN, widths, definedness, domains."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("bitwuzla", reason="the extra `prove` is not installed")
pytest.importorskip("z3", reason="the extra `prove` is not installed")

from ptxdiff import Case, asm
from ptxdiff.model.match import Domain, exact
from ptxdiff.proving import definitions
from ptxdiff.proving import terms as t
from ptxdiff.proving.verdicts import prove
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import BF16, F16, F32, U8, U32

ONES = 0xFFFFFFFF


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
QUICK = [*ATTACKS][::5]


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
