"""Sums and fused products clamped to [0, 1] on float16: .sat, maximum and minimum, and Triton; NaN becomes 0."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import arithmetic, rounding
from ptxdiff.references.formats import F16


@triton.jit
def unit(y):
    """Comparisons: everything that is not above zero, including NaN and -0, becomes 0."""
    return tl.where(y > 0, tl.where(y > 1, 1.0, y), 0.0).to(tl.float16)


@triton.jit
def add_in_triton(a, b):
    """The sum, clamped."""
    return unit(a + b)


@triton.jit
def fma_in_triton(a, b, c):
    """The fused product, clamped."""
    return unit(tl.fma(a, b, c))


def add_sat(a, b):
    """The rounded sum, clamped."""
    return rounding.saturate(F16, arithmetic.add(a, b, fmt=F16))


def fma_sat(a, b, c):
    """a * b + c, rounded once, clamped."""
    return rounding.saturate(F16, arithmetic.fma(a, b, c, fmt=F16))


CLAMP = "max.f16x2 $0, $0, zero; min.f16x2 $0, $0, one; }"
HEAD = "{ .reg .b32 zero, one; mov.b32 zero, 0; mov.b32 one, 0x3C003C00; "

case = Case(
    inputs={"a": F16, "b": F16},
    outputs={"y": F16},
    reference=add_sat,
    variants={
        "add.sat": asm("add.rn.sat.f16x2 $0, $1, $2;", constraints="=r,r,r", pack=2),
        "add-max-min": asm(
            HEAD + "add.rn.f16x2 $0, $1, $2; " + CLAMP, constraints="=r,r,r", pack=2, targets=since("sm_80")
        ),
        "triton": plain(add_in_triton),
    },
    source="PTX ISA, half precision add: .sat",
    family="packed arithmetic",
)

fused = Case(
    inputs={"a": F16, "b": F16, "c": F16},
    outputs={"y": F16},
    reference=fma_sat,
    variants={
        "fma.sat": asm("fma.rn.sat.f16x2 $0, $1, $2, $3;", constraints="=r,r,r,r", pack=2),
        "fma-max-min": asm(
            HEAD + "fma.rn.f16x2 $0, $1, $2, $3; " + CLAMP, constraints="=r,r,r,r", pack=2, targets=since("sm_80")
        ),
        "triton": plain(fma_in_triton),
    },
    source="PTX ISA, half precision fma: .sat",
    family="packed arithmetic",
)
