"""e2m1, two in a byte, to float16, without and with a scale: cvt, shifts, a table by prmt, and Triton."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, only, plain
from ptxdiff.references import dequantise
from ptxdiff.references.formats import F16, F16X2, U8


@triton.jit
def half(n):
    """The value of one nibble: its significand shifted by its exponent, in halves with the nibble's sign."""
    size = (n & 7).to(tl.int32)
    doubled = tl.where(size < 2, size, (2 + (size & 1)) << tl.maximum((size >> 1) - 1, 0))
    # A product, because Triton 3.6 computes -x of 16-bit floats as 0 - x, which gives +0 for 0.
    return doubled.to(tl.float16) * tl.where(n >= 8, -0.5, 0.5).to(tl.float16)


@triton.jit
def both(low, high):
    """Two float16 in a word."""
    return low.to(tl.uint16, bitcast=True).to(tl.uint32) | (high.to(tl.uint16, bitcast=True).to(tl.uint32) << 16)


@triton.jit
def in_triton(q):
    """The low nibble first."""
    return both(half(q & 15), half(q >> 4))


@triton.jit
def scaled_in_triton(q, scale):
    """Products, rounded once."""
    return both(half(q & 15) * scale, half(q >> 4) * scale)


# Both nibbles at the top of their halves: sign, two exponent bits and one significand bit, moved to bits 15 and 11 to
# 9. The number is then too small by 2^14, which a product corrects; 0x7400 is 2^14.
SHIFTS = """
    shl.b32 u, $1, 12;  shl.b32 t, $1, 24;  lop3.b32 t, t, u, 0xFFFF, 0xD8;
    shr.u32 u, t, 3;    and.b32 u, u, 0x0E000E00;  lop3.b32 t, t, 0x80008000, u, 0xEA;
    mov.b32 u, 0x74007400;  mul.rn.f16x2 t, t, u;
"""

# The float16 of every e2m1 value has lower byte 0: prmt looks up the upper bytes, without sign, for four nibbles.
TABLE = """
    and.b32 u, $1, 0x77;     prmt.b32 t, 0x3E3C3800, 0x46444240, u;
    prmt.b32 t, t, 0, 0x1404;
    shl.b32 u, $1, 24;       and.b32 u, u, 0x80000000;  or.b32 t, t, u;
    shl.b32 u, $1, 12;       and.b32 u, u, 0x8000;      or.b32 t, t, u;
"""


def alone(text):
    """The values themselves."""
    return f"{{ .reg .b8 b; .reg .b32 t, u; {text} mov.b32 $0, t; }}"


def times_scale(text):
    """The product with the scale in $2, twice."""
    return (
        f"{{ .reg .b8 b; .reg .b16 s; .reg .b32 t, u; {text} mov.b32 {{s, _}}, $2; mov.b32 u, {{s, s}}; "
        "mul.rn.f16x2 $0, t, u; }"
    )


FP4 = only("sm_100a", "sm_101a", "sm_103a", "sm_107a", "sm_110a", "sm_120a", "sm_121a")


HARDWARE = "mov.b32 {b, _, _, _}, $1; cvt.rn.f16x2.e2m1x2 t, b;"
DECODED = {"cvt": (HARDWARE, FP4), "shifts": (SHIFTS, ALL), "prmt": (TABLE, ALL)}


def each(form, constraints):
    """A variant for each way to decode."""
    return {
        name: asm(form(text), constraints=constraints, pack=1, targets=targets, refused=ALL - targets)
        for name, (text, targets) in DECODED.items()
    }


shared = {"outputs": {"y": F16X2}, "family": "dequantisation"}

case = Case(
    **shared,
    inputs={"q": U8},
    reference=dequantise.e2m1,
    variants={**each(alone, "=r,r"), "triton": plain(in_triton)},
    source="OCP Microscaling Formats 1.0, 5.3.3; PTX ISA, cvt",
)

scaled = Case(
    **shared,
    inputs={"q": U8, "scale": F16},
    reference=dequantise.scaled,
    variants={**each(times_scale, "=r,r,r"), "triton": plain(scaled_in_triton)},
    source="OCP Microscaling Formats 1.0, 5.3.3; PTX ISA, mul.f16x2",
)
