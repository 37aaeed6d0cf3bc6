"""2^x: the approximate instruction with and without flush, and Triton's exp2."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, ulp
from ptxdiff.references import exponential
from ptxdiff.references.formats import F32

BOUND = ulp(2, source="PTX ISA, ex2: .approx.f32")


@triton.jit
def power_of_two(x):
    """exp2 as Triton compiles it."""
    return tl.exp2(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.ex2,
    pytorch=torch.exp2,
    variants={
        "ex2.approx.ftz": asm("ex2.approx.ftz.f32 $0, $1;", match=BOUND, ftz="required"),
        "ex2.approx": asm("ex2.approx.f32 $0, $1;", match=BOUND),
        "triton": plain(power_of_two, match=BOUND, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, ex2",
)
