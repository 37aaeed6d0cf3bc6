"""Stochastic rounding of float32 in plain Triton."""

import triton
import triton.language as tl

from .narrow import stochastically_narrowed


@triton.jit
def in_integers(
    x, rbits, y, n: tl.constexpr, BITS: tl.constexpr, PLACES: tl.constexpr, EXPONENT: tl.constexpr,
    MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """Plain Triton, for any GPU: each element with the low bits of its own random word."""
    i = tl.arange(0, n)
    random = tl.load(rbits + i) & ((1 << PLACES) - 1)
    code = stochastically_narrowed(tl.load(x + i), random, PLACES, EXPONENT, MANTISSA, LARGEST, NAN)
    tl.store((y + i).to(tl.pointer_type(tl.uint16 if BITS == 16 else tl.uint8), bitcast=True), code)
