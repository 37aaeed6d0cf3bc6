"""(q - zero) * scale of two 4-bit numbers in a byte, float16: magic numbers, integers and cvt, float32, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16, F16X2, U8


@triton.jit
def element(n, zero, scale):
    """The difference is exact, the product rounded once."""
    y = (n.to(tl.int32) - (zero & 15).to(tl.int32)).to(tl.float16) * scale
    return y.to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def in_triton(q, zero, scale):
    """The low nibble first."""
    return element(q & 15, zero, scale) | (element(q >> 4, zero, scale) << 16)


def affine(q, zero, scale):
    """Both elements of a byte, with one zero point and one scale."""
    return dequantise.affine(q, zero, scale, bits=4)


SCALE = "mov.b32 {s, _}, $3; mov.b32 scale, {s, s};"

case = Case(
    inputs={"q": U8, "zero": U8, "scale": F16},
    outputs={"y": F16X2},
    reference=affine,
    variants={
        # 1024 + n minus (1024 + zero); 0x6400 is 1024, and prmt puts a byte below it in each half.
        "magic": asm(
            f"""{{
                .reg .b16 s;
                .reg .b32 t, z, scale;
                shl.b32 t, $1, 12;
                lop3.b32 t, t, $1, 0xFFFF, 0xD8;
                lop3.b32 t, t, 0x000F000F, 0x64006400, 0xEA;
                lop3.b32 z, $2, 0x0F, 0x6400, 0xEA;
                prmt.b32 z, z, 0, 0x1010;
                sub.f16x2 t, t, z;
                {SCALE}
                mul.rn.f16x2 $0, t, scale;
            }}""",
            constraints="=r,r,r,r",
            pack=1,
        ),
        "cvt": asm(
            f"""{{
                .reg .b16 s, x, y;
                .reg .b32 t, z, scale;
                and.b32 z, $2, 15;
                bfe.u32 t, $1, 0, 4;  sub.s32 t, t, z;  cvt.rn.f16.s32 x, t;
                bfe.u32 t, $1, 4, 4;  sub.s32 t, t, z;  cvt.rn.f16.s32 y, t;
                {SCALE}
                mov.b32 t, {{x, y}};
                mul.rn.f16x2 $0, t, scale;
            }}""",
            constraints="=r,r,r,r",
            pack=1,
        ),
        "triton": plain(in_triton),
    },
    source="AWQ and GPTQ: asymmetric 4-bit weights; PTX ISA, lop3 and prmt",
    family="dequantisation",
)
