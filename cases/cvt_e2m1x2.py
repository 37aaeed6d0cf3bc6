"""float32 to e2m1, two in a byte: the hardware conversion, and integer arithmetic that runs on any GPU."""

import torch
import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, only, plain
from ptxdiff.references import conversion
from ptxdiff.references.formats import E2M1X2, F32


@triton.jit
def nibble(x):
    """The e2m1 code of each float32: nearest, ties to the even code, clamped to +-6; NaN gives +6."""
    bits = x.to(tl.uint32, bitcast=True)
    size = bits & 0x7FFFFFFF
    # Thresholds are the seven midpoints; if the code above is odd, the midpoint rounds to the code below.
    code = (size > 0x3E800000).to(tl.uint32)  # 0.25
    code += (size >= 0x3F400000).to(tl.uint32)  # 0.75
    code += (size > 0x3FA00000).to(tl.uint32)  # 1.25
    code += (size >= 0x3FE00000).to(tl.uint32)  # 1.75
    code += (size > 0x40200000).to(tl.uint32)  # 2.5
    code += (size >= 0x40600000).to(tl.uint32)  # 3.5
    code += (size > 0x40A00000).to(tl.uint32)  # 5
    sign = tl.where(size > 0x7F800000, 0, (bits >> 31) << 3)
    return code | sign


@triton.jit
def in_integers(lo, hi):
    """Both nibbles in one byte."""
    return (nibble(lo) | (nibble(hi) << 4)).to(tl.uint8)


FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")


def pair(lo, hi):
    """e2m1 codes of both inputs, the low nibble's first."""
    return torch.stack([conversion.to_e2m1(lo), conversion.to_e2m1(hi)], dim=-1).flatten(-2)


def codes_in_pytorch(x):
    """The same comparisons on a tensor, because PyTorch has no 4-bit type."""
    size = x.abs()
    code = (size > 0.25).to(torch.uint8) + (size >= 0.75).to(torch.uint8) + (size > 1.25).to(torch.uint8)
    code += (size >= 1.75).to(torch.uint8) + (size > 2.5).to(torch.uint8) + (size >= 3.5).to(torch.uint8)
    code += (size > 5.0).to(torch.uint8)
    return torch.where(x.isnan(), 7, code | x.signbit().to(torch.uint8) << 3)


case = Case(
    inputs={"lo": F32, "hi": F32},
    outputs={"y": E2M1X2},
    reference=pair,
    pytorch=lambda lo, hi: codes_in_pytorch(lo) | codes_in_pytorch(hi) << 4,
    variants={
        # The first source goes to the upper nibble.
        "cvt-pack4": asm(
            """
            {
                .reg .b8 tmp<4>;
                cvt.rn.satfinite.e2m1x2.f32 tmp0, $5, $1;
                cvt.rn.satfinite.e2m1x2.f32 tmp1, $6, $2;
                cvt.rn.satfinite.e2m1x2.f32 tmp2, $7, $3;
                cvt.rn.satfinite.e2m1x2.f32 tmp3, $8, $4;
                mov.b32 $0, {tmp0, tmp1, tmp2, tmp3};
            }
            """,
            constraints="=r,r,r,r,r,r,r,r,r",
            pack=4,
        ),
        "cvt": asm("cvt.rn.satfinite.e2m1x2.f32 $0, $2, $1;"),
        "triton-integers": plain(in_integers, targets=ALL, refused=()),
    },
    targets=FP4,
    refused=ALL - FP4,
    family="conversions",
    source="PTX ISA, cvt: .e2m1x2; OCP Microscaling Formats 1.0, 5.3.3",
)
