"""TLX's _to_mxfp8_block: float32 to e4m3 or e5m2 with a ue8m0 scale for each 32, and its rule in plain Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, kernel, module_of_build, since
from ptxdiff.references.formats import E4M3, E5M2, F32, UE8M0, Format, fraction

from ._device.narrow import narrowed
from ._host.expected import quantized
from ._host.formats import fields


@triton.jit
def in_triton(
    x, q, s, M: tl.constexpr, N: tl.constexpr, RATIO: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr,
    LARGEST: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """The same rule in integers; NaN, infinity and overflow of the scale follow TLX, not the recipe."""
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    values = tl.reshape(tl.load(x + i * N + j), (M, N // 32, 32))
    size = values.to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    numbers = tl.max(tl.where(size > 0x7F800000, 0, size), 2)
    ratio = (numbers.to(tl.float32, bitcast=True) * RATIO).to(tl.uint32, bitcast=True)
    up = tl.where(ratio < 0x800000, ratio > 0x400000, (ratio & 0x7FFFFF) != 0)
    scale = tl.minimum((ratio >> 23) + up.to(tl.uint32), 254)
    scale = tl.where(tl.min(size, 2) > 0x7F800000, 255, scale)  # a block with only NaN
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    codes = narrowed(tl.reshape(values * inverse[:, :, None], (M, N)), EXPONENT, MANTISSA, LARGEST, NAN)
    tl.store(q + i * N + j, codes.to(tl.uint8))
    tl.store(s + i * (N // 32) + k, scale.to(tl.uint8))


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
