"""Sixteen 2-bit numbers minus 2, to float16: one input, eight outputs of two; lop3, cvt, and Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16X2, U32


@triton.jit
def element(q, place: tl.constexpr):
    """One number's bits in float16."""
    n = ((q >> (2 * place)) & 3).to(tl.int32) - 2
    return n.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.uint32)


@triton.jit
def pair(q, k: tl.constexpr):
    """Elements k and k + 8."""
    return element(q, k) | (element(q, k + 8) << 16)


@triton.jit
def in_triton(q):
    """Eight outputs."""
    return pair(q, 0), pair(q, 1), pair(q, 2), pair(q, 3), pair(q, 4), pair(q, 5), pair(q, 6), pair(q, 7)


def pairs(q):
    """Eight outputs: the elements k and k + 8 of each word."""
    return dequantise.interleaved(dequantise.integers(q, bits=2, width=32, zero=2), groups=8)


# 1024 + n with n in the low bits of the significand, minus 1026; 0x6400 is 1024 in float16, 0x6402 is 1026.
SHIFTED = "\n".join(
    f"shr.u32 t, $8, {2 * k}; lop3.b32 ${k}, t, 0x00030003, 0x64006400, 0xEA; sub.f16x2 ${k}, ${k}, zero;"
    for k in range(8)
)
# Higher up it is 1024 + 4n, 1024 + 16n and 1024 + 64n: a product with 1/4, 1/16 or 1/64 and one sum, rounded once.
FACTORS = ((0, 0x3C00, 0xE402), (2, 0x3400, 0xDC08), (4, 0x2C00, 0xD420), (6, 0x2400, 0xCC80))
FUSED = "\n".join(
    f"mov.b32 factor, {0x10001 * factor:#x}; mov.b32 zero, {0x10001 * zero:#x}; "
    f"lop3.b32 ${at + k}, {word}, {0x30003 << 2 * k:#x}, 0x64006400, 0xEA; "
    f"fma.rn.f16x2 ${at + k}, ${at + k}, factor, zero;"
    for at, word in ((0, "$8"), (4, "t"))
    for k, (_, factor, zero) in enumerate(FACTORS)
)

case = Case(
    inputs={"q": U32},
    outputs={f"y{k}": F16X2 for k in range(8)},
    reference=pairs,
    variants={
        "lop3-shifts": asm(f"{{ .reg .b32 t, zero; mov.b32 zero, 0x64026402;\n{SHIFTED}\n}}"),
        "lop3-fma": asm(f"{{ .reg .b32 t, factor, zero; shr.u32 t, $8, 8;\n{FUSED}\n}}"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, lop3 and fma.f16x2",
    family="dequantisation",
)
