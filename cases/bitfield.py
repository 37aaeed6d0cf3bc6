"""Extract a field of n bits at position p, both mod 32: bfe, shifts with masks, szext, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import bits
from ptxdiff.references.formats import U32


@triton.jit
def extract_in_triton(x, p, n):
    """A shift and a mask."""
    return (x >> (p & 31)) & ((1 << (n & 31)).to(tl.uint32) - 1)


def extracted(x, p, n):
    """The field; bits beyond the word are zeros. An empty field gives 0."""
    return bits.bfe(x, p & 31, n & 31, fmt=U32)


TWO = "{ .reg .b32 p, n, m; and.b32 p, $2, 31; and.b32 n, $3, 31; "
shared = {"source": "PTX ISA, bfe, bfi, bmsk and szext", "family": "bits and integers"}

case = Case(
    **shared,
    inputs={"x": U32, "p": U32, "n": U32},
    outputs={"y": U32},
    reference=extracted,
    variants={
        "bfe": asm(TWO + "bfe.u32 $0, $1, p, n; }"),
        "shr-and": asm(TWO + "shr.u32 $0, $1, p; shl.b32 m, 1, n; sub.u32 m, m, 1; and.b32 $0, $0, m; }"),
        "shr-szext": asm(TWO + "shr.u32 $0, $1, p; szext.wrap.u32 $0, $0, n; }", targets=since("sm_75")),
        "triton": plain(extract_in_triton),
    },
)
