"""Insert a field of n bits at position p, both mod 32: bfi, bmsk with lop3, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def insert_in_triton(x, y, p, n):
    """The field of y replaced under a mask."""
    mask = ((1 << (n & 31)).to(tl.uint32) - 1) << (p & 31)
    return (y & ~mask) | ((x << (p & 31)) & mask)


def inserted(x, y, p, n):
    """y with the low bits of x in the field; bits beyond the word are dropped."""
    return bits.bfi(x, y, p & 31, n & 31)


FOUR = "{ .reg .b32 p, n, m, t; and.b32 p, $3, 31; and.b32 n, $4, 31; "
shared = {"source": "PTX ISA, bfe, bfi, bmsk and szext", "family": "bits and integers"}

case = Case(
    **shared,
    inputs={"x": U32, "y": U32, "p": U32, "n": U32},
    outputs={"z": U32},
    reference=inserted,
    variants={
        "bfi": asm(FOUR + "bfi.b32 $0, $1, $2, p, n; }"),
        "bmsk-lop3": asm(FOUR + "bmsk.wrap.b32 m, p, n; shl.b32 t, $1, p; lop3.b32 $0, m, t, $2, 0xCA; }"),
        "triton": plain(insert_in_triton),
    },
)
