"""TLX's _to_mxfp8_block: float32 to e4m3 or e5m2 with a ue8m0 scale for each 32, and its rule in plain Triton."""

import torch
import triton
import triton.language as tl

from harness import Case, kernel, module_of_build, since
from references import arithmetic, conversion
from references.formats import E4M3, E5M2, F32, UE8M0, Format, encode, fraction

from ._device.narrow import narrowed

tlx = module_of_build("triton.language.extra.tlx")


@triton.jit
def by_tlx(x, q, s, M: tl.constexpr, N: tl.constexpr, E4: tl.constexpr):
    """One tile."""
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    codes, scales = tlx._to_mxfp8_block(tl.load(x + i * N + j), 32, tl.float8e4nv if E4 else tl.float8e5)
    tl.store(q + i * N + j, codes.to(tl.uint8, bitcast=True))
    tl.store(s + i * (N // 32) + k, scales)


@triton.jit
def in_triton(
    x, q, s, M: tl.constexpr, N: tl.constexpr, RATIO: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr,
    LARGEST: tl.constexpr, NAN: tl.constexpr,
):  # fmt: skip
    """The same rule in integers: what NaN, infinity and overflow of the scale become is TLX's, not the recipe's."""
    i, j, k = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :], tl.arange(0, N // 32)[None, :]
    values = tl.reshape(tl.load(x + i * N + j), (M, N // 32, 32))
    size = values.to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    numbers = tl.max(tl.where(size > 0x7F800000, 0, size), 2)
    ratio = (numbers.to(tl.float32, bitcast=True) * RATIO).to(tl.uint32, bitcast=True)
    up = tl.where(ratio < 0x800000, ratio > 0x400000, (ratio & 0x7FFFFF) != 0)
    scale = tl.minimum((ratio >> 23) + up.to(tl.uint32), 254)
    scale = tl.where(tl.min(size, 2) > 0x7F800000, 255, scale)  # nothing but NaN
    inverse = ((254 - scale) << 23).to(tl.float32, bitcast=True)
    codes = narrowed(tl.reshape(values * inverse[:, :, None], (M, N)), EXPONENT, MANTISSA, LARGEST, NAN)
    tl.store(q + i * N + j, codes.to(tl.uint8))
    tl.store(s + i * (N // 32) + k, scale.to(tl.uint8))


def quantized(target: Format):
    """The scale is that of the largest number of a block, rounded up; NaN does not count beside a number.

    The factor's exponent field is 254 less the scale's: 0 for scale 254, and minus infinity for a block of NaN alone.
    """

    def rule(x):
        blocks = x.reshape(*x.shape[:-1], -1, 32)
        size = blocks & 0x7FFFFFFF
        numbers = torch.where(size > 0x7F800000, -1, size).amax(-1)
        ratio = torch.full_like(
            numbers, encode(F32, float(torch.tensor(float(1 / fraction(target, target.max_finite)))))
        )
        product = arithmetic.mul(numbers.clamp(min=0), ratio)
        scale = conversion.convert(product, source=F32, target=UE8M0, rounding="rp", satfinite=True)
        scale = torch.where(numbers < 0, 255, scale)
        factor = (((254 - scale) & 0x1FF) << 23).unsqueeze(-1)
        codes = conversion.convert(arithmetic.mul(blocks, factor.expand_as(blocks)), source=F32, target=target,
                                   satfinite=True)  # fmt: skip
        return codes.reshape(x.shape), scale

    return rule


def case_of(target: Format):
    """One tile of 32 x 128, and a narrow one."""
    nan = target.max_finite if target.canonical_nan is None else target.canonical_nan
    meta = {
        "RATIO": float(torch.tensor(float(1 / fraction(target, target.max_finite)))), "EXPONENT": target.exponent_bits,
        "MANTISSA": target.mantissa_bits, "LARGEST": target.max_finite, "NAN": nan,
    }  # fmt: skip
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
