"""Interval bounds: a sum and a product rounded down and up; by .rm and .rp, by negation, and by float64 in Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32


@triton.jit
def rounded(asm: tl.constexpr, a, b):
    """One instruction of inline asm, because Triton has no rounding modes."""
    return tl.inline_asm_elementwise(asm, "=r,r,r", [a, b], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sum_in_triton(a, b):
    """Two blocks, one for each bound."""
    return rounded("add.rm.f32 $0, $1, $2;", a, b), rounded("add.rp.f32 $0, $1, $2;", a, b)


@triton.jit
def product_in_triton(a, b):
    """Two blocks, one for each bound."""
    return rounded("mul.rm.f32 $0, $1, $2;", a, b), rounded("mul.rp.f32 $0, $1, $2;", a, b)


def bounds(*codes, operation, ftz=False):
    """(rounded down, rounded up)."""
    return operation(*codes, rounding="rm", ftz=ftz), operation(*codes, rounding="rp", ftz=ftz)


def interval(operation, names, reference, variants):
    """The case of one operation: `names` are its operands, {k} in asm the k-th of them."""
    operands = ", ".join(f"${k}" for k in range(2, len(names) + 2))
    text = f"{operation}.rm{{0}}.f32 $0, {operands}; {operation}.rp{{0}}.f32 $1, {operands};"
    return Case(
        inputs=dict.fromkeys(names, F32),
        outputs={"low": F32, "high": F32},
        reference=partial(bounds, operation=reference),
        variants={
            "rm-rp": asm(text.format("")),
            "rm-rp.ftz": asm(text.format(".ftz"), ftz="required"),
            **variants,
        },
        source=f"PTX ISA, {operation}: .rm and .rp; IEEE 754-2019, 4.3.2",
        family="packed arithmetic",
    )


# The negated sum rounded down, negated again, is the sum rounded up.
add = interval("add", ("a", "b"), arithmetic.add, {
    "negated": asm(
        "{ .reg .f32 a, b; neg.f32 a, $2; neg.f32 b, $3; add.rm.f32 $0, $2, $3; add.rm.f32 $1, a, b; neg.f32 $1, $1; }"
    ),
    "triton": plain(sum_in_triton),
})  # fmt: skip
mul = interval("mul", ("a", "b"), arithmetic.mul, {
    # A product of two float32 is exact in float64.
    "float64": asm(
        "{ .reg .f64 a, b; cvt.f64.f32 a, $2; cvt.f64.f32 b, $3; mul.rn.f64 a, a, b; cvt.rm.f32.f64 $0, a; "
        "cvt.rp.f32.f64 $1, a; }"
    ),
    "triton": plain(product_in_triton),
})  # fmt: skip
