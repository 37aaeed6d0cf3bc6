"""TLX's _to_mxfp8_block: float32 to e4m3 or e5m2 with a ue8m0 scale for each 32, and its rule in plain Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import E4M3, E5M2, F32, UE8M0, Format, fraction

from ._device.tlx_mxfp8 import in_triton
from ._host.expected import quantized
from ._host.formats import fields

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def by_tlx(x, q, s, M: tl.constexpr, N: tl.constexpr, E4: tl.constexpr):
    """One tile."""
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    codes, scales = tlx._to_mxfp8_block(tl.load(x + i * N + j), 32, tl.float8e4nv if E4 else tl.float8e5)
    tl.store(q + i * N + j, codes.to(tl.uint8, bitcast=True))
    tl.store(s + i * (N // 32) + k, scales)


def case_of(target: Format):
    """One tile of 32 x 128, and a narrow one."""
    meta = {"RATIO": float(torch.tensor(float(1 / fraction(target, target.max_finite)))), **fields(target)}
    return Case(
        inputs={"x": F32["M", "N"]},
        outputs={"q": target["M", "N"], "s": UE8M0["M", "N/32"]},
        reference=quantized(target),
        sizes=[{"M": 32, "N": 128}, {"M": 16, "N": 32}],
        variants={
            "tlx": kernel(by_tlx, grid=(1,), meta={"E4": target is E4M3}, compiler="tlx", targets=since("sm_100a")),
            "triton": kernel(in_triton, grid=(1,), meta=meta),
        },
        family="block scaling",
        source="OCP Microscaling Formats 1.0, 6.3, with the scale rounded up; fbtriton 3.7.4, mxfp8_utils",
    )  # fmt: skip


e4m3, e5m2 = case_of(E4M3), case_of(E5M2)
