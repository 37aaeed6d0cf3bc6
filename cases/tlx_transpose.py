"""TLX's local_trans: a transposed view of a buffer in shared memory, and stores to transposed addresses."""

import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import F32

from ._device.tlx_shared_memory import by_address

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def by_view(x, y, M: tl.constexpr, N: tl.constexpr):
    """A transposed view of the buffer that was stored."""
    i, j = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    view = tlx.local_view(tlx.local_alloc((M, N), tl.float32, 1), 0)
    tlx.local_store(view, tl.load(x + i * N + j))
    k, m = tl.arange(0, N)[:, None], tl.arange(0, M)[None, :]
    tl.store(y + k * M + m, tlx.local_load(tlx.local_trans(view)))


def transposed(x):
    """Rows become columns."""
    return x.transpose(-1, -2)


case = Case(
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
