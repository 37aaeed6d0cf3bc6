"""The sign of one number on the magnitude of another: copysign, lop3, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32


@triton.jit
def copied_in_triton(a, b):
    """The sign bit of a above the other bits of b."""
    sign = a.to(tl.uint32, bitcast=True) & 0x80000000
    return (sign | (b.to(tl.uint32, bitcast=True) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


case = Case(
    inputs={"a": F32, "b": F32},
    outputs={"y": F32},
    reference=arithmetic.copysign,
    nan="payload",
    variants={
        "copysign": asm("copysign.f32 $0, $1, $2;", packs=(1,)),  # PTX has the sign first; C has it last
        "lop3": asm("lop3.b32 $0, 0x80000000, $1, $2, 0xCA;", packs=(1,)),
        "triton": plain(copied_in_triton),
    },
    source="PTX ISA, copysign",
    family="packed arithmetic",
)
