"""The upper half of a product: mul.hi, mul.wide, half words, and Triton; unsigned and signed, 32 and 64 bits."""

from functools import partial

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import integers
from ptxdiff.references.formats import I32, U32, U64


@triton.jit
def high_in_triton(a, b):
    """Triton's function, for unsigned integers."""
    return tl.umulhi(a, b)


@triton.jit
def wide_in_triton(a, b):
    """A product of twice the width."""
    return ((a.to(tl.int64) * b.to(tl.int64)) >> 32).to(tl.int32)


def upper(fmt, variants):
    """The case of one format."""
    return Case(
        inputs={"a": fmt, "b": fmt},
        outputs={"y": fmt},
        reference=partial(integers.mul, fmt=fmt, half="hi"),
        variants=variants,
        source="PTX ISA, mul: .hi and .wide",
        family="bits and integers",
    )


WIDE = "{{ .reg .b64 t; mul.wide.{0} t, $1, $2; mov.b64 {{_, $0}}, t; }}"

u32 = upper(
    U32,
    {
        "mul.hi": asm("mul.hi.u32 $0, $1, $2;", packs=(1,)),
        "mul.wide": asm(WIDE.format("u32")),
        "triton": plain(high_in_triton),
    },
)
s32 = upper(
    I32,
    {
        "mul.hi": asm("mul.hi.s32 $0, $1, $2;", packs=(1,)),
        "mul.wide": asm(WIDE.format("s32")),
        # A negative factor read as unsigned adds 2^32 times the other factor, which is subtracted.
        "corrected": asm(
            "{ .reg .b32 t, u; mul.hi.u32 $0, $1, $2; shr.s32 t, $1, 31; and.b32 t, t, $2; "
            "shr.s32 u, $2, 31; and.b32 u, u, $1; sub.u32 $0, $0, t; sub.u32 $0, $0, u; }"
        ),
        "triton": plain(wide_in_triton),
    },
)
u64 = upper(
    U64,
    {
        "mul.hi": asm("mul.hi.u64 $0, $1, $2;", packs=(1,)),
        "triton": plain(high_in_triton),
    },
)
