"""e2m1 and the half formats, both directions: two codes in a byte, by instruction and by fields."""

import triton

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, BF16X2, E2M1, E2M1X2, F16, F16X2, Format

from ._device.e2m1_half import by_fields, in_integers

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
