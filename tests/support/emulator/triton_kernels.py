"""Ordinary Triton kernels that `test_triton_kernels.py` compiles and runs."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def softmax(x, y, N, B: tl.constexpr):
    row = tl.program_id(0) * N
    o = tl.arange(0, B)
    a = tl.load(x + row + o, mask=o < N, other=-float("inf"))
    e = tl.exp(a - tl.max(a, 0))
    tl.store(y + row + o, e / tl.sum(e, 0), mask=o < N)


@triton.jit
def layer_norm(x, w, b, y, N, eps, B: tl.constexpr):
    row = tl.program_id(0) * N
    o = tl.arange(0, B)
    m = o < N
    a = tl.load(x + row + o, mask=m, other=0.0).to(tl.float32)
    mean = tl.sum(a, 0) / N
    d = tl.where(m, a - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(d * d, 0) / N + eps)
    tl.store(y + row + o, d * scale * tl.load(w + o, mask=m) + tl.load(b + o, mask=m), mask=m)


@triton.jit
def transpose(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BN + tl.arange(0, BN)
    a = tl.load(x + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N))
    tl.store(y + j[:, None] * M + i[None, :], tl.trans(a), mask=(j[:, None] < N) & (i[None, :] < M))


@triton.jit
def histogram_atomic(x, h, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(h + tl.load(x + o, mask=o < n, other=0), 1, mask=o < n)


@triton.jit
def histogram_shared(x, h, B: tl.constexpr, BINS: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(h + tl.arange(0, BINS), tl.histogram(tl.load(x + o), BINS))


@triton.jit
def row_sums(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM,), tl.float32)
    for k in range(0, N, BN):
        j = k + tl.arange(0, BN)
        total += tl.sum(
            tl.load(x + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N), other=0.0), 1
        )
    tl.store(y + i, total, mask=i < M)


@triton.jit
def running_sum(x, y, n, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + o, tl.cumsum(tl.load(x + o, mask=o < n, other=0), 0), mask=o < n)


@triton.jit
def sort(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + o, tl.sort(tl.load(x + o)))


@triton.jit
def argmax(x, y, N, B: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, B)
    tl.store(y + row, tl.argmax(tl.load(x + row * N + o, mask=o < N, other=-float("inf")), 0))


@triton.jit
def multiply_add(x, z, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    m = o < n
    a = tl.load(x + o, mask=m)
    tl.store(y + o, a * tl.load(z + o, mask=m) + a, mask=m)


@triton.jit
def wrong_mask(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) + 1, mask=o <= n)


@triton.jit
def mixes_neighbours(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n)
    asm: tl.constexpr = "{ .reg .b16 a, b; mov.b32 {a, b}, $1; mov.b32 $0, {b, a}; }"
    s = tl.inline_asm_elementwise(asm, "=r,r", [a], dtype=tl.int16, is_pure=True, pack=2)
    tl.store(y + o, s, mask=o < n)


@triton.jit
def locked_total(x, lock, total, B: tl.constexpr):
    value = tl.sum(tl.load(x + tl.program_id(0) * B + tl.arange(0, B)), 0)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(total, tl.load(total) + value)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def nvfp4(x, q, scales, global_scale, M, N, BM: tl.constexpr, BN: tl.constexpr):
    """Blocks of 16: an e4m3 scale each, and e2m1 values two a byte."""
    i = (tl.program_id(0) * BM + tl.arange(0, BM))[:, None]
    j = (tl.program_id(1) * BN + tl.arange(0, BN))[None, :]
    a = tl.load(x + i * N + j, mask=(i < M) & (j < N), other=0.0).to(tl.float32)
    blocks = tl.reshape(a, (BM, BN // 16, 16))
    g = tl.load(global_scale)
    scale = tl.minimum(tl.max(tl.abs(blocks), 2) * (g / 6.0), 448.0).to(tl.float8e4nv)
    inverse = tl.where(scale.to(tl.float32) == 0.0, 0.0, g / scale.to(tl.float32))
    pairs = tl.reshape(blocks * inverse[:, :, None], (BM, BN // 2, 2))
    low, high = tl.split(pairs)
    asm: tl.constexpr = "{ .reg .b8 t; cvt.rn.satfinite.e2m1x2.f32 t, $1, $2; cvt.u32.u8 $0, t; }"
    codes = tl.inline_asm_elementwise(asm, "=r,r,r", [high, low], dtype=tl.uint8, is_pure=True, pack=1)
    jq = (tl.program_id(1) * (BN // 2) + tl.arange(0, BN // 2))[None, :]
    tl.store(q + i * (N // 2) + jq, codes, mask=(i < M) & (jq < N // 2))
    js = (tl.program_id(1) * (BN // 16) + tl.arange(0, BN // 16))[None, :]
    tl.store(scales + i * (N // 16) + js, scale.to(tl.uint8, bitcast=True), mask=(i < M) & (js < N // 16))


@triton.jit
def pipelined_sums(x, y, M, N, BM: tl.constexpr, BN: tl.constexpr):
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, N, BN, num_stages=3):
        j = k + tl.arange(0, BN)
        total += tl.load(x + i[:, None] * N + j[None, :], mask=(i[:, None] < M) & (j[None, :] < N), other=0.0)
    tl.store(y + i, tl.sum(total, 1), mask=i < M)


@triton.jit
def library_functions(x, y, n, B: tl.constexpr):
    """The sine of a large number reduces it with a table in global memory and an array in local memory."""
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n, other=0.0)
    tl.store(y + o, libdevice.sin(a) + libdevice.pow(tl.abs(a), 0.1), mask=o < n)


@triton.jit
def wide_integers(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    a = tl.load(x + o, mask=o < n, other=1)
    tl.store(y + o, ((a.to(tl.int64) * 1234567 // 1000) % 77).to(tl.int32) + a // 7 + a % 5, mask=o < n)


@triton.jit
def asserts_and_prints(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    tl.device_print("a", a)
    tl.device_assert(a < 100, "too large")
    tl.store(y + o, a)


@triton.jit
def matrix_product(x, y, B: tl.constexpr):
    i = tl.arange(0, B)
    a = tl.load(x + i[:, None] * B + i[None, :])
    tl.store(y + i[:, None] * B + i[None, :], tl.dot(a, a))


@triton.jit
def matmul(x, y, out, M, N, K, B: tl.constexpr, STEP: tl.constexpr, ACC: tl.constexpr):
    m = tl.program_id(0) * B + tl.arange(0, B)
    n = tl.program_id(1) * B + tl.arange(0, B)
    k = tl.arange(0, STEP)
    a, b = x + m[:, None] * K + k[None, :], y + k[:, None] * N + n[None, :]
    total = tl.zeros((B, B), dtype=ACC)
    for _ in range(0, K, STEP):
        total = tl.dot(tl.load(a), tl.load(b), total, out_dtype=ACC)
        a += STEP
        b += STEP * N
    tl.store(out + m[:, None] * N + n[None, :], total)


@triton.jit
def adds_constant(x, y, N: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    r = tl.inline_asm_elementwise("add.s32 $0, $1, $2;", "=r,r,n", [a, N], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(y + o, r)


@triton.jit
def joins_unwritten(x, y, B: tl.constexpr):
    o = tl.arange(0, B)
    a = tl.load(x + o)
    b = tl.inline_asm_elementwise("// writes nothing", "=h,h", [a], dtype=tl.int16, is_pure=True, pack=1)
    tl.store(y + tl.arange(0, 2 * B), tl.reshape(tl.join(b, a), [2 * B]))


@triton.jit
def matmul_of_twice(x, y, out, M, N, K, B: tl.constexpr, STEP: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    j = tl.program_id(1) * B + tl.arange(0, B)
    k = tl.arange(0, STEP)
    total = tl.zeros((B, B), tl.float32)
    for start in range(0, K, STEP):
        a = tl.load(x + i[:, None] * K + start + k[None, :])
        b = tl.load(y + (start + k)[:, None] * N + j[None, :])
        total = tl.dot(a + a, b, total)
    tl.store(out + i[:, None] * N + j[None, :], total)
