"""Attention in blocks of 32 keys, with an exponential that has defined bits, and sums on the tensor cores."""

import triton
import triton.language as tl

from .exp2_polynomial import in_triton


@triton.jit
def power(x, TEXT: tl.constexpr):
    """2^x by a polynomial: with the asm TEXT, or in plain Triton if TEXT is empty."""
    if TEXT != "":
        return tl.inline_asm_elementwise(TEXT, "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    return in_triton(x)


@triton.jit
def attend(q, k, v, o, M, N, D: tl.constexpr, SCALE: tl.constexpr, TEXT: tl.constexpr, BLOCK: tl.constexpr):
    """BLOCK queries per program. A row's sum is a product with ones, because a reduction has no defined order."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    d = tl.arange(0, D)
    queries = tl.load(q + i * D + d[None, :], mask=i < M, other=0.0)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK, 16), tl.float32)
    total = tl.zeros((BLOCK, D), tl.float32)
    for start in range(0, N, BLOCK):
        j = start + tl.arange(0, BLOCK)
        scores = tl.dot(queries, tl.load(k + j[None, :] * D + d[:, None]))
        larger = tl.maximum(largest, tl.max(scores, 1))
        weights = power((scores - larger[:, None]) * SCALE, TEXT).to(tl.float16)
        shrink = power((largest - larger) * SCALE, TEXT)[:, None]
        sums = tl.dot(weights, tl.full((BLOCK, 16), 1.0, tl.float16), sums * shrink)
        total = tl.dot(weights, tl.load(v + j[:, None] * D + d[None, :]), total * shrink)
        largest = larger
    weight = tl.broadcast_to(tl.max(sums, 1)[:, None], (BLOCK, D))
    tl.store(o + i * D + d[None, :], tl.div_rn(total, weight), mask=i < M)
