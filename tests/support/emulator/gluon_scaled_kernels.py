"""A Gluon kernel with block scales: elements by descriptors that the host makes, scales through registers."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    TensorMemoryScalesLayout,
    allocate_tensor_memory,
    fence_async_shared,
    mbarrier,
    tcgen05_commit,
    tcgen05_mma_scaled,
    tma,
)


@gluon.jit
def scaled(a, b, c, of_a, of_b, K, BLOCK: gl.constexpr, AHEAD: gl.constexpr):
    """c = a @ b.T in steps along k; a uint8 holds two elements of e2m1.

    AHEAD: bytes that the mbarrier expects in addition to those of the copies.
    """
    FOUR_A: gl.constexpr = a.dtype == gl.uint8
    FOUR_B: gl.constexpr = b.dtype == gl.uint8
    each_a: gl.constexpr = 2 if FOUR_A else 1
    each_b: gl.constexpr = 2 if FOUR_B else 1
    M: gl.constexpr = c.block_type.shape[0]
    N: gl.constexpr = c.block_type.shape[1]
    BK: gl.constexpr = a.block_type.shape[1] * each_a
    x = gl.allocate_shared_memory(a.dtype, a.block_type.shape, a.layout)
    y = gl.allocate_shared_memory(b.dtype, b.block_type.shape, b.layout)
    s = allocate_tensor_memory(of_a.dtype.element_ty, [M, BK // BLOCK], TensorMemoryScalesLayout())
    t = allocate_tensor_memory(of_b.dtype.element_ty, [N, BK // BLOCK], TensorMemoryScalesLayout())
    total = allocate_tensor_memory(gl.float32, [M, N], TensorMemoryLayout([M, N], col_stride=1))
    here = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    done = gl.allocate_shared_memory(gl.int64, [1], mbarrier.MBarrierLayout())
    mbarrier.init(here, count=1)
    mbarrier.init(done, count=1)
    phase = 0
    spread: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [1, gl.num_warps()], [1, 0])
    for k in range(0, K, BK):
        mbarrier.expect(here, a.block_type.nbytes + b.block_type.nbytes + AHEAD)
        tma.async_load(a, [0, k // each_a], here, x)
        tma.async_load(b, [0, k // each_b], here, y)
        mbarrier.wait(here, phase)
        block = k // BLOCK + gl.arange(0, BK // BLOCK, layout=gl.SliceLayout(0, spread))
        row = gl.arange(0, M, layout=gl.SliceLayout(1, spread))
        column = gl.arange(0, N, layout=gl.SliceLayout(1, spread))
        left = gl.load(of_a + row[:, None] * (K // BLOCK) + block[None, :])
        right = gl.load(of_b + column[:, None] * (K // BLOCK) + block[None, :])
        s.store(gl.convert_layout(left, s.get_reg_layout()))
        t.store(gl.convert_layout(right, t.get_reg_layout()))
        kind_a: gl.constexpr = "e2m1" if FOUR_A else "e4m3"
        kind_b: gl.constexpr = "e2m1" if FOUR_B else "e4m3"
        tcgen05_mma_scaled(x, y.permute((1, 0)), total, s, t, kind_a, kind_b, use_acc=k != 0)
        tcgen05_commit(done)
        mbarrier.wait(done, phase)
        phase ^= 1
    mbarrier.invalidate(here)
    mbarrier.invalidate(done)
    out = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    out.store(total.load())
    fence_async_shared()
    tma.async_store(c, [0, 0], out)
    tma.store_wait(0)
