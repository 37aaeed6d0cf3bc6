"""Morton codes: the bits of two 16-bit numbers in turn; masks, lop3, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U16, U32

MASKS = ((8, 0x00FF00FF), (4, 0x0F0F0F0F), (2, 0x33333333), (1, 0x55555555))


@triton.jit
def spread(x):
    """Sixteen bits moved to the even places of a word."""
    x = (x | (x << 8)) & 0x00FF00FF
    x = (x | (x << 4)) & 0x0F0F0F0F
    x = (x | (x << 2)) & 0x33333333
    return (x | (x << 1)) & 0x55555555


@triton.jit
def in_triton(x, y):
    """Both spread, with y one place higher."""
    return spread(x.to(tl.uint32)) | (spread(y.to(tl.uint32)) << 1)


SPREAD = "\n".join(f"shl.b32 t, {{0}}, {n}; or.b32 t, t, {{0}}; and.b32 {{0}}, t, {mask:#x};" for n, mask in MASKS)
HEAD = "{ .reg .b32 x, y, t; and.b32 x, $1, 0xFFFF; and.b32 y, $2, 0xFFFF;\n"

case = Case(
    inputs={"x": U16, "y": U16},
    outputs={"code": U32},
    reference=words.interleave,
    variants={
        "masks": asm(HEAD + SPREAD.format("x") + SPREAD.format("y") + "shl.b32 y, y, 1; or.b32 $0, x, y; }"),
        # Table 0xA8 is (a | b) & c.
        "lop3": asm(
            HEAD
            + "\n".join(f"shl.b32 t, x, {n}; lop3.b32 x, x, t, {mask:#x}, 0xA8;" for n, mask in MASKS)
            + "\n".join(f"shl.b32 t, y, {n}; lop3.b32 y, y, t, {mask:#x}, 0xA8;" for n, mask in MASKS)
            + "mad.lo.u32 $0, y, 2, x; }"
        ),
        "triton": plain(in_triton),
    },
    source="G. M. Morton, A computer oriented geodetic data base, 1966",
    family="bits and integers",
)
