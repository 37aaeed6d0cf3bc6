"""float32 to e4m3: the packed hardware conversion, and what Triton makes of a cast."""

import torch
import triton
import triton.language as tl

from harness import Case, asm, plain, since
from references import conversion
from references.formats import E4M3, F32


def to_e4m3(x):
    """Nearest even; what is too large, infinities included, becomes 448."""
    return conversion.convert(x, source=F32, target=E4M3, satfinite=True)


@triton.jit
def cast(x):
    """Triton's own conversion, as a byte."""
    return x.to(tl.float8e4nv).to(tl.uint8, bitcast=True)


def in_pytorch(x):
    """PyTorch's cast does not saturate, so that it takes a clamp to say the same."""
    return x.clamp(-448.0, 448.0).to(torch.float8_e4m3fn)


case = Case(
    inputs={"x": F32},
    outputs={"y": E4M3},
    reference=to_e4m3,
    pytorch=in_pytorch,
    variants={
        # Four elements are four registers in and one out; the first source goes to the upper byte.
        "cvt-pack4": asm(
            """
            {
                .reg .b16 low, high;
                cvt.rn.satfinite.e4m3x2.f32 low, $2, $1;
                cvt.rn.satfinite.e4m3x2.f32 high, $4, $3;
                mov.b32 $0, {low, high};
            }
            """,
            constraints="=r,r,r,r,r",
            pack=4,
        ),
        "triton": plain(cast),
    },
    targets=since("sm_89"),
    source="PTX ISA, cvt: .e4m3x2; OCP 8-bit Floating Point Specification 1.0",
)
