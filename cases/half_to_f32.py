"""float16 and bfloat16 to float32: the conversion, shifts and byte permutations, and Triton's cast."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, F16, F32

from ._device.narrow import widened


@triton.jit
def cast(x):
    """Triton's cast."""
    return x.to(tl.float32)


@triton.jit
def fields(x):
    """float16's fields in float32's places, and one exact product."""
    return widened(x.to(tl.uint16, bitcast=True), 5, 10, 0x7C00)


f16 = Case(
    inputs={"x": F16},
    outputs={"y": F32},
    reference=lambda x: conversion.convert(x, source=F16, target=F32),
    variants={"cvt": asm("cvt.f32.f16 $0, $1;"), "fields": plain(fields), "triton": plain(cast)},
    family="conversions",
    source="PTX ISA, cvt: .f32.f16; IEEE 754 5.4.2",
)

# bfloat16 is the upper half of a float32, and sign and payload of a NaN stay. The first of two lies in the lower half.
bf16 = Case(
    inputs={"x": BF16},
    outputs={"y": F32},
    reference=lambda x: x << 16,
    nan="payload",
    variants={
        "cvt": asm("cvt.f32.bf16 $0, $1;", targets=since("sm_90")),
        "shift-and-mask": asm("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;", constraints="=&r,=r,r", pack=2),
        "prmt": asm("prmt.b32 $0, $2, 0, 0x1044; prmt.b32 $1, $2, 0, 0x3244;", constraints="=&r,=r,r", pack=2),
        "mov": asm(
            "{ .reg .b16 l, h, z; mov.b16 z, 0; mov.b32 {l, h}, $2; mov.b32 $0, {z, l}; mov.b32 $1, {z, h}; }", pack=2
        ),
        "triton": plain(cast, nan="any", note="before sm_90 and after, Triton may give another NaN"),
    },
    family="conversions",
    source="PTX ISA, alternate floating-point data formats: .bf16; cvt, prmt",
)
