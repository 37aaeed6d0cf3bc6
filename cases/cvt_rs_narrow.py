"""Stochastic rounding of four float32 to 8, 6 and 4 bits: cvt.rs, and the same sum in integers for any GPU."""

import torch
import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, only, plain
from ptxdiff.references import stochastic
from ptxdiff.references.formats import (
    E2M1,
    E2M1X4,
    E2M3,
    E2M3X4,
    E3M2,
    E3M2X4,
    E4M3,
    E4M3X4,
    E5M2,
    E5M2X4,
    F32,
    U32,
    Format,
)

from ._device.narrow import stochastically_narrowed
from ._host.formats import fields


@triton.jit
def reversed16(x):
    """The low 16 bits in reverse order."""
    return tl.inline_asm_elementwise("brev.b32 $0, $1;", "=r,r", [x], dtype=tl.uint32, is_pure=True, pack=1) >> 16


@triton.jit
def in_integers(
    p, q, r, s, rbits, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr
):
    """Elements in pairs: one reads its 16 random bits upwards, the other downwards."""
    if EXPONENT + MANTISSA == 3:  # e2m1 takes bytes 0 and 2, and 1 and 3
        rbits = (rbits & 0xFF0000FF) | ((rbits & 0xFF00) << 8) | ((rbits >> 8) & 0xFF00)
    low, high = rbits & 0xFFFF, rbits >> 16
    code = stochastically_narrowed(p, low, 16, EXPONENT, MANTISSA, LARGEST, NAN)
    width: tl.constexpr = 4 if EXPONENT + MANTISSA == 3 else 8
    code |= stochastically_narrowed(q, reversed16(low), 16, EXPONENT, MANTISSA, LARGEST, NAN) << width
    code |= stochastically_narrowed(r, high, 16, EXPONENT, MANTISSA, LARGEST, NAN) << (2 * width)
    code |= stochastically_narrowed(s, reversed16(high), 16, EXPONENT, MANTISSA, LARGEST, NAN) << (3 * width)
    return code.to(tl.uint16) if width == 4 else code


RS = only("sm_100a", "sm_103a", "sm_107a")


def to(target: Format, relu: bool = False):
    """Each element with its share of the random bits, the element in the low bits first."""

    def rounded(p, q, r, s, rbits):
        shares = stochastic.share(rbits, target=target)
        x = torch.stack([p, q, r, s], -1)
        return stochastic.convert(x, shares, target=target, satfinite=True, relu=relu).flatten(-2)

    return rounded


def case_of(four: Format, target: Format):
    """`a`, the first source of the vector, goes to the top of the result: here `s`, the last input."""
    letter = "h" if target is E2M1 else "r"

    def convert(modifiers: str, **policies):
        text = f"cvt.rs{modifiers}.satfinite.{four.name}.f32 $0, {{$4, $3, $2, $1}}, $5;"
        return asm(text, constraints=f"={letter},r,r,r,r,r", pack=1, **policies)

    return Case(
        inputs={"p": F32, "q": F32, "r": F32, "s": F32, "rbits": U32},
        outputs={"y": four},
        reference=to(target),
        variants={
            "cvt.rs": convert(""),
            "cvt.rs.relu": convert(".relu", reference=to(target, relu=True)),
            "integers": plain(in_integers, constants=fields(target), targets=ALL, refused=()),
        },
        # 1.1, 2.3, -3.7 and 0.6 with different bytes of random bits, so that wrong places or wrong random bits show.
        hard_cases=[(0x3F8CCCCD, 0x40133333, 0xC06CCCCD, 0x3F19999A, rbits) for rbits in (0x12FE80C3, 0x8001FF00)],
        targets=RS,
        refused=ALL - RS,
        family="stochastic rounding",
        source="PTX ISA, cvt: .rs with rbits",
    )


cases = {
    fmt.name: case_of(four, fmt)
    for four, fmt in ((E4M3X4, E4M3), (E5M2X4, E5M2), (E2M3X4, E2M3), (E3M2X4, E3M2), (E2M1X4, E2M1))
}
