"""float32 and bfloat16 to ue8m0, the powers of two that scale MX blocks, rounded up or down; and back to bfloat16."""

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, F32, UE8M0, Format

from ._device.cvt_ue8m0 import in_integers, shifted

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
