"""float32 to half formats in plain Triton."""

import triton
import triton.language as tl

from .narrow import narrowed


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, TYPE: tl.constexpr):
    """Overflow gives infinity, as in any IEEE 754 format; NaN is canonical."""
    infinity: tl.constexpr = ((1 << EXPONENT) - 1) << MANTISSA
    return narrowed(x, EXPONENT, MANTISSA, infinity, 0x7FFF).to(tl.uint16).to(TYPE, bitcast=True)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast."""
    return x.to(TYPE)


@triton.jit
def upper_half(x):
    """bfloat16 is the upper half of a float32: rounds toward zero.

    A NaN with only low payload bits becomes infinity.
    """
    return (x.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)
