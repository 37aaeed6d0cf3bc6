"""TLX's barriers between a store to shared memory and the load: a named one, and one in memory."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32

from ._device.tlx_shared_memory import in_triton
from ._host.expected import next_number

tlx = module_of_build("triton.language.extra.tlx")


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
    """One arrival at a memory barrier, and a wait for its first phase."""
    i = tl.arange(0, n)
    barriers = tlx.alloc_barriers(1, 1)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    tlx.local_store(view, tl.load(x + i))
    tlx.barrier_arrive(barriers[0], 1)
    tlx.barrier_wait(barriers[0], tl.constexpr(0))
    tl.store(y + i, tlx.local_load(view) + 1)


case = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=next_number,
    sizes=[{"n": 128}, {"n": 512}],
    variants={
        "named_barrier": kernel(named, grid=(1,), compiler="tlx", targets=since("sm_80")),
        "mbarrier": kernel(awaited, grid=(1,), compiler="tlx", targets=since("sm_90a")),
        "triton": kernel(in_triton, grid=(1,)),
    },
    family="shared memory",
    source="fbtriton 3.7.4, tlx.barrier; PTX ISA, barrier, mbarrier",
)
