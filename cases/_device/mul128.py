"""The whole product of two 64-bit numbers in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_triton(a, b):
    """The wrapping product, and Triton's upper half."""
    return a * b, tl.umulhi(a, b)


@triton.jit
def halves_in_triton(a, b):
    """Four products of 32-bit halves; their sum in the middle does not overflow."""
    a0, a1, b0, b1 = a & 0xFFFFFFFF, a >> 32, b & 0xFFFFFFFF, b >> 32
    middle = a1 * b0 + ((a0 * b0) >> 32)
    other = a0 * b1 + (middle & 0xFFFFFFFF)
    return (other << 32) | ((a0 * b0) & 0xFFFFFFFF), a1 * b1 + (middle >> 32) + (other >> 32)
