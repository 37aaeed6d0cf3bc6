"""Morton codes split again: the bits at even and at odd places, by masks and in Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U16, U32


@triton.jit
def gathered(code):
    """The bits at even places, gathered."""
    x = code & 0x55555555
    x = (x | (x >> 1)) & 0x33333333
    x = (x | (x >> 2)) & 0x0F0F0F0F
    x = (x | (x >> 4)) & 0x00FF00FF
    return (x | (x >> 8)).to(tl.uint16)


@triton.jit
def apart_in_triton(code):
    """Those at even places, and those at odd ones."""
    return gathered(code), gathered(code >> 1)


GATHER = "\n".join(
    f"shr.u32 t, {{0}}, {n}; or.b32 t, t, {{0}}; and.b32 {{0}}, t, {mask:#x};"
    for n, mask in ((1, 0x33333333), (2, 0x0F0F0F0F), (4, 0x00FF00FF), (8, 0xFFFF))
)

case = Case(
    inputs={"code": U32},
    outputs={"x": U16, "y": U16},
    reference=words.deinterleave,
    variants={
        "masks": asm(
            "{ .reg .b32 x, y, t; and.b32 x, $2, 0x55555555; shr.u32 y, $2, 1; and.b32 y, y, 0x55555555;\n"
            + GATHER.format("x")
            + GATHER.format("y")
            + "mov.b32 $0, x; mov.b32 $1, y; }",
            constraints="=r,=r,r",
            pack=1,
        ),
        "triton": plain(apart_in_triton),
    },
    source="G. M. Morton, A computer oriented geodetic data base, 1966",
    family="bits and integers",
)
