"""The sign of a float32 as -1, 0 or 1 (NaN gives 0): set, two selections, guarded moves, and Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32

ONE, MINUS_ONE = 0x3F800000, 0xBF800000


@triton.jit
def in_triton(x):
    """The difference of two comparisons."""
    return (x > 0).to(tl.float32) - (x < 0).to(tl.float32)


def sign_of(x):
    """1, -1, or +0 for zeros and NaN."""
    zero = torch.zeros_like(x)
    above, below = comparison.compare(x, zero, "gt"), comparison.compare(x, zero, "lt")
    return torch.where(above, ONE, torch.where(below, MINUS_ONE, 0))


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=sign_of,
    variants={
        # set.f32 gives 1.0 or 0.0
        "set": asm(
            "{ .reg .f32 above, below; set.gt.f32.f32 above, $1, 0f00000000; set.lt.f32.f32 below, $1, 0f00000000; "
            "sub.rn.f32 $0, above, below; }"
        ),
        "selp": asm(
            "{ .reg .pred p; .reg .f32 t; setp.lt.f32 p, $1, 0f00000000; selp.f32 t, 0fBF800000, 0f00000000, p; "
            "setp.gt.f32 p, $1, 0f00000000; selp.f32 $0, 0f3F800000, t, p; }"
        ),
        "guarded": asm(
            "{ .reg .pred above, below; mov.f32 $0, 0f00000000; setp.gt.f32 above, $1, 0f00000000; "
            "setp.lt.f32 below, $1, 0f00000000; @above mov.f32 $0, 0f3F800000; @below mov.f32 $0, 0fBF800000; }"
        ),
        "pair": asm(  # p|q: the comparison and its opposite, which is true for NaN
            "{ .reg .pred p, q, z; setp.eq.f32 z, $1, 0f00000000; setp.gt.f32 p|q, $1, 0f00000000; "
            "selp.f32 $0, 0f3F800000, 0fBF800000, p; setp.nan.or.f32 z, $1, $1, z; @z mov.f32 $0, 0f00000000; }"
        ),
        "triton": plain(in_triton),
    },
    source="PTX ISA, set, setp and selp",
    family="predicates",
)
