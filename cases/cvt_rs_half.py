"""Stochastic rounding of two float32 to float16 and bfloat16: cvt.rs, and the same sum in integers for any GPU."""

import torch
import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, only, plain
from ptxdiff.references import stochastic
from ptxdiff.references.formats import BF16, BF16X2, F16, F16X2, F32, U32, Format

from ._device.narrow import stochastically_narrowed


@triton.jit
def in_integers(low, high, rbits, PLACES: tl.constexpr, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr):
    """The lower element takes the low random bits, the upper one those from bit 16 on."""
    mask: tl.constexpr = (1 << PLACES) - 1
    infinity: tl.constexpr = ((1 << EXPONENT) - 1) << MANTISSA
    first = stochastically_narrowed(low, rbits & mask, PLACES, EXPONENT, MANTISSA, infinity, 0x7FFF)
    second = stochastically_narrowed(high, (rbits >> 16) & mask, PLACES, EXPONENT, MANTISSA, infinity, 0x7FFF)
    return first | (second << 16)


RS = only("sm_100a", "sm_103a", "sm_107a")


def to(target: Format, **modifiers):
    """Each element with its own random bits; the element in the lower half first."""

    def rounded(low, high, rbits):
        shares = stochastic.share(rbits, target=target).unbind(-1)
        pairs = zip((low, high), shares, strict=True)
        codes = [stochastic.convert(x, random, target=target, **modifiers) for x, random in pairs]
        return torch.stack(codes, -1).flatten(-2)

    return rounded


def case_of(pair: Format, target: Format, kind: str):
    """`a`, the first source, goes to the upper half and takes the upper random bits."""
    constants = {
        "PLACES": stochastic.random_bits(target),
        "EXPONENT": target.exponent_bits,
        "MANTISSA": target.mantissa_bits,
    }
    return Case(
        inputs={"low": F32, "high": F32, "rbits": U32},
        outputs={"y": pair},
        reference=to(target),
        variants={
            "cvt.rs": asm(f"cvt.rs.{kind}.f32 $0, $2, $1, $3;", packs=(1,)),
            "cvt.rs.relu": asm(f"cvt.rs.relu.{kind}.f32 $0, $2, $1, $3;", packs=(1,), reference=to(target, relu=True)),
            "cvt.rs.satfinite": asm(
                f"cvt.rs.satfinite.{kind}.f32 $0, $2, $1, $3;", packs=(1,), reference=to(target, satfinite=True)
            ),
            "integers": plain(in_integers, constants=constants, targets=ALL, refused=()),
        },
        # Different numbers and random bits in the two places, each number between two neighbours, so that a swap shows.
        hard_cases=[(0x3F801234, 0x40489ABC, 0x1234FEDC), (0x3F800001, 0xC0000FFF, 0xFFFF0000)],
        targets=RS,
        refused=ALL - RS,
        family="stochastic rounding",
        source="PTX ISA, cvt: .rs with rbits",
    )


f16, bf16 = case_of(F16X2, F16, "f16x2"), case_of(BF16X2, BF16, "bf16x2")
