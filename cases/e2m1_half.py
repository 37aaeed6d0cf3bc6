"""e2m1 and the half formats, both directions: two codes in a byte, by instruction and by fields."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, BF16X2, E2M1, E2M1X2, F16, F16X2, Format

from ._device.narrow import narrowed


@triton.jit
def half_of(x, IS_BF16: tl.constexpr):
    """The upper and the lower half of a 32-bit register as floats."""
    bits = x.to(tl.uint16)
    return bits.to(tl.bfloat16 if IS_BF16 else tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def in_integers(x, IS_BF16: tl.constexpr):
    """Both codes by rounding the float32 of each half."""
    low = narrowed(half_of(x & 0xFFFF, IS_BF16), 2, 1, 7, 7)
    return (low | (narrowed(half_of(x >> 16, IS_BF16), 2, 1, 7, 7) << 4)).to(tl.uint8)


@triton.jit
def by_fields(x, IS_BF16: tl.constexpr):
    """Move codes to the half's fields, two in a register; a product with a power of two corrects the bias."""
    codes = (x & 15).to(tl.uint32) | ((x >> 4).to(tl.uint32) << 16)
    place: tl.constexpr = 6 if IS_BF16 else 9
    fields = ((codes & 0x00070007) << place) | ((codes & 0x00080008) << 12)
    factor: tl.constexpr = 0x7E807E80 if IS_BF16 else 0x74007400  # 2^126 or 2^14, twice
    product: tl.constexpr = "mul.rn.bf16x2 $0, $1, $2;" if IS_BF16 else "mul.rn.f16x2 $0, $1, $2;"
    return tl.inline_asm_elementwise(product, "=r,r,r", [fields, factor], dtype=tl.uint32, is_pure=True, pack=1)


BLACKWELL = since("sm_100a")
NEW_PTXAS = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # CUDA 12.9 takes only float32 sources
PTX = {F16: "f16x2", BF16: "bf16x2"}
POLICIES = {"family": "conversions", "source": "PTX ISA, cvt: .e2m1x2; OCP Microscaling Formats 1.0, 5.3.3"}


def from_half(pair: Format, half: Format):
    """Two halves to a byte."""
    direct = {"cvt": asm(f"cvt.rn.satfinite.e2m1x2.{PTX[half]} $0, $1;", targets=BLACKWELL, refused=ALL - BLACKWELL)}
    return Case(
        inputs={"x": pair},
        outputs={"y": E2M1X2},
        reference=lambda x: conversion.convert(x, source=half, target=E2M1, satfinite=True),
        variants={
            **(direct if NEW_PTXAS else {}),
            "integers": plain(in_integers, constants={"IS_BF16": half is BF16}),
        },
        **POLICIES,
    )


def to_half(pair: Format, half: Format):
    """A byte to two halves. bfloat16 multiplies since sm_90."""
    direct = {"cvt": asm(f"cvt.rn.{PTX[half]}.e2m1x2 $0, $1;", targets=BLACKWELL, refused=ALL - BLACKWELL)}
    return Case(
        inputs={"x": E2M1X2},
        outputs={"y": pair},
        reference=lambda x: conversion.convert(x, source=E2M1, target=half),
        variants={
            **(direct if NEW_PTXAS or half is F16 else {}),
            "fields": plain(by_fields, constants={"IS_BF16": half is BF16}),
        },
        targets=since("sm_90") if half is BF16 else ALL,
        **POLICIES,
    )


from_f16, from_bf16 = from_half(F16X2, F16), from_half(BF16X2, BF16)
to_f16, to_bf16 = to_half(F16X2, F16), to_half(BF16X2, BF16)
