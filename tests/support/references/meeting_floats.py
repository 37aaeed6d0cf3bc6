"""Rows for arithmetic, selection and approximations of floats."""

from __future__ import annotations

import dataclasses
import functools
import math
from functools import partial
from typing import Any

import numpy as np
import torch

from ptxdiff.references import arithmetic, comparison, double, exponential, fma_clamp, reciprocal, trigonometric
from ptxdiff.references.formats import (
    BF16,
    BF16X2,
    E2M1X4,
    E2M3X4,
    E3M2X4,
    E4M3X4,
    E5M2X4,
    F16,
    F16X2,
    F32,
    F64,
    I32,
    U32,
    Format,
    encode,
    is_finite,
)
from ptxdiff.references.rounding import relu, saturate
from tests.support.references.meeting import Row, absolutely, any_nan, product_of, row, then, within

NAMES = {F16: "f16", BF16: "bf16", F32: "f32", F64: "f64", F16X2: "f16x2", BF16X2: "bf16x2"}
MODES = ("rn", "rz", "rm", "rp")
ARITY = {"add": 2, "sub": 2, "mul": 2, "fma": 3, "div": 2, "sqrt": 1, "rcp": 1}


def modified(function: Any, fmt: Format, sat: str) -> tuple[Any, tuple[Any, ...]]:
    """A reference with `.sat` or `.relu` applied, and the function that the row also stands for."""
    if not sat:
        return function, ()
    clamp = saturate if sat == ".sat" else relu
    return then(function, partial(clamp, fmt.single)), (function, clamp)


def of_three(function: Any, a: Any, b: Any, c: Any) -> Any:
    """The instruction with three sources equals two of the instruction with two sources (PTX ISA 9, min and max)."""
    return function(function(a, b), c)


def turns(limit: float) -> Any:
    """A mask of angles whose magnitude is at most `limit`, and of special values."""
    top = encode(F32, float(np.float32(limit)))
    return lambda x: (x & F32.magnitude_mask <= top) | ~is_finite(F32, x)


def rounded() -> list[Row]:
    """float32 and float64 in every rounding, with `.ftz` and `.sat`; float16 and bfloat16 with the modifiers that they
    have."""
    rows = []
    functions = {n: getattr(arithmetic, n) for n in ("add", "sub", "mul", "fma", "div", "sqrt")}
    for name, function in (functions | {"rcp": reciprocal.correctly_rounded}).items():
        sats = ("", ".sat") if name in ("add", "sub", "mul", "fma") else ("",)
        for mode, ftz, sat in product_of(MODES, ("", ".ftz"), sats):
            plain = partial(function, rounding=mode, ftz=bool(ftz))
            reference, also = modified(plain, F32, sat)
            rows.append(row(f"{name}.{mode}{ftz}{sat}.f32", reference, [F32] * ARITY[name], also=also))
    halves = [("add", ("", ".sat")), ("sub", ("", ".sat")), ("mul", ("", ".sat")), ("fma", ("", ".sat", ".relu"))]
    for fmt, (name, sats) in [(f, h) for f in (F16, F16X2) for h in halves]:
        for ftz, sat in product_of(("", ".ftz"), sats):
            plain = partial(functions[name], fmt=fmt.single, ftz=bool(ftz))
            reference, also = modified(plain, fmt, sat)
            rows.append(row(f"{name}.rn{ftz}{sat}.{NAMES[fmt]}", reference, [fmt] * ARITY[name], fmt, also=also))
    for fmt, name in [(f, n) for f in (BF16, BF16X2) for n in ("add", "sub", "mul")]:
        rows.append(row(f"{name}.rn.{NAMES[fmt]}", partial(functions[name], fmt=BF16), [fmt] * 2, fmt))
    # ptxas accepts .rz, .rm and .rp too, which the ISA lacks; an H200 does not round results in these modes.
    for fmt, sat in [(f, s) for f in (BF16, BF16X2) for s in ("", ".relu")]:
        reference, also = modified(partial(arithmetic.fma, fmt=BF16), fmt, sat)
        rows.append(row(f"fma.rn{sat}.{NAMES[fmt]}", reference, [fmt] * 3, fmt, also=also))
    rows += [row("div.rn.f32", reciprocal.quotient, [F32, F32]), row("rcp.rn.ftz.f32", reciprocal.flushed, [F32])]
    # The ISA does not define the NaN of float64 arithmetic. An H200 keeps an operand's payload; the references give the
    # NaN of an invalid operation.
    doubles = {n: getattr(double, n) for n in ("add", "sub", "mul", "fma", "div", "sqrt")} | {"rcp": double.reciprocal}
    for name, mode in [(n, m) for n in doubles for m in MODES]:
        reference = partial(doubles[name], rounding=mode)
        rows.append(row(f"{name}.{mode}.f64", reference, [F64] * ARITY[name], F64, agree=any_nan))
    return rows


def narrow_products() -> list[Row]:
    """Specification only: no available GPU has them. The ISA leaves the sign of NaN open."""
    formats = {"e2m1x4": E2M1X4, "e2m3x4": E2M3X4, "e3m2x4": E3M2X4, "e4m3x4": E4M3X4, "e5m2x4": E5M2X4}
    rows = []
    for to, left, right, sat in product_of(("e4m3x4", "e5m2x4"), formats, formats, ("", ".satfinite")):
        if not sat and left != right:
            continue  # saturation does not depend on the operands' formats
        a, b, target = formats[left], formats[right], formats[to]
        reference = partial(arithmetic.product, left=a.single, right=b.single, fmt=target.single, satfinite=bool(sat))
        form = f"mul.rn{sat}.{to}.{left}.{right}"
        rows.append(row(form, reference, [a, b], target, target="sm_100a", agree=any_nan))
    return rows


def selected() -> list[Row]:
    """Absolute values, signs, minima, maxima and comparisons."""
    rows = []
    for (name, function), fmt in [
        (n, f) for n in (("abs", arithmetic.absolute), ("neg", arithmetic.negate)) for f in NAMES
    ]:
        for ftz in ("", ".ftz") if fmt.single in (F16, F32) else ("",):
            # ISA: abs and neg of NaN give an unspecified NaN. In some formats an H200 changes only the sign.
            reference = partial(function, fmt=fmt.single, ftz=bool(ftz))
            rows.append(row(f"{name}{ftz}.{NAMES[fmt]}", reference, [fmt], fmt, agree=any_nan))
    for name, function in (("min", arithmetic.minimum), ("max", arithmetic.maximum)):
        for fmt in (F16, F32, BF16, F16X2, BF16X2):
            ftzs = ("", ".ftz") if fmt.single in (F16, F32) else ("",)
            for ftz, nan, how in product_of(ftzs, ("", ".NaN"), ("", ".xorsign.abs")):
                options = {"ftz": bool(ftz), "nan": bool(nan), "xorsign_abs": bool(how)}
                reference = partial(function, fmt=fmt.single, **options)
                rows.append(row(f"{name}{ftz}{nan}{how}.{NAMES[fmt]}", reference, [fmt] * 2, fmt))
        for ftz, nan, absolute in product_of(("", ".ftz"), ("", ".NaN"), ("", ".abs")):
            two = partial(function, ftz=bool(ftz), nan=bool(nan), absolute=bool(absolute))
            form = f"{name}{ftz}{nan}{absolute}.f32"
            text = f"{form} $0, $1, $2, $3;"
            three = functools.partial(of_three, two)
            rows.append(row(f"{form} of three", three, [F32] * 3, text=text, also=[function], target="sm_100a"))
        # As in float64 arithmetic, an H200 gives an operand's NaN for two NaNs.
        rows.append(row(f"{name}.f64", partial(function, fmt=F64), [F64, F64], F64, agree=any_nan))
    rows += [row(f"copysign.{NAMES[f]}", partial(arithmetic.copysign, fmt=f), [f, f], f) for f in (F32, F64)]
    floats = [c for c in comparison.COMPARISONS if c not in ("lo", "ls", "hi", "hs")]
    for fmt, operator in [(f, o) for f in (F16, F32, F64, BF16) for o in floats]:
        for ftz in ("", ".ftz") if fmt in (F16, F32) else ("",):
            form = f"setp.{operator}{ftz}.{NAMES[fmt]}"
            text = f"{{ .reg .pred p; {form} p, $1, $2; selp.u32 $0, 1, 0, p; }}"
            compared = partial(comparison.compare, operator=operator, fmt=fmt, ftz=bool(ftz))
            reference = then(compared, lambda truth: truth.to(torch.int64))
            rows.append(row(form, reference, [fmt] * 2, U32, text=text, also=[comparison.compare]))
    for fmt, name in [
        (f, n) for f in (F32, F64) for n in ("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    ]:
        form = f"testp.{name}.{NAMES[fmt]}"
        text = f"{{ .reg .pred p; {form} p, $1; selp.u32 $0, 1, 0, p; }}"
        reference = then(partial(comparison.has_property, name=name, fmt=fmt), lambda truth: truth.to(torch.int64))
        rows.append(row(form, reference, [fmt], U32, text=text, also=[comparison.has_property]))
    for form, fmt, ftz in (("slct.u32.s32", I32, False), ("slct.u32.f32", F32, False), ("slct.ftz.u32.f32", F32, True)):
        rows.append(row(form, partial(comparison.select_by_sign, fmt=fmt, ftz=ftz), [U32, U32, fmt], U32))
    return rows


def approximate() -> list[Row]:
    """Approximate instructions. Their models are rounded, so that classes must be equal, and values nearly equal."""
    rows = []
    for name, function in (("ex2", exponential.ex2), ("lg2", exponential.lg2), ("rsqrt", reciprocal.rsqrt)):
        for ftz in ("", ".ftz"):
            rows.append(row(f"{name}.approx{ftz}.f32", partial(function, ftz=bool(ftz)), [F32], agree=within(1)))
    for name, function in (("sin", trigonometric.sin), ("cos", trigonometric.cos)):
        for ftz in ("", ".ftz"):
            # PTX ISA 9, sin and cos: an absolute error of 2^-20.5 within two pi, and 2^-14.7 within a hundred.
            for turn, bound in ((2, 2.0**-20.5), (100, 2.0**-14.7)):
                form, reference = f"{name}.approx{ftz}.f32", partial(function, ftz=bool(ftz))
                near = turns(turn * math.pi)
                within_turn = row(form, reference, [F32], agree=absolutely(bound), on=near)
                rows.append(dataclasses.replace(within_turn, form=f"{form} within {turn} pi"))
    rows.append(row("tanh.approx.f32", exponential.tanh, [F32], agree=within(1)))
    for fmt in (F16, BF16, F16X2, BF16X2):
        rows.append(
            row(f"tanh.approx.{NAMES[fmt]}", partial(exponential.tanh, fmt=fmt.single), [fmt], fmt, agree=within(1))
        )
    for fmt, ftz in ((F16, ""), (F16X2, ""), (BF16, ".ftz"), (BF16X2, ".ftz")):
        reference = partial(exponential.ex2, fmt=fmt.single, ftz=bool(ftz))
        # An H200 gives zero below the smallest float16, although half of it and more rounds up.
        agree = within(1, underflow=fmt.single is F16)
        rows.append(row(f"ex2.approx{ftz}.{NAMES[fmt]}", reference, [fmt], fmt, agree=agree))
    text = "{ .reg .f32 t; rcp.approx.ftz.f32 t, $2; mul.rn.f32 $0, $1, t; }"
    rows.append(row("rcp.approx.ftz and mul", reciprocal.times_reciprocal, [F32, F32], text=text, agree=within(2)))
    return rows


def sequences() -> list[Row]:
    """References for several instructions together."""
    rows = []
    for fused, nan, order in product_of(("fma", "mul add"), ("", ".NaN"), ("max first", "min first")):
        bounds = ("max", "min") if order == "max first" else ("min", "max")
        limit = {"max": "0x0000", "min": "0x4600"}
        start = "fma.rn.f16 t, $2, $3, o;" if fused == "fma" else "mul.rn.f16 t, $2, $3; add.rn.f16 t, t, o;"
        clamps = "".join(f"mov.b16 l, {limit[b]}; {b}{nan}.f16 t, t, l;" for b in bounds)
        text = f"{{ .reg .b16 t, o, l; mov.b16 o, 0x3c00; {start} {clamps} mov.b16 $0, t; mul.rn.f16 $1, t, t; }}"
        reference = partial(fma_clamp.fma_clamp, fused=fused == "fma", nan=bool(nan), order=order)
        rows.append((f"{fused}, {order}, max{nan}", text, reference))
    named = [("fused", rows[0][1], fma_clamp.fused), ("two roundings", rows[4][1], fma_clamp.two_roundings)]
    return [
        Row(form, text, reference, (F16, F16), (F16, F16), frozenset({f"fma_clamp.{f}"}))
        for (form, text, reference), f in zip(
            [*rows, *named], ["fma_clamp"] * len(rows) + ["fused", "two_roundings"], strict=True
        )
    ]


ROWS = rounded() + narrow_products() + selected() + approximate() + sequences()
