"""The hyperbolic tangent by libdevice."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def in_libdevice(x):
    """CUDA's tanhf."""
    return libdevice.tanh(x)


@triton.jit
def over_float32(x):
    """CUDA's tanhf of the widened number, rounded back."""
    return libdevice.tanh(x.to(tl.float32)).to(x.dtype)


# tanh x = 1 - 2 / (e^2x + 1). The exponential's relative error r, at most 2^-23.4 |2x log2 e| + 2^-22, changes the
# result by r (1 - tanh^2) / 2; rounding of the sum, the quotient and the difference adds at most 2 * 2^-23.
BY_EXPONENTIAL = """
    {
        .reg .f32 e;
        mul.rn.f32 e, $1, 0f4038AA3B;      // 2 log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        rcp.approx.f32 e, e;
        fma.rn.f32 e, e, 0fC0000000, 0f3F800000;
        copysign.f32 $0, $1, e;            // of -0 the difference is +0
    }
"""
