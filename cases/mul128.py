"""The whole product of two 64-bit numbers: both halves, partial products of 32 bits with carries, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U64


@triton.jit
def in_triton(a, b):
    """The wrapping product, and Triton's upper half."""
    return a * b, tl.umulhi(a, b)


@triton.jit
def halves_in_triton(a, b):
    """Four products of 32-bit halves; their sum in the middle does not overflow."""
    a0, a1, b0, b1 = a & 0xFFFFFFFF, a >> 32, b & 0xFFFFFFFF, b >> 32
    middle = a1 * b0 + ((a0 * b0) >> 32)
    other = a0 * b1 + (middle & 0xFFFFFFFF)
    return (other << 32) | ((a0 * b0) & 0xFFFFFFFF), a1 * b1 + (middle >> 32) + (other >> 32)


case = Case(
    inputs={"a": U64, "b": U64},
    outputs={"y": U64, "y_high": U64},
    reference=words.mul128,
    variants={
        "lo-hi": asm("mul.lo.u64 $0, $2, $3; mul.hi.u64 $1, $2, $3;"),
        "mad.cc": asm(
            """{
                .reg .b32 a, b, c, d, r<4>;
                mov.b64 {a, b}, $2;
                mov.b64 {c, d}, $3;
                mul.lo.u32     r0, a, c;
                mul.hi.u32     r1, a, c;
                mad.lo.cc.u32  r1, a, d, r1;
                madc.hi.u32    r2, a, d, 0;
                mad.lo.cc.u32  r1, b, c, r1;
                madc.hi.cc.u32 r2, b, c, r2;
                madc.hi.u32    r3, b, d, 0;
                mad.lo.cc.u32  r2, b, d, r2;
                addc.u32       r3, r3, 0;
                mov.b64 $0, {r0, r1};
                mov.b64 $1, {r2, r3};
            }"""
        ),
        "mul.wide": asm(
            """{
                .reg .b32 a, b, c, d, lo, hi;
                .reg .b64 p, t, u;
                mov.b64 {a, b}, $2;
                mov.b64 {c, d}, $3;
                mul.wide.u32 p, a, c;
                mov.b64 {lo, hi}, p;
                cvt.u64.u32 t, hi;
                mad.wide.u32 t, b, c, t;
                mov.b64 {hi, _}, t;
                cvt.u64.u32 u, hi;
                mad.wide.u32 u, a, d, u;
                shr.u64 t, t, 32;
                mov.b64 {hi, _}, u;
                mov.b64 $0, {lo, hi};
                shr.u64 u, u, 32;
                add.u64 t, t, u;
                mad.wide.u32 $1, b, d, t;
            }"""
        ),
        "triton": plain(in_triton),
        "triton-halves": plain(halves_in_triton),
    },
    source="PTX ISA, mul, mad, mad.cc and madc",
    family="bits and integers",
)
