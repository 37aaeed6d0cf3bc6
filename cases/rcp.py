"""Reciprocal and quotient: the approximate instruction, the rounded one, and Triton's division."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Meets, asm, exact, magnitude, plain, ulp
from ptxdiff.references import arithmetic, reciprocal
from ptxdiff.references.formats import F32


@triton.jit
def one_over(x):
    """`1 / x`, which compiles to div.full.f32."""
    return 1.0 / x


@triton.jit
def divide(a, b):
    """`a / b`, which compiles to div.full.f32."""
    return a / b


@triton.jit
def times_approximate_reciprocal(a, b):
    """The product with an approximate reciprocal, as Triton code around one instruction."""
    (multiplier,) = tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [b], dtype=[tl.float32], is_pure=True, pack=1
    )
    return a * multiplier


def times_rounded_reciprocal(a, b):
    """a times the rounded reciprocal of b, rounded again."""
    return arithmetic.mul(a, reciprocal.correctly_rounded(b))


# PTX ISA, div.full.f32: 2 ulp for |b| in [2^-126, 2^126]; 0 or NaN for larger ones, whose reciprocal is subnormal.
def full_range(divisor: str):
    """The match policy of div.full.f32; a result within 2 ulp of an end of the range may cross it."""
    return ulp(
        2, on=magnitude(divisor, 2.0**-126, 2.0**126), overflow=True, underflow=True, source="PTX ISA, div: .full.f32"
    )


# The product with an approximate reciprocal has no bound relative to a / b for all b: above 2^126 the reciprocal is
# subnormal and flushed, so the product is 0 for every a. Its own specification is the product with the correctly
# rounded, flushed reciprocal, from which an approximation within 1 ulp differs by at most 2 ulp.
PRODUCT = {
    "reference": reciprocal.times_reciprocal,
    "match": ulp(2, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    "ftz": {"b": "required"},
    "meets": Meets(
        magnitude("b", 2.0**-126, 2.0**125) & magnitude("a", 2.0**-100, 2.0**100),
        ulp(3, overflow=True, underflow=True, source="derived in references/reciprocal.py"),
    ),
}


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.correctly_rounded,
    hard_cases=[(0x138005A9,)],  # where the bounds are nearest
    pytorch=torch.reciprocal,
    variants={
        "rcp.approx.ftz": asm(
            "rcp.approx.ftz.f32 $0, $1;", match=ulp(1, source="PTX ISA, rcp: .approx.f32"), ftz="required"
        ),
        "rcp.rn": asm("rcp.rn.f32 $0, $1;"),
        "triton": plain(one_over, match=full_range("x")),
    },
    family="fast math",
    source="PTX ISA, rcp; IEEE 754 division",
)


quotient = Case(
    inputs={"a": F32, "b": F32},
    outputs={"c": F32},
    reference=reciprocal.quotient,
    pytorch=torch.div,
    variants={
        "triton": plain(divide, match=full_range("b")),
        "rcp.approx.ftz": plain(times_approximate_reciprocal, **PRODUCT),
        "rcp.approx.ftz-asm": asm(
            "rcp.approx.ftz.f32 $0, $2; mul.rn.f32 $0, $1, $0;", constraints="=&r,r,r", pack=1, **PRODUCT
        ),
        "rcp.rn": asm(
            "rcp.rn.f32 $0, $2; mul.rn.f32 $0, $1, $0;",
            constraints="=&r,r,r",
            pack=1,
            reference=times_rounded_reciprocal,
            match=exact(),
            meets=Meets(
                magnitude("b", 2.0**-126, 2.0**125) & magnitude("a", 2.0**-100, 2.0**100),
                ulp(2, overflow=True, underflow=True, source="derived: two roundings, a relative 2^-24 each"),
            ),
        ),
        "div.rn": asm("div.rn.f32 $0, $1, $2;"),
    },
    family="fast math",
    source="PTX ISA, div and rcp; IEEE 754 division",
)
