"""The rounded average of four bytes in a word at once: by logic, one by one, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U8

shared = {"inputs": {"a": U8, "b": U8}, "outputs": {"y": U8}, "family": "bits and integers"}


@triton.jit
def average_in_triton(a, b):
    """A sum in a wider type."""
    return ((a.to(tl.uint32) + b.to(tl.uint32) + 1) >> 1).to(tl.uint8)


def word(text):
    """Asm on four bytes in a register."""
    return asm(text, constraints="=&r,r,r", pack=4)


case = Case(
    **shared,
    reference=words.average,
    variants={
        # The bits of either, minus half of the bits that only one has.
        "word": word(
            "{ .reg .b32 t; xor.b32 t, $1, $2; shr.u32 t, t, 1; and.b32 t, t, 0x7F7F7F7F; or.b32 $0, $1, $2; "
            "sub.u32 $0, $0, t; }"
        ),
        "one-byte": asm(
            "{ .reg .b32 a, b; and.b32 a, $1, 0xFF; and.b32 b, $2, 0xFF; add.u32 a, a, b; add.u32 a, a, 1; "
            "shr.u32 $0, a, 1; }",
            constraints="=r,r,r",
            pack=1,
        ),
        "triton": plain(average_in_triton),
    },
    source="H. Warren, Hacker's Delight, 2-5",
)
