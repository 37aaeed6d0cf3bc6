"""float32 to 8 and 6 bits in plain Triton."""

import triton
import triton.language as tl

from .narrow import narrowed


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr):
    """Codes are bytes."""
    return narrowed(x, EXPONENT, MANTISSA, LARGEST, NAN).to(tl.uint8)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast, which saturates."""
    return x.to(TYPE).to(tl.uint8, bitcast=True)
