"""TLX's vote_ballot_sync: a mask of the lanes whose number is positive, and a sum of bits in plain Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import I32, U32

from ._device.tlx_warps import summed

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def ballot(x, y, n: tl.constexpr):
    """Every lane gets the mask of its warp."""
    i = tl.arange(0, n)
    tl.store(y + i, tlx.vote_ballot_sync(0xFFFFFFFF, tl.load(x + i) > 0))


def masks(x):
    """Lane k's bit is bit k."""
    rows = ((x > 0) & (x < 1 << 31)).reshape(-1, 32).to(torch.int64)
    return (rows << torch.arange(32, device=x.device)).sum(1).repeat_interleave(32)


case = Case(
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
