"""8 and 6 bits to bfloat16: two per instruction, through float16 and float32, and by fields."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, E2M3, E3M2, E4M3, E5M2, Format

from ._device.narrow import widened

NEW_PTXAS = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # CUDA 12.9 converts only to float16


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, FIRST_SPECIAL: tl.constexpr):
    """Through float32; at most four significand bits are exact in bfloat16."""
    return widened(x, EXPONENT, MANTISSA, FIRST_SPECIAL).to(tl.bfloat16)


def over_f16(source: Format) -> str:
    """Two codes to float16, to float32 and together to bfloat16: every step is exact."""
    return f"""
        {{
            .reg .b16 codes, none, low, high;
            .reg .b32 halves;
            .reg .f32 x, y;
            mov.b32 {{codes, none}}, $1;
            cvt.rn.f16x2.{source.name}x2 halves, codes;
            mov.b32 {{low, high}}, halves;
            cvt.f32.f16 x, low;
            cvt.f32.f16 y, high;
            cvt.rn.bf16x2.f32 $0, y, x;
        }}
    """


def case_of(source: Format, first: str, special: int):
    """`first`: the first target with the conversion to float16; `special`: the first magnitude that is no number."""
    blackwell = since("sm_100a")
    direct = asm(f"cvt.rn.bf16x2.{source.name}x2 $0, $1;", targets=blackwell, refused=ALL - blackwell)
    fields = {"EXPONENT": source.exponent_bits, "MANTISSA": source.mantissa_bits, "FIRST_SPECIAL": special}
    return Case(
        inputs={"x": source},
        outputs={"y": BF16},
        reference=lambda x: conversion.convert(x, source=source, target=BF16),
        variants={
            **({"cvt": direct} if NEW_PTXAS else {}),
            "over-f16": asm(over_f16(source), pack=2, targets=since(first), refused=ALL - since(first)),
            "integers": plain(in_integers, constants=fields),
        },
        family="conversions",
        source="PTX ISA, cvt: .bf16x2 from narrow formats; OCP 8-bit Floating Point 1.0, Microscaling Formats 1.0",
    )


e4m3, e5m2 = case_of(E4M3, "sm_89", 0x7F), case_of(E5M2, "sm_89", 0x7C)
e2m3, e3m2 = case_of(E2M3, "sm_100a", 0x20), case_of(E3M2, "sm_100a", 0x20)
