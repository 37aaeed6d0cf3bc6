"""Upper halves of products in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def high_in_triton(a, b):
    """Triton's function, for unsigned integers."""
    return tl.umulhi(a, b)


@triton.jit
def wide_in_triton(a, b):
    """A product of twice the width."""
    return ((a.to(tl.int64) * b.to(tl.int64)) >> 32).to(tl.int32)
