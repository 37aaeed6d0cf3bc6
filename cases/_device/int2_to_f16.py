"""Sixteen 2-bit numbers of a word, to float16, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def element(q, place: tl.constexpr):
    """One number's bits in float16."""
    n = ((q >> (2 * place)) & 3).to(tl.int32) - 2
    return n.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def pair(q, k: tl.constexpr):
    """Elements k and k + 8."""
    return element(q, k) | (element(q, k + 8) << 16)


@triton.jit
def in_triton(q):
    """Eight outputs."""
    return pair(q, 0), pair(q, 1), pair(q, 2), pair(q, 3), pair(q, 4), pair(q, 5), pair(q, 6), pair(q, 7)
