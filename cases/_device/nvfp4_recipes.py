"""NVFP4 quantisation as four libraries compute it, scales in tiles."""

import triton
import triton.language as tl

from .blocks import e2m1_pairs, tiled_offset
from .narrow import narrowed, widened


@triton.jit
def quantize(
    x, q, s, M, N, RULE: tl.constexpr, ENCODE: tl.constexpr, SIXTH: tl.constexpr, INVERSE: tl.constexpr,
    HARDWARE: tl.constexpr,
):  # fmt: skip
    """A tile of scales per program: 128 rows of 64 elements. Its padding is zero."""
    row = tl.program_id(0) * 128 + tl.arange(0, 128)[:, None]
    j = tl.program_id(1) * 64 + tl.arange(0, 64)[None, :]
    values = tl.load(x + row * N + j, mask=(row < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(values, (128, 4, 16))
    amax = tl.max(tl.abs(blocks), 2)
    six = tl.full(amax.shape, 6.0, tl.float32)
    if RULE == "torchao":
        bits = tl.max(blocks.to(tl.uint32, bitcast=True) & 0x7FFFFFFF, 2)  # keeps NaN
        decode = tl.div_rn(tl.div_rn(bits.to(tl.float32, bitcast=True), six), tl.full(amax.shape, INVERSE, tl.float32))
        decode = tl.where(decode < 0.015625, 0.015625, decode)
    elif RULE == "divide":
        decode = tl.div_rn(amax, six) * ENCODE
    elif RULE == "transformer-engine":
        decode = tl.maximum(amax, 0.0) * (SIXTH * tl.full(amax.shape, ENCODE, tl.float32))
    else:
        decode = ENCODE * (amax * SIXTH)
    code = narrowed(decode, 4, 3, 0x7E, 0x7F)
    scale = widened(code, 4, 3, 0x7F)
    if RULE == "torchao":
        scaled = tl.div_rn(blocks, tl.broadcast_to((scale * INVERSE)[:, :, None], blocks.shape))
    else:
        if RULE == "divide":
            factor = tl.div_rn(tl.full(amax.shape, ENCODE, tl.float32), scale)
        else:
            factor = tl.div_rn(tl.full(amax.shape, 1.0, tl.float32), scale * INVERSE)
        factor = tl.where(scale == 0.0, 3.4028234663852886e38 if RULE == "transformer-engine" else 0.0, factor)
        scaled = blocks * factor[:, :, None]
    low, high = tl.split(tl.reshape(scaled, (128, 32, 2)))
    jq = tl.program_id(1) * 32 + tl.arange(0, 32)[None, :]
    tl.store(q + row * (N // 2) + jq, e2m1_pairs(low, high, HARDWARE), mask=(row < M) & (jq < N // 2))
    column = tl.program_id(1) * 4 + tl.arange(0, 4)[None, :]
    inside = (row < M) & (column < N // 16)
    tl.store(s + tiled_offset(row, column, tl.cdiv(N, 64)), tl.where(inside, code, 0).to(tl.uint8))
