"""Saturating sums of signed words: the instruction, 64 bits, by the signs, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import integers
from ptxdiff.references.formats import I32


@triton.jit
def signed_in_triton(a, b):
    """A 64-bit sum, clamped."""
    total = a.to(tl.int64) + b.to(tl.int64)
    return tl.minimum(tl.maximum(total, -2147483648), 2147483647).to(tl.int32)


case = Case(
    inputs={"a": I32, "b": I32},
    outputs={"y": I32},
    reference=integers.add_saturating,
    variants={
        "add.sat": asm("add.sat.s32 $0, $1, $2;", packs=(1,)),
        "64-bit": asm(
            "{ .reg .b64 x, y; cvt.s64.s32 x, $1; cvt.s64.s32 y, $2; add.s64 x, x, y; cvt.sat.s32.s64 $0, x; }"
        ),
        # If both signs differ from the sum's, it has overflowed, and the limit has the sign of a.
        "sign": asm(
            "{ .reg .pred p; .reg .b32 t, limit; add.s32 $0, $1, $2; lop3.b32 t, $0, $1, $2, 0x18; "
            "shr.s32 limit, $1, 31; xor.b32 limit, limit, 0x7FFFFFFF; setp.lt.s32 p, t, 0; selp.b32 $0, limit, $0, p; }"
        ),
        "triton": plain(signed_in_triton),
    },
    source="PTX ISA, add: .sat",
    family="bits and integers",
)
