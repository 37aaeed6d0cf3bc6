"""TLX's async_load: an asynchronous copy to shared memory with a wait for its group, whole and masked."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32

from ._device.tlx_shared_memory import in_triton
from ._host.expected import next_number

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def copied(x, y, n: tl.constexpr):
    """An asynchronous copy, with a wait for its group."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    token = tlx.async_load_commit_group([tlx.async_load(x + i, view)])
    tlx.async_load_wait_group(0, [token])
    tl.store(y + i, tlx.local_load(view) + 1)


@triton.jit
def masked(x, y, n: tl.constexpr):
    """The upper half of the copy is masked off, and loaded with an ordinary load."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 1), 0)
    token = tlx.async_load_commit_group([tlx.async_load(x + i, view, mask=i < n // 2, other=0)])
    tlx.async_load_wait_group(0, [token])
    tl.store(y + i, tl.where(i < n // 2, tlx.local_load(view), tl.load(x + i)) + 1)


def through(function):
    """TLX's kernel."""
    return kernel(function, grid=(1,), compiler="tlx", targets=since("sm_80"))


case = Case(
    family="shared memory",
    source="fbtriton 3.7.4, tlx.mem_ops; PTX ISA, cp.async",
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=next_number,
    sizes=[{"n": 128}, {"n": 512}],
    variants={
        "async_load": through(copied),
        "async_load-masked": through(masked),
        "triton": kernel(in_triton, grid=(1,)),
    },
)
