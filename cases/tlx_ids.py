"""TLX's ids of a thread and of a block in its cluster, and the cluster's size, and plain Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32

from ._device.tlx_warps import by_range

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def by_tlx(x, y, n: tl.constexpr):
    """A thread's number, its block's rank in its cluster, and the cluster's size."""
    i = tl.arange(0, n)
    tl.store(y + i, tl.load(x + i) + tlx.thread_id(0))
    tl.store(y + n + i, tl.load(x + i) + tlx.cluster_cta_rank())
    tl.store(y + 2 * n + i, tl.load(x + i) + tlx.cluster_size_1d())


def numbered(x):
    """x and the thread's number, x, x + 1."""
    added = torch.cat([torch.arange(len(x), device=x.device), x * 0, x * 0 + 1])
    return (x.repeat(3) + added) & 0xFFFFFFFF


case = Case(
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
