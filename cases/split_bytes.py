"""Four uint8 outputs of one word, and a word of four inputs: the register layout of several results below 32 bits."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import U8, U32


@triton.jit
def split_in_triton(x):
    """Casts drop the upper bits."""
    return x.to(tl.uint8), (x >> 8).to(tl.uint8), (x >> 16).to(tl.uint8), (x >> 24).to(tl.uint8)


@triton.jit
def joined_in_triton(a, b, c, d):
    """Wider first, then shifted."""
    low = a.to(tl.uint32) | (b.to(tl.uint32) << 8)
    return low | (c.to(tl.uint32) << 16) | (d.to(tl.uint32) << 24)


# With pack 1 each byte is in the low bits of its own register, whose upper bits do not count. With pack 4 each output
# register has its byte of four words: a transposed 4 x 4 matrix of bytes.
TRANSPOSED = """{{
    .reg .b32 t<4>;
    prmt.b32 t0, {4}, {5}, 0x5140;  prmt.b32 t1, {4}, {5}, 0x7362;
    prmt.b32 t2, {6}, {7}, 0x5140;  prmt.b32 t3, {6}, {7}, 0x7362;
    prmt.b32 {0}, t0, t2, 0x5410;   prmt.b32 {1}, t0, t2, 0x7632;
    prmt.b32 {2}, t1, t3, 0x5410;   prmt.b32 {3}, t1, t3, 0x7632;
}}"""

EIGHT = TRANSPOSED.format(*(f"${k}" for k in range(8)))


def split(x):
    """The bytes, the lowest first."""
    return tuple((x >> 8 * k) & 255 for k in range(4))


def joined(a, b, c, d):
    """The word with these bytes, a the lowest."""
    return a | b << 8 | c << 16 | d << 24


case = Case(
    inputs={"x": U32},
    outputs=dict.fromkeys("abcd", U8),
    reference=split,
    variants={
        "pack1-shifts": asm(
            "mov.b32 $0, $4; shr.u32 $1, $4, 8; shr.u32 $2, $4, 16; shr.u32 $3, $4, 24;",
            constraints="=&r,=&r,=&r,=r,r",
            pack=1,
        ),
        "pack1-vector": asm(
            "{ .reg .b8 b<4>; mov.b32 {b0, b1, b2, b3}, $4; cvt.u32.u8 $0, b0; cvt.u32.u8 $1, b1; cvt.u32.u8 $2, b2; "
            "cvt.u32.u8 $3, b3; }",
            constraints="=&r,=&r,=&r,=r,r",
            pack=1,
        ),
        "pack4-prmt": asm(EIGHT, constraints="=&r,=&r,=&r,=&r,r,r,r,r", pack=4),
        "triton": plain(split_in_triton),
    },
    source="Triton, tl.inline_asm_elementwise: packed outputs; PTX ISA, prmt",
    family="compiler hazards",
)

join = Case(
    inputs=dict.fromkeys("abcd", U8),
    outputs={"x": U32},
    reference=joined,
    variants={
        # The bits above a byte in its register are undefined: prmt takes only the lowest byte of each.
        "pack1-prmt": asm(
            "{ .reg .b32 t; prmt.b32 t, $1, $2, 0x0040; prmt.b32 $0, $3, $4, 0x0040; prmt.b32 $0, t, $0, 0x5410; }",
            constraints="=&r,r,r,r,r",
            pack=1,
        ),
        "pack4-prmt": asm(EIGHT, constraints="=&r,=&r,=&r,=&r,r,r,r,r", pack=4),
        "triton": plain(joined_in_triton),
    },
    source="Triton, tl.inline_asm_elementwise: packed inputs; PTX ISA, prmt",
    family="compiler hazards",
)
