"""8 and 6 bits to float16: two per instruction, by fields in one register, and Triton's cast."""

import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E2M3, E3M2, E4M3, E5M2, F16, Format

from ._device.narrow_to_f16 import FIELDS, UPPER_BYTES, cast, in_integers


def without_nan(x):
    """The values of the e4m3 fields, in which the code of NaN is 480 with its sign."""
    right = conversion.convert(x, source=E4M3, target=F16)
    return right.where((x & 0x7F) != 0x7F, 0x5F80 | (x & 0x80) << 8)


def case_of(fmt: Format, first: str, special: int, **more):
    """`special`: the first magnitude that is no number."""
    constants = {"EXPONENT": fmt.exponent_bits, "MANTISSA": fmt.mantissa_bits, "FIRST_SPECIAL": special}
    return Case(
        inputs={"x": fmt},
        outputs={"y": F16},
        reference=lambda x: conversion.convert(x, source=fmt, target=F16),
        variants={
            "cvt": asm(f"cvt.rn.f16x2.{fmt.name}x2 $0, $1;", targets=since(first), refused=ALL - since(first)),
            "integers": plain(in_integers, constants=constants),
            **more,
        },
        family="conversions",
        source="PTX ISA, cvt: .f16x2 from narrow formats; OCP 8-bit Floating Point 1.0 and Microscaling Formats 1.0",
    )


SINCE_90 = {"targets": since("sm_90"), "note": "before sm_90 Triton converts by other code, which is not judged here"}
PACKED = {"reference": without_nan, "note": "480 stands where the format has NaN: for weights known to be numbers"}
e4m3 = case_of(
    E4M3,
    "sm_89",
    0x7F,
    fields=asm(FIELDS, pack=4, **PACKED),
    triton=plain(cast, constants={"TYPE": tl.float8e4nv}, **SINCE_90),
)
e5m2 = case_of(
    E5M2, "sm_89", 0x7C, prmt=asm(UPPER_BYTES, pack=4, nan="any"), triton=plain(cast, constants={"TYPE": tl.float8e5})
)
e2m3 = case_of(E2M3, "sm_100a", 0x20)
e3m2 = case_of(E3M2, "sm_100a", 0x20)
