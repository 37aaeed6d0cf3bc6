"""Sum and difference of 128-bit numbers in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def add_in_triton(a, b, c, d):
    """A sum below one of its terms has a carry."""
    low = a + c
    return low, b + d + (low < a).to(tl.uint64)


@triton.jit
def sub_in_triton(a, b, c, d):
    """A borrow where the first is the smaller one."""
    return a - c, b - d - (a < c).to(tl.uint64)
