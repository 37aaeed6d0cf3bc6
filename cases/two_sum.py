"""A sum and its rounding error, float32: Knuth's six operations, three if the first is larger, and Triton."""

import triton

from ptxdiff import Case, Domain, asm, plain
from ptxdiff.references import sums
from ptxdiff.references.formats import F32


@triton.jit
def in_triton(a, b):
    """Compilers do not reorder float operations; only products and sums may be fused."""
    s = a + b
    virtual = s - a
    return s, (a - (s - virtual)) + (b - virtual)


@triton.jit
def fast_in_triton(a, b):
    """Three operations."""
    s = a + b
    return s, b - (s - a)


SIX = """{{
    .reg .f32 v, x, y;
    add{0}.f32 $0, $2, $3;
    sub{0}.f32 v, $0, $2;
    sub{0}.f32 x, $0, v;
    sub{0}.f32 x, $2, x;
    sub{0}.f32 y, $3, v;
    add{0}.f32 $1, x, y;
}}"""
shared = {
    "inputs": {"a": F32, "b": F32},
    "outputs": {"s": F32, "e": F32},
    "source": "D. Knuth, The Art of Computer Programming 2, 4.2.2",
    "family": "packed arithmetic",
}

case = Case(
    **shared,
    reference=sums.two_sum,
    variants={
        "add.rn": asm(SIX.format(".rn")),
        "add": asm(SIX.format(""), note="without .rn a sum may be fused with a product, and here is none"),
        "triton": plain(in_triton),
    },
)

fast = Case(
    **shared,
    reference=sums.fast_two_sum,
    where=Domain("|a| >= |b|", lambda v: abs(v["a"]) >= abs(v["b"])),
    variants={
        "add.rn": asm("{ .reg .f32 v; add.rn.f32 $0, $2, $3; sub.rn.f32 v, $0, $2; sub.rn.f32 $1, $3, v; }"),
        "triton": plain(fast_in_triton),
    },
)
