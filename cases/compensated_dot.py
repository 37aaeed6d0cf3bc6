"""A step of the compensated dot product, float32, with products that must not be fused with a sum; and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import sums
from ptxdiff.references.formats import F32


@triton.jit
def add_to(s, c, p, low):
    """The rounded sum, and the errors of product and sum."""
    t = s + p
    v = t - s
    return t, c + (((s - (t - v)) + (p - v)) + low)


@triton.jit
def in_triton(s, c, a, b):
    """With fusion off the product is rounded; with fusion on s + a * b may be one, with wrong errors."""
    p = a * b
    return add_to(s, c, p, tl.fma(a, b, -p))


@triton.jit
def guarded_in_triton(s, c, a, b):
    """.rn prevents fusion, whatever the compiler's setting."""
    p = tl.inline_asm_elementwise("mul.rn.f32 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    return add_to(s, c, p, tl.fma(a, b, -p))


case = Case(
    inputs={"s": F32, "c": F32, "a": F32, "b": F32},
    outputs={"t": F32, "d": F32},
    reference=sums.dot2,
    hard_cases=[(0x80EF1B12, 0x80000003, 0x854C9874, 0xBAAAC806)],  # t is subnormal: a flush of it shows in d
    carry={"t": "s", "d": "c"},
    variants={
        "mul.rn": asm(
            """{
                .reg .f32 p, n, low, v, x, y;
                mul.rn.f32 p, $4, $5;
                neg.f32    n, p;
                fma.rn.f32 low, $4, $5, n;
                add.rn.f32 $0, $2, p;
                sub.rn.f32 v, $0, $2;
                sub.rn.f32 x, $0, v;  sub.rn.f32 x, $2, x;
                sub.rn.f32 y, p, v;
                add.rn.f32 x, x, y;
                add.rn.f32 x, x, low;
                add.rn.f32 $1, $3, x;
            }"""
        ),
        "triton-fusion-off": plain(in_triton, fusion=False),
        "triton-mul.rn": plain(guarded_in_triton),
    },
    source="T. Ogita, S. Rump, S. Oishi, Accurate sum and dot product, 2005",
    family="packed arithmetic",
)
