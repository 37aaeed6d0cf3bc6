"""float16 and bfloat16 to 8 and 6 bits: two per instruction, through float32, and integer arithmetic."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, only, plain, since
from ptxdiff.references import conversion
from ptxdiff.references.formats import BF16, E2M3, E3M2, E4M3, E5M2, F16, Format

from ._device.narrow import narrowed

NEW_PTXAS = tuple(int(n) for n in triton.__version__.split(".")[:2]) >= (3, 9)  # CUDA 12.9 has only .f16x2 to 8 bits


@triton.jit
def in_integers(x, EXPONENT: tl.constexpr, MANTISSA: tl.constexpr, LARGEST: tl.constexpr, NAN: tl.constexpr):
    """Codes are bytes; the conversion to float32 is exact, so there is only one rounding."""
    return narrowed(x.to(tl.float32), EXPONENT, MANTISSA, LARGEST, NAN).to(tl.uint8)


def over_f32(source: Format, target: Format) -> str:
    """Two conversions to float32 and one of the two results: the asm of a pack of two."""
    kind = {F16: "f16", BF16: "bf16"}[source]
    return f"""
        {{
            .reg .b16 low, high, codes, none;
            .reg .f32 x, y;
            mov.b32 {{low, high}}, $1;
            cvt.f32.{kind} x, low;
            cvt.f32.{kind} y, high;
            cvt.rn.satfinite.{target.name}x2.f32 codes, y, x;
            mov.b16 none, 0;
            mov.b32 $0, {{codes, none}};
        }}
    """


def case_of(source: Format, target: Format):
    """float16 to 8 bits came with sm_89; bfloat16, and 6 bits, with Blackwell."""
    wide = since("sm_89") if target.code_bits == 8 else since("sm_100a")
    direct = wide if source is F16 else since("sm_100a")
    kind = {F16: "f16x2", BF16: "bf16x2"}[source]
    nan = target.max_finite if target.canonical_nan is None else target.canonical_nan
    fields = {"EXPONENT": target.exponent_bits, "MANTISSA": target.mantissa_bits}
    pair = asm(f"cvt.rn.satfinite.{target.name}x2.{kind} $0, $1;", targets=direct, refused=ALL - direct)
    return Case(
        inputs={"x": source},
        outputs={"y": target},
        reference=lambda x: conversion.convert(x, source=source, target=target, satfinite=True),
        variants={
            **({"cvt": pair} if NEW_PTXAS or (source is F16 and target.code_bits == 8) else {}),
            "over-f32": asm(over_f32(source, target), pack=2, targets=wide - only("sm_89") if source is BF16 else wide),
            "integers": plain(in_integers, constants={**fields, "LARGEST": target.max_finite, "NAN": nan}),
        },
        family="conversions",
        source="PTX ISA, cvt: .f16x2 and .bf16x2 sources; OCP 8-bit Floating Point 1.0 and Microscaling Formats 1.0",
    )


cases = {f"{s.name}_{t.name}": case_of(s, t) for s in (F16, BF16) for t in (E4M3, E5M2, E2M3, E3M2)}
