"""Number formats: the meaning of a code (bit pattern), and how codes are stored. Nothing in this module rounds.

A format is one constant of this module, `F32`, `BF16`, `E2M1X2`, ...; `FORMATS` finds it by name. The
functions take the format first and then codes: Python integers, numpy arrays or torch tensors, element by
element, and return the same kind. Arrays of codes are int64, one code per element, zero-extended; a 64-bit
code is its two's-complement reinterpretation. `as_codes` converts any storage array to that form. Only operators that
numpy and torch share are used, so the same definition works on a CPU array, on a CUDA tensor and in `torch.compile`.
Neither library is imported before a function needs it.

Sources: IEEE 754-2019 (binary16, 32, 64), the OCP 8-bit and Microscaling specifications 1.0 (e4m3, e5m2,
e3m2, e2m3, e2m1, e8m0), PTX ISA 9 "Alternate Floating-Point Data Formats" (bf16, tf32, ue8m0, packed forms).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from ptxdiff.references.codes import (
    Class,
    Codes,
    as_codes,
    classify,
    distance,
    encode,
    finite_codes,
    floor_log2,
    fraction,
    from_ordinal,
    is_finite,
    is_infinity,
    is_nan,
    is_subnormal,
    is_zero,
    magnitude,
    ordinal,
    pack,
    render,
    sign,
    to_float32,
    to_float64,
    unpack,
    value,
)
from ptxdiff.references.description import Format, Scalar, Shaped

__all__ = [
    "BF16",
    "BF16X2",
    "BF16X4",
    "E2M1",
    "E2M1X2",
    "E2M1X4",
    "E2M3",
    "E2M3X2",
    "E2M3X4",
    "E3M2",
    "E3M2X2",
    "E3M2X4",
    "E4M3",
    "E4M3X2",
    "E4M3X4",
    "E5M2",
    "E5M2X2",
    "E5M2X4",
    "F16",
    "F16X2",
    "F16X4",
    "F32",
    "F32X2",
    "F64",
    "FORMATS",
    "I8",
    "I16",
    "I32",
    "I64",
    "TF32",
    "U8",
    "U16",
    "U32",
    "U64",
    "UE8M0",
    "UE8M0X2",
    "Class",
    "Codes",
    "Format",
    "Scalar",
    "Shaped",
    "as_codes",
    "classify",
    "distance",
    "encode",
    "finite_codes",
    "floor_log2",
    "fraction",
    "from_ordinal",
    "is_finite",
    "is_infinity",
    "is_nan",
    "is_subnormal",
    "is_zero",
    "magnitude",
    "ordinal",
    "pack",
    "render",
    "sign",
    "to_float32",
    "to_float64",
    "unpack",
    "value",
]

F64 = Format(
    name="float64", code_bits=64, kind="float", exponent_bits=11, mantissa_bits=52, bias=1023, infinity=True,
    # The ISA names no canonical NaN for f64; this is the one that NVIDIA GPUs generate for an invalid
    # operation.
    nan="ieee", canonical_nan=0xFFF8000000000000, storage="uint64", element_type="fp64", view="numpy.float64",
)  # fmt: skip
F32 = Format(
    name="float32", code_bits=32, kind="float", exponent_bits=8, mantissa_bits=23, bias=127, infinity=True,
    nan="ieee", canonical_nan=0x7FFFFFFF, storage="uint32", element_type="fp32", view="numpy.float32",
)  # fmt: skip
F16 = Format(
    name="float16", code_bits=16, kind="float", exponent_bits=5, mantissa_bits=10, bias=15, infinity=True,
    nan="ieee", canonical_nan=0x7FFF, storage="uint16", element_type="fp16", view="numpy.float16",
)  # fmt: skip
BF16 = Format(
    name="bfloat16", code_bits=16, kind="float", exponent_bits=8, mantissa_bits=7, bias=127, infinity=True,
    nan="ieee", canonical_nan=0x7FFF, storage="uint16", element_type="bf16", view="ml_dtypes.bfloat16",
)  # fmt: skip
TF32 = Format(
    name="tf32", code_bits=32, kind="float", exponent_bits=8, mantissa_bits=10, bias=127, infinity=True,
    nan="ieee", canonical_nan=0x7FFFE000, ignored_bits=13, storage="uint32", element_type="u32",
)  # fmt: skip
E4M3 = Format(
    name="e4m3", code_bits=8, kind="float", exponent_bits=4, mantissa_bits=3, bias=7, nan="fn",
    canonical_nan=0x7F, storage="uint8", element_type="u8", view="ml_dtypes.float8_e4m3fn",
)  # fmt: skip
E5M2 = Format(
    name="e5m2", code_bits=8, kind="float", exponent_bits=5, mantissa_bits=2, bias=15, infinity=True,
    nan="ieee", canonical_nan=0x7F, storage="uint8", element_type="u8", view="ml_dtypes.float8_e5m2",
)  # fmt: skip
E2M3 = Format(
    name="e2m3", code_bits=6, kind="float", exponent_bits=2, mantissa_bits=3, bias=1, storage="uint8",
    element_type="u8", view="ml_dtypes.float6_e2m3fn",
)  # fmt: skip
E3M2 = Format(
    name="e3m2", code_bits=6, kind="float", exponent_bits=3, mantissa_bits=2, bias=3, storage="uint8",
    element_type="u8", view="ml_dtypes.float6_e3m2fn",
)  # fmt: skip
E2M1 = Format(
    name="e2m1", code_bits=4, kind="float", exponent_bits=2, mantissa_bits=1, bias=1, storage="uint8",
    element_type="u8", view="ml_dtypes.float4_e2m1fn",
)  # fmt: skip
UE8M0 = Format(
    name="ue8m0", code_bits=8, kind="float", exponent_bits=8, bias=127, signed=False, nan="fn",
    canonical_nan=0xFF, storage="uint8", element_type="u8", view="ml_dtypes.float8_e8m0fnu",
)  # fmt: skip


def _packed(single: Format, codes_per_unit: int, storage: str) -> Format:
    name, element = f"{single.name}x{codes_per_unit}", storage.replace("int", "")
    return replace(
        single,
        name=name,
        codes_per_unit=codes_per_unit,
        packs=single,
        storage=storage,
        element_type=element,
        view=None,
    )


def _integer(bits: int, kind: Literal["signed", "unsigned"]) -> Format:
    prefix, storage = ("i", f"int{bits}") if kind == "signed" else ("u", f"uint{bits}")
    return Format(name=storage, code_bits=bits, kind=kind, storage=storage, element_type=f"{prefix}{bits}")


# PTX's names for packed registers; the code of the first element is in the low bits (ISA: the converted value
# of the last source operand goes to the lower part). e2m3 and e3m2 fill the low six bits of a byte, the upper
# two are zero.
E2M1X2, E2M1X4 = _packed(E2M1, 2, "uint8"), _packed(E2M1, 4, "uint16")
E4M3X2, E4M3X4 = _packed(E4M3, 2, "uint16"), _packed(E4M3, 4, "uint32")
E5M2X2, E5M2X4 = _packed(E5M2, 2, "uint16"), _packed(E5M2, 4, "uint32")
E2M3X2, E2M3X4 = _packed(E2M3, 2, "uint16"), _packed(E2M3, 4, "uint32")
E3M2X2, E3M2X4 = _packed(E3M2, 2, "uint16"), _packed(E3M2, 4, "uint32")
UE8M0X2 = _packed(UE8M0, 2, "uint16")
F16X2, F16X4 = _packed(F16, 2, "uint32"), _packed(F16, 4, "uint64")
BF16X2, BF16X4 = _packed(BF16, 2, "uint32"), _packed(BF16, 4, "uint64")
F32X2 = _packed(F32, 2, "uint64")

I8, I16, I32, I64 = (_integer(bits, "signed") for bits in (8, 16, 32, 64))
U8, U16, U32, U64 = (_integer(bits, "unsigned") for bits in (8, 16, 32, 64))

FORMATS: dict[str, Format] = {
    constant.name: constant for constant in tuple(globals().values()) if isinstance(constant, Format)
}
