"""Stochastic rounding of two float32 to halves of a word, in plain Triton."""

import triton
import triton.language as tl

from .narrow import stochastically_narrowed


@triton.jit
def in_integers(low, high, rbits, PLACES: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The lower element takes the low random bits, the upper one those from bit 16 on."""
    mask: tl.constexpr = (1 << PLACES) - 1
    infinity: tl.constexpr = ((1 << EXPONENT) - 1) << MANTISSA
    first = stochastically_narrowed(low, rbits & mask, PLACES, EXPONENT, MANTISSA, infinity, 0x7FFF)
    second = stochastically_narrowed(high, (rbits >> 16) & mask, PLACES, EXPONENT, MANTISSA, infinity, 0x7FFF)
    return first | (second << 16)
