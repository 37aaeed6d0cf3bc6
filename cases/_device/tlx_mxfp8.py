"""TLX's rule for MXFP8 in plain Triton."""

import triton
import triton.language as tl

from .narrow import narrowed


@triton.jit
def in_triton(
    x, q, s, M: tl.constexpr, N: tl.constexpr, RATIO: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr,
    LARGEST: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """The same rule in integers; NaN, infinity and overflow of the scale follow TLX, not the recipe."""
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    values = tl.reshape(tl.load(x + i * N + j), (M, N // 32, 32))
    size = values.to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    numbers = tl.max(tl.where(size > 0x7F800000, 0, size), 2)
    ratio = (numbers.to(tl.float32, bitcast=True) * RATIO).to(tl.uint32, bitcast=True)
    up = tl.where(ratio < 0x800000, ratio > 0x400000, (ratio & 0x7FFFFF) != 0)
    scale = tl.minimum((ratio >> 23) + up.to(tl.uint32), 254)
    scale = tl.where(tl.min(size, 2) > 0x7F800000, 255, scale)  # a block with only NaN
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    codes = narrowed(tl.reshape(values * inverse[:, :, None], (M, N)), EXPONENT, MANTISSA, LARGEST, NAN)
    tl.store(q + i * N + j, codes.to(tl.uint8))
    tl.store(s + i * (N // 32) + k, scale.to(tl.uint8))
