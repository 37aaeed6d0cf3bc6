"""The sum of two numbers in plain Triton."""

import triton


@triton.jit
def in_triton(a, b):
    """The sum, rounded once."""
    return a + b
