"""TLX's shared memory: local_alloc, local_store, local_load, async_load, barriers of two kinds, a transposed view."""

import triton
import triton.language as tl

from harness import Case, kernel, module_of_build, since
from references.formats import F32, I32

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def staged(x, y, n: tl.constexpr):
    """Through a buffer of shared memory."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 2), 1)
    tlx.local_store(view, tl.load(x + i))
    tl.store(y + i, tlx.local_load(view) + 1)


@triton.jit
def copied(x, y, n: tl.constexpr):
    """By an asynchronous copy, its group waited for."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    token = tlx.async_load_commit_group([tlx.async_load(x + i, view)])
    tlx.async_load_wait_group(0, [token])
    tl.store(y + i, tlx.local_load(view) + 1)


@triton.jit
def masked(x, y, n: tl.constexpr):
    """The upper half of the copy is masked off, and loaded as usual."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    token = tlx.async_load_commit_group([tlx.async_load(x + i, view, mask=i < n // 2, other=0)])
    tlx.async_load_wait_group(0, [token])
    tl.store(y + i, tl.where(i < n // 2, tlx.local_load(view), tl.load(x + i)) + 1)


@triton.jit
def named(x, y, n: tl.constexpr):
    """All threads meet at a named barrier."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    tlx.local_store(view, tl.load(x + i))
    tlx.named_barrier_wait(9, 128)
    tl.store(y + i, tlx.local_load(view) + 1)


@triton.jit
def awaited(x, y, n: tl.constexpr):
    """One arrival at a memory barrier, and its first phase waited for."""
    i = tl.arange(0, n)
    barriers = tlx.alloc_barriers(1, 1)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    tlx.local_store(view, tl.load(x + i))
    tlx.barrier_arrive(barriers[0], 1)
    tlx.barrier_wait(barriers[0], tl.constexpr(0))
    tl.store(y + i, tlx.local_load(view) + 1)


@triton.jit
def in_triton(x, y, n: tl.constexpr):
    """Without shared memory."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + 1)


def next_number(x):
    """One more, in 32 bits."""
    return (x + 1) & 0xFFFFFFFF


def through(function):
    """TLX's kernel; asynchronous copies and named barriers are of sm_80."""
    return kernel(function, grid=(1,), compiler="tlx", targets=since("sm_90a" if function is awaited else "sm_80"))


increments = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=next_number,
    sizes=[{"n": 128}, {"n": 512}],
    variants={
        "local_store": through(staged),
        "async_load": through(copied),
        "async_load-masked": through(masked),
        "named_barrier": through(named),
        "mbarrier": through(awaited),
        "triton": kernel(in_triton, grid=(1,)),
    },
    family="shared memory",
    source="fbtriton 3.7.4, tlx.mem_ops and tlx.barrier; PTX ISA, cp.async, barrier, mbarrier",
)


@triton.jit
def by_view(x, y, M: tl.constexpr, N: tl.constexpr):
    """A transposed view of the buffer that was stored."""
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    view = tlx.local_view(tlx.local_alloc((M, N), tl.float32, 1), 0)
    tlx.local_store(view, tl.load(x + i * N + j))
    k, m = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    tl.store(y + k * M + m, tlx.local_load(tlx.local_trans(view)))


@triton.jit
def by_address(x, y, M: tl.constexpr, N: tl.constexpr):
    """Stored elsewhere."""
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(y + j * M + i, tl.load(x + i * N + j))


def transposed(x):
    """Rows become columns."""
    return x.transpose(-1, -2)


transposition = Case(
    inputs={"x": F32["M", "N"]},
    outputs={"y": F32["N", "M"]},
    reference=transposed,
    sizes=[{"M": 32, "N": 64}],
    nan="payload",
    variants={
        "local_trans": kernel(by_view, grid=(1,), compiler="tlx", targets=since("sm_80")),
        "triton": kernel(by_address, grid=(1,)),
    },
    family="shared memory",
    source="fbtriton 3.7.4, tlx.mem_ops",
)
