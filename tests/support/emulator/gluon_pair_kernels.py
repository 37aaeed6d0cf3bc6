"""Gluon kernels whose blocks work in pairs, with tensor descriptors that the host makes."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.blackwell import (
    TensorMemoryLayout,
    allocate_tensor_memory,
    mbarrier,
    tcgen05_mma,
    tcgen05_mma_barrier_count,
    tma,
)


@gluon.jit
def tiles(
    a, b, c, STEPS: gl.constexpr, SPREAD: gl.constexpr, TOLD: gl.constexpr, WAITS: gl.constexpr, ENDS: gl.constexpr
):
    """c = a @ b in steps along k.

    SPREAD: boxes go to several pairs of blocks. TOLD: commits do too. WAITS: the kernel waits for each product. ENDS:
    it waits for the store of c.
    """
    m: gl.constexpr = a.block_shape[0]
    k: gl.constexpr = a.block_shape[1]
    n: gl.constexpr = b.block_shape[1]
    x = gl.allocate_shared_memory(a.dtype, a.block_shape, a.layout)
    y = gl.allocate_shared_memory(b.dtype, b.block_shape, b.layout)
    here = mbarrier.allocate_mbarrier(two_ctas=True)
    done = mbarrier.allocate_mbarrier()
    mbarrier.init(here, count=1)
    mbarrier.init(done, count=tcgen05_mma_barrier_count([x, y], TOLD, True))
    rows: gl.constexpr = m // gl.num_ctas()
    layout: gl.constexpr = TensorMemoryLayout(
        block=(rows, n), col_stride=1, cga_layout=c.layout.cga_layout, two_ctas=True
    )
    total = allocate_tensor_memory(gl.float32, [m, n], layout)
    phase = 0
    for i in range(STEPS):
        mbarrier.expect(here, a.nbytes_per_cta + b.nbytes_per_cta)
        tma.async_load(a, [0, i * k], here, x, multicast=SPREAD)
        tma.async_load(b, [i * k, 0], here, y, multicast=SPREAD)
        mbarrier.wait(here, phase=phase, deps=[x, y])
        tcgen05_mma(x, y, total, use_acc=i != 0, multicast=TOLD, mbarriers=[done])
        if WAITS:
            mbarrier.wait(done, phase=phase, deps=[x, y])
        phase ^= 1
    mbarrier.invalidate(here)
    mbarrier.invalidate(done)
    out = gl.allocate_shared_memory(c.dtype, c.block_shape, c.layout)
    out.store(total.load().to(c.dtype))
    tma.async_store(c, [0, 0], out)
    if ENDS:
        tma.store_wait(0)
