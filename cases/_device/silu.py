"""x / (1 + e^-x) in plain Triton, and the asm of both formulas."""

import triton
import triton.language as tl

# div.full is accurate for every e up to 2^126; above, it gives 0 and the true result is below 2^-119.
QUOTIENT = """
    {
        .reg .f32 e;
        mul.rn.f32 e, $1, 0fBFB8AA3B;      // -log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        div.full.f32 $0, $1, e;
    }
"""

# x / 2 * (1 + tanh(x / 2)): h + h * t. For -0 the sum is +0.
TANH = """
    {
        .reg .f32 h, t;
        mul.rn.f32 h, $1, 0f3F000000;
        tanh.approx.f32 t, h;
        fma.rn.f32 $0, h, t, h;
    }
"""


@triton.jit
def in_triton(x):
    """As model code writes it."""
    return x * tl.sigmoid(x)
