"""NVFP4 quantisation of a tile: scales and pairs of e2m1 codes."""

import triton
import triton.language as tl

from .blocks import e2m1_pairs


@triton.jit
def quantize(x, q, s, M, N, GLOBAL: tl.constexpr, HARDWARE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """One tile of ROWS x COLUMNS. Divisions are correctly rounded, so that every byte has one correct value."""
    i = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    values = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (ROWS, COLUMNS // 16, 16))
    decode = tl.div_rn(tl.max(tl.abs(blocks), 2), tl.full((ROWS, COLUMNS // 16), 6.0, tl.float32)) * GLOBAL
    scale = tl.minimum(decode, 448.0).to(tl.float8e4nv)
    wide = scale.to(tl.float32)
    encode = tl.where(wide == 0.0, 0.0, tl.div_rn(tl.full((ROWS, COLUMNS // 16), GLOBAL, tl.float32), wide))
    low, high = tl.split(tl.reshape(blocks * encode[:, :, None], (ROWS, COLUMNS // 2, 2)))
    jq = tl.program_id(1) * (COLUMNS // 2) + tl.arange(0, COLUMNS // 2)[None, :]
    tl.store(q + i * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=(i < M) & (jq < N // 2))
    js = tl.program_id(1) * (COLUMNS // 16) + tl.arange(0, COLUMNS // 16)[None, :]
    tl.store(s + i * (N // 16) + js, scale.to(tl.uint8, bitcast=True), mask=(i < M) & (js < N // 16))
