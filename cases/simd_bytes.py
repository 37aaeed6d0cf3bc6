"""Four bytes in a word at once: wrapping sum, rounded average, absolute difference; word tricks, vadd4, and Triton."""

from functools import partial

import triton
import triton.language as tl

from harness import Case, asm, plain
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
        "vadd4": word("{ .reg .b32 none; mov.b32 none, 0; vadd4.u32.u32.u32 $0, $1, $2, none; }"),
        "one-byte": asm("add.u32 $0, $1, $2;", constraints="=r,r,r", pack=1),
        "triton": plain(sum_in_triton),
    },
    source="PTX ISA, vadd4",
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
        "vavrg4": word("{ .reg .b32 none; mov.b32 none, 0; vavrg4.u32.u32.u32 $0, $1, $2, none; }"),
        "triton": plain(average_in_triton),
    },
    source="PTX ISA, vavrg4",
)

difference = Case(
    **shared,
    reference=words.absolute_difference,
    variants={
        "vabsdiff4": word("{ .reg .b32 none; mov.b32 none, 0; vabsdiff4.u32.u32.u32 $0, $1, $2, none; }"),
        "triton": plain(difference_in_triton),
    },
    source="PTX ISA, vabsdiff4",
)
