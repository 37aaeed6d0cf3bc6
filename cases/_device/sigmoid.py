"""1 / (1 + e^-x) in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(x):
    """tl.sigmoid."""
    return tl.sigmoid(x)


@triton.jit
def rounded(x):
    """The quotient correctly rounded."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + tl.exp(-x))
