"""e^x: the asm of the corrected product, and Triton's and libdevice's functions."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

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
