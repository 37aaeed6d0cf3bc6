"""float32 and bfloat16 to ue8m0, the powers of two that scale MX blocks, rounded up or down; and back to bfloat16."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, F32, UE8M0, Format


@triton.jit
def in_integers(x, UP: tl.constexpr):
    """The exponent field, plus one if UP and a lower bit is set. 2^-127, code 0, is a subnormal float32."""
    size = x.to(tl.float32).to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    code = size >> 23
    if UP:
        above = tl.where(size < 0x800000, size > 0x400000, (size & 0x7FFFFF) != 0)
        code = tl.minimum(code + above.to(tl.uint32), 254)
    code = tl.where(size == 0x7F800000, 254, code)
    return tl.where(size > 0x7F800000, 255, code).to(tl.uint8)


@triton.jit
def shifted(x):
    """The code is bfloat16's exponent field; 2^-127 is subnormal there, and 0xff is NaN."""
    bits = tl.where(x == 0, 0x40, tl.where(x == 255, 0x7FFF, x.to(tl.uint16) << 7))
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)


BLACKWELL = since("sm_100a")


def to(source: Format, rounding, satfinite=True):
    """The power of two above or below |x|; NaN is 0xff, infinity 0xff unless it saturates to 0xfe."""
    return lambda x: conversion.convert(x, source=source, target=UE8M0, rounding=rounding, satfinite=satfinite)


def case_of(source: Format):
    """Both roundings; the first source goes to the upper byte."""
    kind, operands = ("f32", "$0, $2, $1") if source is F32 else ("bf16x2", "$0, $1")
    return Case(
        inputs={"x": source},
        outputs={"s": UE8M0},
        reference=to(source, "rp"),
        variants={
            "cvt.rp": asm(f"cvt.rp.satfinite.ue8m0x2.{kind} {operands};"),
            "cvt.rp-not-saturated": asm(f"cvt.rp.ue8m0x2.{kind} {operands};", reference=to(source, "rp", False)),
            "cvt.rz": asm(f"cvt.rz.satfinite.ue8m0x2.{kind} {operands};", reference=to(source, "rz")),
            "integers-up": plain(in_integers, constants={"UP": True}, targets=ALL, refused=()),
            "integers-down": plain(
                in_integers, constants={"UP": False}, reference=to(source, "rz"), targets=ALL, refused=()
            ),
        },
        targets=BLACKWELL,
        refused=ALL - BLACKWELL,
        family="conversions",
        source="PTX ISA, cvt: .ue8m0x2; OCP Microscaling Formats 1.0, 5.4.1",
    )


f32, bf16 = case_of(F32), case_of(BF16)

back = Case(
    inputs={"s": UE8M0},
    outputs={"y": BF16},
    reference=lambda s: conversion.convert(s, source=UE8M0, target=BF16),
    variants={
        "cvt": asm("cvt.rn.bf16x2.ue8m0x2 $0, $1;", targets=BLACKWELL, refused=ALL - BLACKWELL),
        "shift": plain(shifted),
    },
    family="conversions",
    source="PTX ISA, cvt: .bf16x2.ue8m0x2; OCP Microscaling Formats 1.0, 5.4.1",
)
