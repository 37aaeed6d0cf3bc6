"""TLX across the threads of a warp: warp_redux, vote_ballot_sync, thread and cluster ids, beside plain Triton."""

import torch
import triton
import triton.language as tl

from harness import ALL, Case, kernel, module_of_build, only, since
from references import arithmetic
from references.formats import F32, I32, U32

tlx = module_of_build("triton.language.extra.tlx")
REDUX = only("sm_100a", "sm_103a")
OPERATIONS = {"max": arithmetic.maximum, "min": arithmetic.minimum}


@triton.jit
def redux(x, y, n: tl.constexpr, OPERATION: tl.constexpr):
    """An element a thread, so that a warp has 32 in a row."""
    i = tl.arange(0, n)
    tl.store(y + i, tlx.warp_redux(tl.load(x + i), OPERATION))


@triton.jit
def reduced(x, y, n: tl.constexpr, OPERATION: tl.constexpr):
    """The same as a reduction of rows, by order of bits: -0 is less than +0, and NaN does not count beside a number."""
    i = tl.arange(0, n)
    bits = tl.load(x + i).to(tl.int32, bitcast=True)
    bits = bits & 0x7FFFFFFF if OPERATION == "abs_max" or OPERATION == "abs_min" else bits
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    place = tl.reshape(tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits), (n // 32, 32))
    nan = tl.reshape(nan, (n // 32, 32))
    if OPERATION == "max" or OPERATION == "abs_max":
        found = tl.max(tl.where(nan, -0x80000000, place), 1)
    else:
        found = tl.min(tl.where(nan, 0x7FFFFFFF, place), 1)
    found = tl.where(tl.min(nan.to(tl.int32), 1) == 1, 0x7FFFFFFF, tl.where(found < 0, found ^ 0x7FFFFFFF, found))
    rows = tl.broadcast_to(found[:, None], (n // 32, 32))
    tl.store(y + i, tl.reshape(rows, (n,)).to(tl.float32, bitcast=True))


def of_warps(operation: str):
    """ISA, redux.sync: NaN only where all are NaN, and then the canonical one; +0 > -0; .abs before."""

    def reference(x):
        rows = (x & 0x7FFFFFFF if operation.startswith("abs") else x).reshape(-1, 32)
        found = rows[:, 0]
        for k in range(1, 32):
            found = OPERATIONS[operation[-3:]](found, rows[:, k])
        return found.repeat_interleave(32)

    return reference


reductions = {
    operation: Case(
        inputs={"x": F32["n"]},
        outputs={"y": F32["n"]},
        reference=of_warps(operation),
        sizes=[{"n": 128}],
        variants={
            "tlx": kernel(
                redux, grid=(1,), meta={"OPERATION": operation}, compiler="tlx", targets=REDUX, refused=ALL - REDUX
            ),
            "triton": kernel(reduced, grid=(1,), meta={"OPERATION": operation}),
        },
        family="warps",
        source="PTX ISA, redux.sync",
    )
    for operation in ("max", "min", "abs_max", "abs_min")
}


@triton.jit
def ballot(x, y, n: tl.constexpr):
    """Every lane gets the mask of its warp."""
    i = tl.arange(0, n)
    tl.store(y + i, tlx.vote_ballot_sync(0xFFFFFFFF, tl.load(x + i) > 0))


@triton.jit
def summed(x, y, n: tl.constexpr):
    """A bit for each lane, added up."""
    i = tl.arange(0, n)
    bits = (tl.load(x + i) > 0).to(tl.uint32) << (i % 32).to(tl.uint32)
    masks = tl.sum(tl.reshape(bits, (n // 32, 32)), 1)
    tl.store(y + i, tl.reshape(tl.broadcast_to(masks[:, None], (n // 32, 32)), (n,)))


def masks(x):
    """Lane k's bit is bit k."""
    rows = ((x > 0) & (x < 1 << 31)).reshape(-1, 32).to(torch.int64)
    return (rows << torch.arange(32, device=x.device)).sum(1).repeat_interleave(32)


votes = Case(
    inputs={"x": I32["n"]},
    outputs={"y": U32["n"]},
    reference=masks,
    sizes=[{"n": 128}],
    variants={
        "tlx": kernel(ballot, grid=(1,), compiler="tlx", targets=since("sm_80")),
        "triton": kernel(summed, grid=(1,)),
    },
    family="warps",
    source="PTX ISA, vote.sync: .ballot",
)


@triton.jit
def by_tlx(x, y, n: tl.constexpr):
    """A thread's own number, its block's rank in its cluster, and the size of that."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + tlx.thread_id(0))
    tl.store(y + n + i, tl.load(x + i) + tlx.cluster_cta_rank())
    tl.store(y + 2 * n + i, tl.load(x + i) + tlx.cluster_size_1d())


@triton.jit
def by_range(x, y, n: tl.constexpr):
    """128 elements on 128 threads, in a cluster of one block."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + i)
    tl.store(y + n + i, tl.load(x + i))
    tl.store(y + 2 * n + i, tl.load(x + i) + 1)


def numbered(x):
    """x and the thread's number, x, x + 1."""
    added = torch.cat([torch.arange(len(x), device=x.device), x * 0, x * 0 + 1])
    return (x.repeat(3) + added) & 0xFFFFFFFF


ids = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["3*n"]},
    reference=numbered,
    sizes=[{"n": 128}],
    variants={
        "tlx": kernel(by_tlx, grid=(1,), compiler="tlx", targets=since("sm_90a")),
        "triton": kernel(by_range, grid=(1,)),
    },
    family="warps",
    source="PTX ISA, %tid, %cluster_ctarank, %cluster_nctarank",
)
