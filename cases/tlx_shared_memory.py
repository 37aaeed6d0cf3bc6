"""TLX's shared memory: local_alloc, local_store, and local_load of one of two buffers; and plain Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32

from ._device.tlx_shared_memory import in_triton
from ._host.expected import next_number

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def staged(x, y, n: tl.constexpr):
    """Through a buffer of shared memory."""
    i = tl.arange(0, n)
    view = tlx.local_view(tlx.local_alloc((n,), tl.int32, 2), 1)
    tlx.local_store(view, tl.load(x + i))
    tl.store(y + i, tlx.local_load(view) + 1)


increments = Case(
    inputs={"x": I32["n"]},
    outputs={"y": I32["n"]},
    reference=next_number,
    sizes=[{"n": 128}, {"n": 512}],
    variants={
        "local_store": kernel(staged, grid=(1,), compiler="tlx", targets=since("sm_80")),
        "triton": kernel(in_triton, grid=(1,)),
    },
    family="shared memory",
    source="fbtriton 3.7.4, tlx.mem_ops",
)
