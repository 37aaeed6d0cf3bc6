"""Whether lo <= x <= hi in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(x, lo, hi):
    """Both comparisons."""
    return ((x >= lo) & (x <= hi)).to(tl.uint32)
