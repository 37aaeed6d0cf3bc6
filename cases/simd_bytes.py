"""Four bytes in a word at once: wrapping sum, rounded average, absolute difference; in words, one by one, Triton."""

from functools import partial

import triton
import triton.language as tl

from harness import Case, asm, plain, since
from references import integers, words
from references.formats import U8

shared = {"inputs": {"a": U8, "b": U8}, "outputs": {"y": U8}, "family": "bits and integers"}


@triton.jit
def sum_in_triton(a, b):
    """Bytes wrap."""
    return a + b


@triton.jit
def average_in_triton(a, b):
    """A wider sum."""
    return ((a.to(tl.uint32) + b.to(tl.uint32) + 1) >> 1).to(tl.uint8)


@triton.jit
def difference_in_triton(a, b):
    """The larger less the smaller one."""
    return tl.maximum(a, b) - tl.minimum(a, b)


def word(text):
    """Asm on four bytes a register."""
    return asm(text, constraints="=&r,r,r", pack=4)


case = Case(
    **shared,
    reference=partial(integers.add, fmt=U8),
    variants={
        # The top bits are added apart, so that no carry leaves its byte.
        "word": word(
            "{ .reg .b32 s, t; and.b32 s, $1, 0x7F7F7F7F; and.b32 t, $2, 0x7F7F7F7F; add.u32 s, s, t; "
            "xor.b32 t, $1, $2; and.b32 t, t, 0x80808080; xor.b32 $0, s, t; }"
        ),
        "one-byte": asm("add.u32 $0, $1, $2;", constraints="=r,r,r", pack=1),
        "triton": plain(sum_in_triton),
    },
    source="PTX ISA, add; H. Warren, Hacker's Delight, 2-18",
)

average = Case(
    **shared,
    reference=words.average,
    variants={
        # What either has, less half of what only one of them has.
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

difference = Case(
    **shared,
    reference=words.absolute_difference,
    variants={
        # Bytes 0 and 2, then bytes 1 and 3, each in a half of its own.
        "u16x2": asm(
            """{
                .reg .b32 a, b, x, y;
                and.b32 a, $1, 0x00FF00FF;  and.b32 b, $2, 0x00FF00FF;
                max.u16x2 x, a, b;  min.u16x2 y, a, b;  sub.u32 $0, x, y;
                shr.u32 a, $1, 8;  and.b32 a, a, 0x00FF00FF;  shr.u32 b, $2, 8;  and.b32 b, b, 0x00FF00FF;
                max.u16x2 x, a, b;  min.u16x2 y, a, b;  sub.u32 x, x, y;
                shl.b32 x, x, 8;  or.b32 $0, $0, x;
            }""",
            constraints="=&r,r,r",
            pack=4,
            targets=since("sm_90"),
        ),
        "one-byte": asm(
            "{ .reg .b32 a, b; and.b32 a, $1, 0xFF; and.b32 b, $2, 0xFF; sub.s32 a, a, b; abs.s32 $0, a; }",
            constraints="=r,r,r",
            pack=1,
        ),
        "triton": plain(difference_in_triton),
    },
    source="PTX ISA, max and min: .u16x2",
)
