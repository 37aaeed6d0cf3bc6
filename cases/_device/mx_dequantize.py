"""MX formats to floats: a row of elements, and one element."""

import triton
import triton.language as tl

from .blocks import power
from .narrow import widened


@triton.jit
def dequantize(
    q, s, y, M, N, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, SPECIAL: tl.constexpr, COLUMNS: tl.constexpr
):
    """A row of COLUMNS elements per program; of two codes in a byte, the first is the low nibble."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if EXPONENT + MANTISSA == 3:
        codes = (tl.load(q + i * (N // 2) + j // 2, mask=j < N, other=0) >> ((j % 2) * 4).to(tl.uint8)) & 15
    else:
        codes = tl.load(q + i * N + j, mask=j < N, other=0)
    scale = power(tl.load(s + i * (N // 32) + j // 32, mask=j < N, other=0))
    product = widened(codes, EXPONENT, MANTISSA, SPECIAL) * scale
    tl.store(y + i * N + j, product.to(y.dtype.element_ty), mask=j < N)


@triton.jit
def scaled_element(q, s, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, SPECIAL: tl.constexpr):
    """The exact product in float32; its conversion is exact except for overflow."""
    return (widened(q, EXPONENT, MANTISSA, SPECIAL) * power(s)).to(tl.bfloat16)
