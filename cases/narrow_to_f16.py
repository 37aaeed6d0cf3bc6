"""8 and 6 bits to float16: two per instruction, by fields in one register, and Triton's cast."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import E2M3, E3M2, E4M3, E5M2, F16, Format

from ._device.narrow import widened


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, FIRST_SPECIAL: tl.constexpr):
    """Through float32; the conversion to float16 is exact."""
    return widened(x, EXPONENT, MANTISSA, FIRST_SPECIAL).to(tl.float16)


@triton.jit
def cast(x, TYPE: tl.constexpr):
    """Triton's cast of a byte that is bitcast to a float."""
    return x.to(TYPE, bitcast=True).to(tl.float16)


# float16 and e5m2 have the same exponent: the byte is the upper half. Four bytes go to two registers.
UPPER_BYTES = """
    {
        prmt.b32 $0, $2, 0, 0x1404;
        prmt.b32 $1, $2, 0, 0x3424;
    }
"""

# Sign and magnitude of e4m3 move to float16's places; 2^8 corrects the bias. 0x7f, which is NaN, becomes 480.
FIELDS = """
    {
        .reg .b32 lower, upper, sign, size, scale;
        mov.b32 scale, 0x5C005C00;  // 2^8, twice
        prmt.b32 lower, $2, 0, 0x1404;
        prmt.b32 upper, $2, 0, 0x3424;
        and.b32 sign, lower, 0x80008000;
        and.b32 size, lower, 0x7F007F00;
        shr.b32 size, size, 1;
        or.b32 lower, size, sign;
        and.b32 sign, upper, 0x80008000;
        and.b32 size, upper, 0x7F007F00;
        shr.b32 size, size, 1;
        or.b32 upper, size, sign;
        mul.rn.f16x2 $0, lower, scale;
        mul.rn.f16x2 $1, upper, scale;
    }
"""


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
