"""MX quantisation of a tile to bytes."""

import triton
import triton.language as tl

from .blocks import inverse_power, largest_magnitude, mx_scale, to_bytes


@triton.jit
def quantize(
    x, q, s, M, N,
    RULE: tl.constexpr, EMAX: tl.constexpr, RATIO: tl.constexpr, ASM: tl.constexpr, EXPONENT: tl.constexpr,
    MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One tile of ROWS x COLUMNS. The scale is a power of two, so the product with its inverse is exact."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (ROWS, COLUMNS // 32, 32))
    scale = mx_scale(largest_magnitude(blocks), RULE, EMAX, MANTISSA, RATIO)
    scaled = tl.reshape(blocks * inverse_power(scale)[:, :, None], (ROWS, COLUMNS))
    tl.store(q + i * N + j, to_bytes(scaled, ASM, EXPONENT, MANTISSA, LARGEST, NAN), mask=(i < M) & (j < N))
    k = tl.program_id(1) * (COLUMNS // 32) + tl.arange(0, COLUMNS // 32)[None, :]
    tl.store(s + i * (N // 32) + k, scale.to(tl.uint8), mask=(i < M) & (k < N // 32))
