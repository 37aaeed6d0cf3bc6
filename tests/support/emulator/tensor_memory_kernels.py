"""Triton kernels for tensor memory: large tiles with pointers, with descriptors, attention, grouped, block-scaled."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, STEP: tl.constexpr, ACC: tl.constexpr, TWICE: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, STEP)
    a, b = x + m[:, None] * K + k[None, :], y + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), dtype=ACC)
    for _ in range(0, K, STEP):
        left = tl.load(a)
        if TWICE:  # a then goes to tensor memory through registers
            left = left + left
        total = tl.dot(left, tl.load(b), total, out_dtype=ACC)
        a += STEP
        b += STEP * N
    tl.store(out + m[:, None] * N + n[None, :], total)


@triton.jit
def persistent(x, y, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, TASKS: tl.constexpr):
    a = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    b = tl.make_tensor_descriptor(y, [K, N], [N, 1], [BK, BN])
    c = tl.make_tensor_descriptor(out, [M, N], [N, 1], [BM, BN])
    columns = tl.cdiv(N, BN)
    for tile in tl.range(
        tl.program_id(0), tl.cdiv(M, BM) * columns, tl.num_programs(0), flatten=True, warp_specialize=TASKS
    ):
        m, n = tile // columns * BM, tile % columns * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(a.load([m, k]), b.load([k, n]), total)
        c.store([m, n], total.to(tl.float16))


@triton.jit
def grouped(x, y, out, starts, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Rows from starts[g] to starts[g + 1] are multiplied by the g-th matrix of y."""
    g = tl.program_id(0)
    first, last = tl.load(starts + g), tl.load(starts + g + 1)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    for tile in range(first, last, BM):
        m = tile + tl.arange(0, BM)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            a = tl.load(x + m[:, None] * K + k[None, :], mask=(m < last)[:, None], other=0.0)
            b = tl.load(y + g * K * N + k[:, None] * N + n[None, :])
            total = tl.dot(a, b, total)
        tl.store(out + m[:, None] * N + n[None, :], total, mask=(m < last)[:, None])


@triton.jit
def scaled(
    a, of_a, b, of_b, out, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, A: tl.constexpr,
    B: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """b is n x k; a byte holds two elements of e2m1."""
    each_a: tl.constexpr = 2 if A == "e2m1" else 1
    each_b: tl.constexpr = 2 if B == "e2m1" else 1
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k_a, k_b, blocks = tl.arange(0, BK // each_a), tl.arange(0, BK // each_b), tl.arange(0, BK // BLOCK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + m[:, None] * (K // each_a) + k // each_a + k_a[None, :])
        y = tl.load(b + n[None, :] * (K // each_b) + k // each_b + k_b[:, None])
        s = tl.load(of_a + m[:, None] * (K // BLOCK) + k // BLOCK + blocks[None, :])
        t = tl.load(of_b + n[:, None] * (K // BLOCK) + k // BLOCK + blocks[None, :])
        total = tl.dot_scaled(x, s, A, y, t, B, total)
    tl.store(out + m[:, None] * N + n[None, :], total)
