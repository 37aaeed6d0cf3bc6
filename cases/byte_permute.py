"""The bytes of a word in reverse order: prmt, funnel shifts, and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U32


@triton.jit
def swap_in_triton(x):
    """Shifts and masks."""
    return (x << 24) | ((x & 0xFF00) << 8) | ((x >> 8) & 0xFF00) | (x >> 24)


case = Case(
    inputs={"x": U32},
    outputs={"y": U32},
    reference=words.byte_swap,
    variants={
        "prmt": asm("prmt.b32 $0, $1, 0, 0x0123;", packs=(1,)),
        "shf-lop3": asm(
            "{ .reg .b32 l, r; shf.l.wrap.b32 l, $1, $1, 8; shf.l.wrap.b32 r, $1, $1, 24; "
            "lop3.b32 $0, 0x00FF00FF, l, r, 0xCA; }"
        ),
        "triton": plain(swap_in_triton),
    },
    source="PTX ISA, prmt",
    family="bits and integers",
)
