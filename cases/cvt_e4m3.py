"""float32 to e4m3: the conversion of two at a time, four in an invocation, and Triton's cast."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E4M3, F32


def saturated(x):
    """The nearest e4m3 number, ties to even; overflow gives 448 with its sign; NaN is 0x7f."""
    return conversion.convert(x, source=F32, target=E4M3, satfinite=True)


@triton.jit
def in_triton(x):
    """A cast, which saturates; codes are bytes."""
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


def in_pytorch(x):
    """PyTorch's cast after a clamp, because it does not saturate."""
    return x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


case = Case(
    inputs={"x": F32},
    outputs={"y": E4M3},
    reference=saturated,
    pytorch=in_pytorch,
    variants={
        # The first source goes to the upper byte.
        "cvt-pack4": asm(
            """
            {
                .reg .b16 lower, upper;
                cvt.rn.satfinite.e4m3x2.f32 lower, $2, $1;
                cvt.rn.satfinite.e4m3x2.f32 upper, $4, $3;
                mov.b32 $0, {lower, upper};
            }
            """,
            constraints="=r,r,r,r,r",
            pack=4,
        ),
        "triton": plain(
            in_triton,
            targets=since("sm_90"),
            note="On sm_89 Triton 3.6 cuts to float16 first (cvt.rz.f16.f32) and so rounds twice; Triton 3.9 does not.",
        ),
    },
    targets=since("sm_89"),
    family="conversions",
    source="PTX ISA, cvt: .e4m3x2; OCP 8-bit Floating Point 1.0, 5.2",
)
