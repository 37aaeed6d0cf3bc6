"""The square root and its reciprocal: approximate instructions, rounded ones, and Triton's functions."""

import torch
import triton
import triton.language as tl

from harness import Case, asm, plain, relative, ulp
from references import arithmetic, reciprocal
from references.formats import F32

APPROXIMATE = relative(2.0**-23, source="PTX ISA, sqrt: .approx.f32, maximum relative error 2^-23")
INVERSE = relative(2.0**-22.9, source="PTX ISA, rsqrt: .approx.f32, maximum relative error 2^-22.9")


@triton.jit
def root(x):
    """What Triton offers as fast."""
    return tl.sqrt(x)


@triton.jit
def rounded_root(x):
    """What Triton offers as rounded."""
    return tl.sqrt_rn(x)


@triton.jit
def inverse_root(x):
    """tl.rsqrt."""
    return tl.rsqrt(x)


def directed(rounding):
    """The root in a rounding mode."""
    return {"reference": lambda x: arithmetic.sqrt(x, rounding=rounding)}


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=arithmetic.sqrt,
    pytorch=torch.sqrt,
    variants={
        "sqrt.approx": asm("sqrt.approx.f32 $0, $1;", match=APPROXIMATE),
        "sqrt.approx.ftz": asm("sqrt.approx.ftz.f32 $0, $1;", match=APPROXIMATE, ftz="required"),
        "sqrt.rn": asm("sqrt.rn.f32 $0, $1;"),
        "sqrt.rz": asm("sqrt.rz.f32 $0, $1;", packs=(1,), **directed("rz")),
        "sqrt.rp": asm("sqrt.rp.f32 $0, $1;", packs=(1,), **directed("rp")),
        "triton": plain(root, match=APPROXIMATE, ftz="allowed"),
        "triton-rn": plain(rounded_root),
    },
    family="fast math",
    source="PTX ISA, sqrt; IEEE 754 5.4.1",
)

rsqrt = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.rsqrt,
    pytorch=torch.rsqrt,
    variants={
        "rsqrt.approx": asm("rsqrt.approx.f32 $0, $1;", match=INVERSE),
        "rsqrt.approx.ftz": asm("rsqrt.approx.ftz.f32 $0, $1;", match=INVERSE, ftz="required"),
        # Of two roundings, each moves the result by at most an ulp of its own.
        "rcp.rn-of-sqrt.rn": asm(
            "sqrt.rn.f32 $0, $1; rcp.rn.f32 $0, $0;", match=ulp(2, source="two roundings of half an ulp each")
        ),
        "triton": plain(inverse_root, match=INVERSE, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, rsqrt, sqrt and rcp",
)
