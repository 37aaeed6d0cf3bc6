"""e^x: the approximate power of two of x * log2(e), corrected and not, Triton's and libdevice's."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, Domain, asm, magnitude, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

# The rounding error of the product corrects the result, so that no error grows with x.
TWO_STEPS = """
    {
        .reg .f32 high, low, power, part;
        mul.rn.f32 high, $1, 0f3FB8AA3B;            // log2(e), rounded
        neg.f32 part, high;
        fma.rn.f32 low, $1, 0f3FB8AA3B, part;       // what the rounding of the product lost
        fma.rn.f32 low, $1, 0f32A57060, low;        // x times what the rounding of log2(e) lost
        ex2.approx.f32 power, high;
        mul.rn.f32 low, low, 0f3F317218;            // ln 2: 2^low = 1 + low * ln 2
        fma.rn.f32 $0, power, low, power;
    }
"""


@triton.jit
def in_triton(x):
    """tl.exp."""
    return tl.exp(x)


@triton.jit
def in_libdevice(x):
    """CUDA's expf."""
    return libdevice.exp(x)


# The product x * log2(e) has a relative error of 2^-24 from its rounding and 2^-26.2 from that of log2(e): 7.4e-8 |x|
# in the result, at most 1.24 ulp for each unit of x. ex2.approx adds 2 ulp, the reference half an ulp.
SCALED = ulp(
    4,
    on=magnitude("x", 0, 1),
    outside=ulp(132, overflow=True, underflow=True, source="derived: 1.24 |x| + 2.5, up to |x| = 104"),
    source="derived: 1.24 |x| + 2.5",
)

ORDINARY = Domain("|x| <= 87", lambda values: abs(values["x"]) <= 87)  # the correction of an infinity is NaN


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.exp,
    hard_cases=[(0xBD851592,), (0x42B00C13,), (0x42000416,)],  # where the bounds are nearest
    pytorch=torch.exp,
    variants={
        "ex2.approx": asm("mul.rn.f32 $0, $1, 0f3FB8AA3B; ex2.approx.f32 $0, $0;", match=SCALED),
        "ex2.approx.ftz": asm(
            "mul.rn.ftz.f32 $0, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, $0;", match=SCALED, ftz="allowed"
        ),
        "ex2.approx-corrected": asm(
            TWO_STEPS,
            match=ulp(4, on=ORDINARY, source="ex2.approx 2 ulp, its argument 0, the product and sum 1"),
        ),
        "triton": plain(in_triton, match=SCALED, ftz="allowed"),
        "libdevice": plain(
            in_libdevice,
            match=ulp(
                2, overflow=True, underflow=True, source="CUDA C++ Programming Guide, mathematical functions: expf"
            ),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="PTX ISA, ex2 and mul; CUDA C++ Programming Guide, mathematical functions",
)
