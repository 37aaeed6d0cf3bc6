"""Sums and fused products clamped to [0, 1], in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def unit(y):
    """Comparisons: everything that is not above zero, including NaN and -0, becomes 0."""
    return tl.where(y > 0, tl.where(y > 1, 1.0, y), 0.0).to(tl.float16)


@triton.jit
def add_in_triton(a, b):
    """The sum, clamped."""
    return unit(a + b)


@triton.jit
def fma_in_triton(a, b, c):
    """The fused product, clamped."""
    return unit(tl.fma(a, b, c))
