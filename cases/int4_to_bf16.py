"""int4 minus 8 to bfloat16, two in a byte: magic numbers with fma or sub, through float32, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import dequantise
from ptxdiff.references.formats import BF16, BF16X2, U8


@triton.jit
def element(n):
    """A nibble's bits in bfloat16."""
    return (n.to(tl.int32) - 8).to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def in_triton(q):
    """The low nibble first."""
    return element(q & 15) | (element(q >> 4) << 16)


def four(finish):
    """128 + n for all eight nibbles of a register; bfloat16 has 0x4300 for 128. prmt gives each half its byte."""
    return asm(
        f"""{{
            .reg .b32 odd, one, zero;
            mov.b32 one, 0x3F803F80;
            shr.u32 odd, $4, 4;
            prmt.b32 $0, $4, odd, 0x4440;  prmt.b32 $1, $4, odd, 0x5551;
            prmt.b32 $2, $4, odd, 0x6662;  prmt.b32 $3, $4, odd, 0x7773;
            {finish.format(0)} {finish.format(1)} {finish.format(2)} {finish.format(3)}
        }}""",
        constraints="=&r,=&r,=&r,=&r,r",
        pack=4,
        targets=since("sm_90") if "sub" in finish else since("sm_80"),
    )


MAGIC = "lop3.b32 ${0}, ${0}, 0x000F000F, 0x43004300, 0xEA; "

case = Case(
    inputs={"q": U8},
    outputs={"y": BF16X2},
    reference=partial(dequantise.integers, bits=4, zero=8, fmt=BF16),
    variants={
        "fma": four(MAGIC + "mov.b32 zero, 0xC308C308; fma.rn.bf16x2 ${0}, ${0}, one, zero;"),  # -136
        "sub": four(MAGIC + "mov.b32 zero, 0x43084308; sub.rn.bf16x2 ${0}, ${0}, zero;"),
        # For numbers this small the lower half of a float32 is zero.
        "float32": asm(
            """{
                .reg .b32 x, y;
                bfe.u32 x, $1, 0, 4;  sub.s32 x, x, 8;  cvt.rn.f32.s32 x, x;
                bfe.u32 y, $1, 4, 4;  sub.s32 y, y, 8;  cvt.rn.f32.s32 y, y;
                prmt.b32 $0, x, y, 0x7632;
            }""",
            constraints="=r,r",
            pack=1,
        ),
        "triton": plain(in_triton),
    },
    source="PTX ISA, prmt, lop3 and fma.bf16x2",
    family="dequantisation",
)
