"""NVFP4 values, a byte each, times a block's e4m3 scale, to e4m3: one instruction, through float16, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, only, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import E2M1, E4M3


@triton.jit
def in_triton(q, s):
    """e2m1 by its fields (0.5 is its only subnormal), then float32 arithmetic and a cast, which saturates."""
    size = (q & 7).to(tl.uint32)
    bits = tl.where(size < 2, size * 0x3F000000, (size + 252) << 22) | ((q & 8).to(tl.uint32) << 28)
    product = bits.to(tl.float32, bitcast=True) * s.to(tl.float8e4nv, bitcast=True).to(tl.float32)
    return product.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


# Conversions and products in pairs of float16.
OVER_F16 = """
            {
                .reg .b8 lower, upper, none;
                .reg .b16 s0, s1, y0, y1;
                .reg .b32 pairs, x0, x1, z0, z1;
                and.b32 x0, $1, 0x0f0f0f0f;
                shr.b32 pairs, x0, 4;
                or.b32 pairs, pairs, x0;
                mov.b32 {lower, none, upper, none}, pairs;
                cvt.rn.f16x2.e2m1x2 x0, lower;
                cvt.rn.f16x2.e2m1x2 x1, upper;
                mov.b32 {s0, s1}, $2;
                cvt.rn.f16x2.e4m3x2 z0, s0;
                cvt.rn.f16x2.e4m3x2 z1, s1;
                mul.rn.f16x2 x0, x0, z0;
                mul.rn.f16x2 x1, x1, z1;
                cvt.rn.satfinite.e4m3x2.f16x2 y0, x0;
                cvt.rn.satfinite.e4m3x2.f16x2 y1, x1;
                mov.b32 $0, {y0, y1};
            }
            """


FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")
PTX_9_4 = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # Triton 3.9 contains a ptxas that has it


def scaled(q, s):
    """The product, rounded once to nearest even; overflow gives 448 with its sign; NaN is 0x7f."""
    return arithmetic.product(q, s, left=E2M1, right=E4M3, fmt=E4M3, satfinite=True)


one_instruction = {
    "mul.e4m3x4": asm(
        "mul.rn.satfinite.e4m3x4.e2m1p4x4.e4m3x4 $0, $1, $2;",
        targets=only("sm_100a", "sm_103a"),
        refused=FP4 - only("sm_100a", "sm_103a"),
    ),
}

case = Case(
    inputs={"q": E2M1, "s": E4M3},
    outputs={"y": E4M3},
    reference=scaled,
    variants={
        # A product has at most six bits and is exact in float16. The bits above a code are undefined.
        "over-f16": asm(
            OVER_F16,
            constraints="=r,r,r",
            pack=4,
        ),
        "triton": plain(in_triton),
        **(one_instruction if PTX_9_4 else {}),
    },
    targets=FP4,
    family="block scaling",
    source="PTX ISA 9.4, alternate floating-point mul; OCP Microscaling Formats 1.0, 5.3.3",
)
