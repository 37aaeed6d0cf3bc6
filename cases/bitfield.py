"""Extract and insert a field of n bits at position p, both mod 32: bfe, bfi, shifts with masks, bmsk, and Triton."""

from functools import partial

import triton
import triton.language as tl

from harness import Case, asm, plain, since
from references import bits
from references.formats import I32, U32


@triton.jit
def extract_in_triton(x, p, n):
    """A shift and a mask."""
    return (x >> (p & 31)) & ((1 << (n & 31)).to(tl.uint32) - 1)


@triton.jit
def insert_in_triton(x, y, p, n):
    """The field of y replaced under a mask."""
    mask = ((1 << (n & 31)).to(tl.uint32) - 1) << (p & 31)
    return (y & ~mask) | ((x << (p & 31)) & mask)


def extracted(x, p, n, *, fmt):
    """The field, extended by its sign in a signed format; beyond the word are zeros, or its sign. No bits give 0."""
    return bits.bfe(x, p & 31, n & 31, fmt=fmt)


def inserted(x, y, p, n):
    """y with the low bits of x in the field; what reaches beyond the word is dropped."""
    return bits.bfi(x, y, p & 31, n & 31)


TWO = "{ .reg .b32 p, n, m; and.b32 p, $2, 31; and.b32 n, $3, 31; "
FOUR = "{ .reg .b32 p, n, m, t; and.b32 p, $3, 31; and.b32 n, $4, 31; "
shared = {"source": "PTX ISA, bfe, bfi, bmsk and szext", "family": "bits and integers"}

case = Case(
    **shared,
    inputs={"x": U32, "p": U32, "n": U32},
    outputs={"y": U32},
    reference=partial(extracted, fmt=U32),
    variants={
        "bfe": asm(TWO + "bfe.u32 $0, $1, p, n; }"),
        "shr-and": asm(TWO + "shr.u32 $0, $1, p; shl.b32 m, 1, n; sub.u32 m, m, 1; and.b32 $0, $0, m; }"),
        "shr-szext": asm(TWO + "shr.u32 $0, $1, p; szext.wrap.u32 $0, $0, n; }", targets=since("sm_75")),
        "triton": plain(extract_in_triton),
    },
)

signed = Case(
    **shared,
    inputs={"x": I32, "p": U32, "n": U32},
    outputs={"y": I32},
    reference=partial(extracted, fmt=I32),
    variants={
        "bfe": asm(TWO + "bfe.s32 $0, $1, p, n; }"),
        # Of no bits the shift by 32 leaves 0, and so does the one back.
        "shifts": asm(TWO + "shr.s32 $0, $1, p; sub.u32 m, 32, n; shl.b32 $0, $0, m; shr.s32 $0, $0, m; }"),
    },
)

insert = Case(
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
