"""Sum and difference of 128-bit numbers in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def add_in_triton(a, b, c, d):
    """There is a carry if the sum is less than a term."""
    low = a + c
    return low, b + d + (low < a).to(tl.uint64)


@triton.jit
def sub_in_triton(a, b, c, d):
    """There is a borrow if the first is less than the second."""
    return a - c, b - d - (a < c).to(tl.uint64)
