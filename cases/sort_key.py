"""Floats as unsigned keys in the order of their values, for radix sorts and atomic maxima: float32, float16; Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import F16, F32, U16, U32


@triton.jit
def in_triton(x):
    """Flip all bits of a negative number, and only the sign of others."""
    bits = x.to(tl.int32, bitcast=True)
    return (bits ^ ((bits >> 31) | -2147483648)).to(tl.uint32, bitcast=True)


@triton.jit
def half_in_triton(x):
    """The same in 16 bits, with a selection."""
    bits = x.to(tl.uint16, bitcast=True)
    return tl.where(bits >= 0x8000, bits ^ 0xFFFF, bits | 0x8000).to(tl.uint16)


case = Case(
    inputs={"x": F32},
    outputs={"key": U32},
    reference=partial(words.sort_key, fmt=F32),
    variants={
        "shift-xor": asm("shr.s32 $0, $1, 31; or.b32 $0, $0, 0x80000000; xor.b32 $0, $0, $1;"),
        "setp-selp": asm(
            "{ .reg .pred p; setp.lt.s32 p, $1, 0; selp.b32 $0, 0xFFFFFFFF, 0x80000000, p; xor.b32 $0, $0, $1; }"
        ),
        "guarded": asm("{ .reg .pred p; setp.lt.s32 p, $1, 0; or.b32 $0, $1, 0x80000000; @p not.b32 $0, $1; }"),
        "triton": plain(in_triton),
    },
    source="IEEE 754-2019, 5.10: totalOrder",
    family="bits and integers",
)

half = Case(
    inputs={"x": F16},
    outputs={"key": U16},
    reference=partial(words.sort_key, fmt=F16),
    variants={
        # prmt replicates the sign of each half over the half; the sign bit is also set.
        "two-in-a-word": asm(
            "prmt.b32 $0, $1, 0, 0xBB99; or.b32 $0, $0, 0x80008000; xor.b32 $0, $0, $1;",
            constraints="=&r,r",
            pack=2,
        ),
        "triton": plain(half_in_triton),
    },
    source="IEEE 754-2019, 5.10: totalOrder",
    family="bits and integers",
)
