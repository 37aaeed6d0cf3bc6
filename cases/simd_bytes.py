"""The wrapping sum of four bytes in a word at once: by logic, one by one, and Triton."""

from functools import partial

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import integers
from ptxdiff.references.formats import U8

shared = {"inputs": {"a": U8, "b": U8}, "outputs": {"y": U8}, "family": "bits and integers"}


@triton.jit
def sum_in_triton(a, b):
    """Bytes wrap."""
    return a + b


def word(text):
    """Asm on four bytes in a register."""
    return asm(text, constraints="=&r,r,r", pack=4)


case = Case(
    **shared,
    reference=partial(integers.add, fmt=U8),
    variants={
        # The top bits are added separately, so that no carry leaves its byte.
        "word": word(
            "{ .reg .b32 s, t; and.b32 s, $1, 0x7F7F7F7F; and.b32 t, $2, 0x7F7F7F7F; add.u32 s, s, t; "
            "xor.b32 t, $1, $2; and.b32 t, t, 0x80808080; xor.b32 $0, s, t; }"
        ),
        "one-byte": asm("add.u32 $0, $1, $2;", constraints="=r,r,r", pack=1),
        "triton": plain(sum_in_triton),
    },
    source="PTX ISA, add; H. Warren, Hacker's Delight, 2-18",
)
