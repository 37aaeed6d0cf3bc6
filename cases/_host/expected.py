"""Expected results of single cases, written from the specification that the case names."""

import torch

from ptxdiff.references import arithmetic, conversion, stochastic
from ptxdiff.references.formats import F32, UE8M0, Format, encode, fraction


def next_number(x):
    """x + 1, in 32 bits."""
    return (x + 1) & 0xFFFFFFFF


def quantized(target: Format):
    """The scale is that of the largest number of a block, rounded up; NaN is ignored if there is a number.

    The factor's exponent field is 254 minus the scale's: 0 for scale 254, and minus infinity for a block with only NaN.
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


def neighbour(target: Format, carried: int):
    """The result if rounding never carries, or carries whenever bits are discarded; random bits give one of the two."""

    def rounded(x, rbits):
        return stochastic.convert(x, rbits * 0 + carried * ((1 << stochastic.random_bits(target)) - 1), target=target,
                                  satfinite=True)  # fmt: skip

    return rounded
