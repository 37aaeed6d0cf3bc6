"""Four uint8 outputs of one word, and a word of four inputs: the register layout of several results below 32 bits."""

from ptxdiff import Case, asm, plain
from ptxdiff.references.formats import U8, U32

from ._device.split_bytes import EIGHT, joined_in_triton, split_in_triton


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
