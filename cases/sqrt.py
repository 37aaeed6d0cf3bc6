"""The square root: the approximate instruction, rounded ones, and Triton's functions."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, relative
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

APPROXIMATE = relative(2.0**-23, source="PTX ISA, sqrt: .approx.f32, maximum relative error 2^-23")


@triton.jit
def root(x):
    """Triton's fast square root."""
    return tl.sqrt(x)


@triton.jit
def rounded_root(x):
    """Triton's correctly rounded square root."""
    return tl.sqrt_rn(x)


def directed(rounding):
    """The root in a rounding mode."""
    return {"reference": lambda x: arithmetic.sqrt(x, rounding=rounding)}


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=arithmetic.sqrt,
    hard_cases=[(0x13801000,)],  # where the bounds are nearest
    pytorch=torch.sqrt,
    variants={
        "sqrt.approx": asm("sqrt.approx.f32 $0, $1;", packs=(1,), match=APPROXIMATE),
        "sqrt.approx.ftz": asm("sqrt.approx.ftz.f32 $0, $1;", packs=(1,), match=APPROXIMATE, ftz="required"),
        "sqrt.rn": asm("sqrt.rn.f32 $0, $1;", packs=(1,)),
        "sqrt.rz": asm("sqrt.rz.f32 $0, $1;", packs=(1,), **directed("rz")),
        "sqrt.rp": asm("sqrt.rp.f32 $0, $1;", packs=(1,), **directed("rp")),
        "triton": plain(root, match=APPROXIMATE, ftz="allowed"),
        "triton-rn": plain(rounded_root),
    },
    family="fast math",
    source="PTX ISA, sqrt; IEEE 754 5.4.1",
)
