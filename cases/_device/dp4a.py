"""The dot product of four bytes in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def signed_byte(x, k: tl.constexpr):
    """Byte k of a word, with its sign."""
    return (x << (24 - 8 * k)).to(tl.int32, bitcast=True) >> 24


@triton.jit
def in_triton(a, b, c):
    """Four products; the sum wraps."""
    y = c.to(tl.int32, bitcast=True)
    for k in tl.static_range(4):
        y += signed_byte(a, k) * signed_byte(b, k)
    return y.to(tl.uint32, bitcast=True)


@triton.jit
def mixed_in_triton(a, b, c):
    """The bytes of a without a sign."""
    y = c.to(tl.int32, bitcast=True)
    for k in tl.static_range(4):
        y += ((a >> (8 * k)) & 255).to(tl.int32) * signed_byte(b, k)
    return y.to(tl.uint32, bitcast=True)
