"""Two 4-bit numbers in a byte, with zero point and scale, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def element(n, zero, scale):
    """The difference is exact, the product rounded once."""
    y = (n.to(tl.int32) - (zero & 15).to(tl.int32)).to(tl.float16) * scale
    return y.to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def in_triton(q, zero, scale):
    """The low nibble first."""
    return element(q & 15, zero, scale) | (element(q >> 4, zero, scale) << 16)
