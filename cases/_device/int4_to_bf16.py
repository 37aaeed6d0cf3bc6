"""int4 to bfloat16, two a byte, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def element(n):
    """A nibble's bits in bfloat16."""
    return (n.to(tl.int32) - 8).to(tl.bfloat16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def in_triton(q):
    """The low nibble first."""
    return element(q & 15) | (element(q >> 4) << 16)
