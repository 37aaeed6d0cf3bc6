"""Comparisons in plain Triton; each sets a bit of the result."""

import triton
import triton.language as tl


@triton.jit
def in_triton(a, b):
    """Bit k for comparison k of PLAIN."""
    bits = (a < b).to(tl.uint32) | ((a <= b).to(tl.uint32) << 1) | ((a > b).to(tl.uint32) << 2)
    return bits | ((a >= b).to(tl.uint32) << 3) | ((a == b).to(tl.uint32) << 4) | ((a != b).to(tl.uint32) << 5)


@triton.jit
def negated_in_triton(a, b):
    """Bit k for the opposite of comparison k of PLAIN."""
    return in_triton(a, b) ^ 63
