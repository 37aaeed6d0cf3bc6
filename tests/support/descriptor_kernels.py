"""Triton kernels with large tiles, for wgmma: with pointers, with tensor descriptors, and with warp specialisation."""

import triton
import triton.language as tl


@triton.jit
def with_pointers(x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(y + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(a, b, total, out_dtype=ACC)
    tl.store(out + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def with_made_descriptors(
    x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, TASKS: tl.constexpr
):
    a = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(y, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=ACC)
    for k in tl.range(0, K, BK, warp_specialize=TASKS):
        total = tl.dot(a.load([m, k]), b.load([k, n]), total, out_dtype=ACC)
    c.store([m, n], total.to(out.dtype.element_ty))


@triton.jit
def with_given_descriptors(
    x, y, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACC: tl.constexpr, TO: tl.constexpr
):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), dtype=ACC)
    for k in range(0, K, BK):
        total = tl.dot(x.load([m, k]), y.load([k, n]), total, out_dtype=ACC)
    out.store([m, n], total.to(TO))


@triton.jit
def attention(q, k, v, out, N, SCALE, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    head = tl.program_id(1) * N * D
    rows = tl.load(q + head + m[:, None] * D + d[None, :])
    largest = tl.full((BM,), float("-inf"), tl.float32)
    size = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        scores = tl.dot(rows, tl.trans(tl.load(k + head + n[:, None] * D + d[None, :]))) * SCALE
        now = tl.maximum(largest, tl.max(scores, 1))
        p = tl.exp2(scores - now[:, None])
        kept = tl.exp2(largest - now)
        size = size * kept + tl.sum(p, 1)
        total = tl.dot(p.to(v.dtype.element_ty), tl.load(v + head + n[:, None] * D + d[None, :]), total * kept[:, None])
        largest = now
    tl.store(out + head + m[:, None] * D + d[None, :], total / size[:, None])
