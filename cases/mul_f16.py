"""The product of float16 numbers: one at a time, two per instruction, and plain Triton."""

import torch
import triton

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16


def rounded(a, b):
    """The product, rounded once to nearest even."""
    return arithmetic.mul(a, b, fmt=F16)


@triton.jit
def in_triton(a, b):
    """a * b on float16."""
    return a * b


case = Case(
    inputs={"a": F16, "b": F16},
    outputs={"c": F16},
    reference=rounded,
    pytorch=torch.mul,
    variants={
        "f16": asm("mul.rn.f16 $0, $1, $2;", packs=(1,)),
        "f16x2": asm("mul.rn.f16x2 $0, $1, $2;", constraints="=r,r,r", pack=2),
        "triton": plain(in_triton),
    },
    targets=since("sm_75"),
    source="PTX ISA, half precision mul; IEEE 754 multiplication",
    family="packed arithmetic",
)
