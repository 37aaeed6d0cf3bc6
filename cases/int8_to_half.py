"""int8 to float16, four in a register: magic numbers by prmt, cvt, and Triton."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import conversion
from ptxdiff.references.formats import F16, I8


@triton.jit
def to_f16(q):
    """A cast."""
    return q.to(tl.float16)


def four(text):
    """Asm on four bytes in $2, with results in $0 and $1."""
    return asm(text, constraints="=&r,=&r,r", pack=4)


case = Case(
    inputs={"q": I8},
    outputs={"y": F16},
    reference=partial(conversion.convert, source=I8, target=F16),
    variants={
        # 1024 + 128 + q: 0x64 above a byte with its top bit flipped; minus 1152, which is 0x6480.
        "prmt": four(
            """{
                .reg .b32 t, magic, zero;
                mov.b32 magic, 0x64646464;
                mov.b32 zero, 0x64806480;
                xor.b32 t, $2, 0x80808080;
                prmt.b32 $0, t, magic, 0x4140;
                prmt.b32 $1, t, magic, 0x4342;
                sub.f16x2 $0, $0, zero;
                sub.f16x2 $1, $1, zero;
            }"""
        ),
        "cvt": four(
            """{
                .reg .b32 t;
                .reg .b16 x<4>;
                bfe.s32 t, $2, 0, 8;   cvt.rn.f16.s32 x0, t;
                bfe.s32 t, $2, 8, 8;   cvt.rn.f16.s32 x1, t;
                bfe.s32 t, $2, 16, 8;  cvt.rn.f16.s32 x2, t;
                bfe.s32 t, $2, 24, 8;  cvt.rn.f16.s32 x3, t;
                mov.b32 $0, {x0, x1};
                mov.b32 $1, {x2, x3};
            }"""
        ),
        "triton": plain(to_f16),
    },
    source="PTX ISA, prmt and cvt",
    family="dequantisation",
)
