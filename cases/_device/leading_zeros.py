"""Leading and trailing zeros in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def leading_in_triton(x):
    """A binary search in five steps: if the upper part is zero, count its bits and shift the lower part up."""
    n = tl.where(x == 0, 1, 0).to(tl.uint32)
    for step in tl.static_range(5):
        empty = tl.where((x >> (32 - (16 >> step))) == 0, 16 >> step, 0).to(tl.uint32)
        n += empty
        x = x << empty
    return n


@triton.jit
def trailing_in_triton(x):
    """The position of the lowest one, the only bit set in x & -x."""
    return tl.where(x == 0, 32, 31 - leading_in_triton(x & (0 - x)))
