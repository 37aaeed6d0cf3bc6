"""A conversion and a maximum in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(a, b):
    """The same in plain Triton."""
    return a.to(tl.int32), tl.maximum(a.to(tl.float32), b)
