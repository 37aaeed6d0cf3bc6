"""The reciprocal square root: the approximate instruction, two rounded ones, and Triton's."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, relative, ulp
from ptxdiff.references import reciprocal
from ptxdiff.references.formats import F32

INVERSE = relative(2.0**-22.9, source="PTX ISA, rsqrt: .approx.f32, maximum relative error 2^-22.9")


@triton.jit
def inverse_root(x):
    """tl.rsqrt."""
    return tl.rsqrt(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.rsqrt,
    hard_cases=[(0x13800001,), (0x002080F1,)],  # where the bounds are nearest
    pytorch=torch.rsqrt,
    variants={
        "rsqrt.approx": asm("rsqrt.approx.f32 $0, $1;", packs=(1,), match=INVERSE),
        "rsqrt.approx.ftz": asm("rsqrt.approx.ftz.f32 $0, $1;", packs=(1,), match=INVERSE, ftz="required"),
        # Two roundings, each of which changes the result by at most an ulp.
        "rcp.rn-of-sqrt.rn": asm(
            "sqrt.rn.f32 $0, $1; rcp.rn.f32 $0, $0;", match=ulp(2, source="two roundings of half an ulp each")
        ),
        "triton": plain(inverse_root, match=INVERSE, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, rsqrt, sqrt and rcp",
)
