"""The absolute difference of four bytes in a word at once: by u16x2, one by one, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import words
from ptxdiff.references.formats import U8

shared = {"inputs": {"a": U8, "b": U8}, "outputs": {"y": U8}, "family": "bits and integers"}


@triton.jit
def difference_in_triton(a, b):
    """The larger minus the smaller."""
    return tl.maximum(a, b) - tl.minimum(a, b)


case = Case(
    **shared,
    reference=words.absolute_difference,
    variants={
        # Bytes 0 and 2, then bytes 1 and 3, each in its own half.
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
