"""Rotations and shifts of two words as one, by amounts mod 32: shf, shifts with or, a 64-bit register, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits, words
from ptxdiff.references.formats import U32


@triton.jit
def rotate_in_triton(x, n):
    """Two shifts; if n is 0, the second is also by 0."""
    return (x << (n & 31)) | (x >> ((32 - n) & 31))


@triton.jit
def funnel_in_triton(low, high, n):
    """A 64-bit shift."""
    both = (high.to(tl.uint64) << 32) | low.to(tl.uint64)
    return (both >> (n & 31).to(tl.uint64)).to(tl.uint32)


case = Case(
    inputs={"x": U32, "n": U32},
    outputs={"y": U32},
    reference=words.rotate_left,
    variants={
        "shf.l": asm("shf.l.wrap.b32 $0, $1, $1, $2;", packs=(1,)),
        "shf.r": asm("{ .reg .b32 n; neg.s32 n, $2; shf.r.wrap.b32 $0, $1, $1, n; }"),
        "shifts": asm(
            "{ .reg .b32 n, t; and.b32 n, $2, 31; shl.b32 $0, $1, n; sub.u32 n, 32, n; shr.u32 t, $1, n; "
            "or.b32 $0, $0, t; }"  # a shift by 32 gives 0
        ),
        "triton": plain(rotate_in_triton),
    },
    source="PTX ISA, shf",
    family="bits and integers",
)

funnel = Case(
    inputs={"low": U32, "high": U32, "n": U32},
    outputs={"y": U32},
    reference=partial(bits.shf, left=False),
    variants={
        "shf.r": asm("shf.r.wrap.b32 $0, $1, $2, $3;", packs=(1,)),
        "64-bit": asm(
            "{ .reg .b64 both; .reg .b32 n; mov.b64 both, {$1, $2}; and.b32 n, $3, 31; shr.u64 both, both, n; "
            "mov.b64 {$0, _}, both; }"
        ),
        "triton": plain(funnel_in_triton),
    },
    source="PTX ISA, shf",
    family="bits and integers",
)
