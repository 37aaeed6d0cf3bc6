"""The class of a float32 (NaN, infinite, finite, subnormal), a bit for each: testp, comparisons, integers, and
Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, U32

KINDS = ("notanumber", "infinite", "finite", "subnormal")


@triton.jit
def in_triton(x):
    """Comparisons of the magnitude's bits."""
    size = x.to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    bits = tl.where(size > 0x7F800000, 1, 0) | tl.where(size == 0x7F800000, 2, 0) | tl.where(size < 0x7F800000, 4, 0)
    return (bits | tl.where((size > 0) & (size < 0x00800000), 8, 0)).to(tl.uint32)


def kinds(x):
    """Bit k for kind k."""
    return sum(comparison.has_property(x, kind).to(torch.int64) << k for k, kind in enumerate(KINDS))


TESTED = "\n".join(f"testp.{kind}.f32 p, $1; @p or.b32 $0, $0, {1 << k};" for k, kind in enumerate(KINDS))
COMPARED = """
    abs.f32 t, $1;
    setp.nan.f32 p, $1, $1;           @p or.b32 $0, $0, 1;
    setp.eq.f32 p, t, 0f7F800000;     @p or.b32 $0, $0, 2;
    setp.lt.f32 p, t, 0f7F800000;     @p or.b32 $0, $0, 4;
    setp.lt.f32 p, t, 0f00800000;
    setp.gt.and.f32 p, t, 0f00000000, p; @p or.b32 $0, $0, 8;
"""
# A subnormal's bits minus one are below 0x007fffff; zero minus one wraps to the largest number.
INTEGERS = """
    and.b32 t, $1, 0x7FFFFFFF;
    setp.hi.u32 p, t, 0x7F800000;     @p or.b32 $0, $0, 1;
    setp.eq.u32 p, t, 0x7F800000;     @p or.b32 $0, $0, 2;
    setp.lo.u32 p, t, 0x7F800000;     @p or.b32 $0, $0, 4;
    sub.u32 t, t, 1;
    setp.lo.u32 p, t, 0x007FFFFF;     @p or.b32 $0, $0, 8;
"""
HEAD = "{ .reg .pred p; .reg .b32 t; mov.b32 $0, 0;\n"

case = Case(
    inputs={"x": F32},
    outputs={"y": U32},
    reference=kinds,
    variants={
        "testp": asm(HEAD + TESTED + "}"),
        "setp": asm(HEAD + COMPARED + "}"),
        "integers": asm(HEAD + INTEGERS + "}"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, testp",
    family="predicates",
)
