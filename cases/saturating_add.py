"""Sums that stop at the largest and smallest number: add.sat, a wider sum, the overflow's sign, and Triton."""

from functools import partial

import triton
import triton.language as tl

from harness import Case, asm, plain
from references import integers, words
from references.formats import I32, U16


@triton.jit
def signed_in_triton(a, b):
    """A 64-bit sum, clamped."""
    total = a.to(tl.int64) + b.to(tl.int64)
    return tl.minimum(tl.maximum(total, -2147483648), 2147483647).to(tl.int32)


@triton.jit
def unsigned_in_triton(a, b):
    """A 32-bit sum, clamped."""
    return tl.minimum(a.to(tl.uint32) + b.to(tl.uint32), 65535).to(tl.uint16)


case = Case(
    inputs={"a": I32, "b": I32},
    outputs={"y": I32},
    reference=integers.add_saturating,
    variants={
        "add.sat": asm("add.sat.s32 $0, $1, $2;"),
        "64-bit": asm(
            "{ .reg .b64 x, y; cvt.s64.s32 x, $1; cvt.s64.s32 y, $2; add.s64 x, x, y; cvt.sat.s32.s64 $0, x; }"
        ),
        # Both signs differ from the sum's: it has overflowed, and the number to stop at has the sign of a.
        "sign": asm(
            "{ .reg .pred p; .reg .b32 t, limit; add.s32 $0, $1, $2; lop3.b32 t, $0, $1, $2, 0x18; "
            "shr.s32 limit, $1, 31; xor.b32 limit, limit, 0x7FFFFFFF; setp.lt.s32 p, t, 0; selp.b32 $0, limit, $0, p; }"
        ),
        "triton": plain(signed_in_triton),
    },
    source="PTX ISA, add: .sat",
    family="bits and integers",
)

unsigned = Case(
    inputs={"a": U16, "b": U16},
    outputs={"y": U16},
    reference=partial(words.add_clamped, fmt=U16),
    variants={
        # The carry out of each half tells which one to fill with ones.
        "two-in-a-word": asm(
            """{
                .reg .b32 t, carry;
                and.b32 t, $1, 0x7FFF7FFF;
                and.b32 carry, $2, 0x7FFF7FFF;
                add.u32 t, t, carry;
                xor.b32 $0, $1, $2;
                and.b32 $0, $0, 0x80008000;
                lop3.b32 carry, $1, $2, t, 0xE8;
                and.b32 carry, carry, 0x80008000;
                xor.b32 $0, $0, t;
                shr.u32 t, carry, 15;
                mul.lo.u32 t, t, 0xFFFF;
                or.b32 $0, $0, t;
            }""",
            constraints="=&r,r,r",
            pack=2,
        ),
        "cvt.sat": asm(
            "{ .reg .b16 a, b; .reg .b32 x, y; mov.b32 {a, _}, $1; mov.b32 {b, _}, $2; cvt.u32.u16 x, a; "
            "cvt.u32.u16 y, b; add.u32 x, x, y; min.u32 $0, x, 65535; }"
        ),
        "triton": plain(unsigned_in_triton),
    },
    source="PTX ISA, min and lop3",
    family="bits and integers",
)
