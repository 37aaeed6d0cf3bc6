"""float32 to float16 and bfloat16: one and two per instruction, truncated or rounded, by integers, and Triton's
cast."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, F16, F32, Format

from ._device.narrow import narrowed


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, TYPE: tl.constexpr):
    """Overflow gives infinity, as in any IEEE 754 format; NaN is canonical."""
    infinity: tl.constexpr = ((1 << EXPONENT) - 1) << MANTISSA
    return narrowed(x, EXPONENT, MANTISSA, infinity, 0x7FFF).to(tl.uint16).to(TYPE, bitcast=True)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast."""
    return x.to(TYPE)


@triton.jit
def upper_half(x):
    """bfloat16 is the upper half of a float32: rounds toward zero.

    A NaN with only low payload bits becomes infinity.
    """
    return (x.to(tl.uint32, bitcast=True) >> 16).to(tl.uint16).to(tl.bfloat16, bitcast=True)


AMPERE = since("sm_80")


def case_of(target: Format, kind: str, type_: tl.dtype, **more):
    """The variants of one target, named `kind` in PTX."""

    def to(rounding="rn", **modifiers):
        return lambda x: conversion.convert(x, source=F32, target=target, rounding=rounding, **modifiers)

    # Of two sources, the first goes to the upper half.
    return Case(
        inputs={"x": F32},
        outputs={"y": target},
        reference=to(),
        variants={
            "one": asm(f"cvt.rn.{kind}.f32 $0, $1;", targets=since("sm_75") if target is F16 else AMPERE),
            "two": asm(f"cvt.rn.{kind}x2.f32 $0, $2, $1;", targets=AMPERE),
            "two-relu": asm(f"cvt.rn.relu.{kind}x2.f32 $0, $2, $1;", reference=to(relu=True), targets=AMPERE),
            "two-rz": asm(f"cvt.rz.{kind}x2.f32 $0, $2, $1;", reference=to("rz"), targets=AMPERE),
            "integers": plain(
                in_integers,
                constants={"EXPONENT": target.exponent_bits, "MANTISSA": target.mantissa_bits, "TYPE": type_},
            ),
            "triton": plain(cast, constants={"TYPE": type_}),
            **more,
        },
        family="conversions",
        source="PTX ISA, cvt: .f16, .f16x2, .bf16, .bf16x2 from .f32; IEEE 754 5.4.2",
    )


def cut(x):
    """The upper 16 bits of each code."""
    return x >> 16


f16 = case_of(F16, "f16", tl.float16)
bf16 = case_of(BF16, "bf16", tl.bfloat16, **{"upper-half": plain(upper_half, reference=cut, nan="payload")})
