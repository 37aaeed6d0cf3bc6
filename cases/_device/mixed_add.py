"""Sums of mixed formats in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(a, b):
    """The conversion is exact."""
    return a.to(tl.float32) + b


@triton.jit
def fma_in_triton(a, b, c):
    """Both factors widened."""
    return tl.fma(a.to(tl.float32), b.to(tl.float32), c)
