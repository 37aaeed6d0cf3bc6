"""A word divided by 7, quotient and remainder: a multiplication by the reciprocal, div and rem, and Triton."""

import torch
import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import integers
from ptxdiff.references.formats import U32


@triton.jit
def in_triton(x):
    """ptxas replaces these by the multiplication."""
    return x // 7, x % 7


def by_seven(x):
    """(quotient, remainder)."""
    seven = torch.full_like(x, 7)
    return integers.div(x, seven, fmt=U32), integers.rem(x, seven, fmt=U32)


case = Case(
    inputs={"x": U32},
    outputs={"q": U32, "r": U32},
    reference=by_seven,
    hard_cases=[(7 * 0x24924924 + k,) for k in range(4)],
    variants={
        # 2^35 / 7 = 2^32 + 0x24924924.9... has 33 bits: the leading one is added separately, halved to avoid overflow.
        "reciprocal": asm(
            """{
                .reg .b32 t, h;
                mul.hi.u32 t, $2, 0x24924925;
                sub.u32 h, $2, t;
                shr.u32 h, h, 1;
                add.u32 h, h, t;
                shr.u32 $0, h, 2;
                mad.lo.u32 $1, $0, -7, $2;
            }"""
        ),
        "reciprocal-wide": asm(
            "{ .reg .b64 t, w; cvt.u64.u32 w, $2; mul.hi.u64 t, w, 0x2492492492492493; cvt.u32.u64 $0, t; "
            "mul.lo.u32 $1, $0, 7; sub.u32 $1, $2, $1; }"
        ),
        "div-rem": asm("div.u32 $0, $2, 7; rem.u32 $1, $2, 7;"),
        "triton": plain(in_triton),
    },
    source="T. Granlund, P. Montgomery, Division by invariant integers using multiplication, 1994",
    family="bits and integers",
)
