"""The binary logarithm: the approximate instruction with and without flush, and Triton's."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, absolute, asm, plain, relative
from ptxdiff.references import exponential
from ptxdiff.references.formats import F32

INNER = Domain("0.5 < x < 2", lambda values: (values["x"] > 0.5) & (values["x"] < 2))
LG2 = absolute(
    2.0**-22,
    on=INNER,
    outside=relative(2.0**-22, source="PTX ISA, lg2: relative 2^-22 elsewhere"),
    source="PTX ISA, lg2: .approx.f32, absolute 2^-22 in (0.5, 2)",
)


@triton.jit
def binary(x):
    """tl.log2."""
    return tl.log2(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.lg2,
    pytorch=torch.log2,
    variants={
        "lg2.approx": asm("lg2.approx.f32 $0, $1;", packs=(1,), match=LG2),
        "lg2.approx.ftz": asm("lg2.approx.ftz.f32 $0, $1;", packs=(1,), match=LG2, ftz="required"),
        "triton": plain(binary, match=LG2, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, lg2",
)
