"""MXFP4 quantisation of a row: two codes a byte and scales."""

import triton
import triton.language as tl

from .blocks import e2m1_pairs, inverse_power, largest_magnitude, mx_scale


@triton.jit
def quantize(x, q, s, M, N, RULE: tl.constexpr, RATIO: tl.constexpr, HARDWARE: tl.constexpr, COLUMNS: tl.constexpr):
    """A row of COLUMNS elements per program."""
    i = tl.program_id(0)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    values = tl.load(x + i * N + j, mask=j < N, other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (1, COLUMNS // 32, 32))
    scale = mx_scale(largest_magnitude(blocks), RULE, 2, 1, RATIO)
    pairs = tl.reshape(blocks * inverse_power(scale)[:, :, None], (COLUMNS // 2, 2))
    low, high = tl.split(pairs)
    jq = tl.program_id(1) * (COLUMNS // 2) + tl.arange(0, COLUMNS // 2)
    tl.store(q + i * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=jq < N // 2)
    k = tl.program_id(1) * (COLUMNS // 32) + tl.arange(0, COLUMNS // 32)
    codes = tl.reshape(scale, (COLUMNS // 32,)).to(tl.uint8)
    tl.store(s + i * (N // 32) + k, codes, mask=k < N // 32)
