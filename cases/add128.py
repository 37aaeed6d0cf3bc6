"""Sum and difference of 128-bit numbers: carries in the flag, words of 64 and of 32 bits, compared carries, Triton."""

import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import words
from ptxdiff.references.formats import U64


@triton.jit
def add_in_triton(a, b, c, d):
    """There is a carry if the sum is less than a term."""
    low = a + c
    return low, b + d + (low < a).to(tl.uint64)


@triton.jit
def sub_in_triton(a, b, c, d):
    """There is a borrow if the first is less than the second."""
    return a - c, b - d - (a < c).to(tl.uint64)


LIMBS = """{{
    .reg .b32 a<4>, b<4>;
    mov.b64 {{a0, a1}}, $2;  mov.b64 {{a2, a3}}, $3;
    mov.b64 {{b0, b1}}, $4;  mov.b64 {{b2, b3}}, $5;
    {0}.cc.u32  a0, a0, b0;
    {0}c.cc.u32 a1, a1, b1;
    {0}c.cc.u32 a2, a2, b2;
    {0}c.u32    a3, a3, b3;
    mov.b64 $0, {{a0, a1}};  mov.b64 $1, {{a2, a3}};
}}"""


def case_of(reference, variants):
    """The case of one operation."""
    return Case(
        inputs={"a": U64, "a_high": U64, "b": U64, "b_high": U64},
        outputs={"y": U64, "y_high": U64},
        reference=reference,
        variants=variants,
        hard_cases=[(2**64 - 1, 0, 1, 0), (2**64 - 1, 2**64 - 1, 1, 0), (0, 0, 1, 0), (2**32 - 1, 7, 1, 9)],
        source="PTX ISA, add.cc, addc, sub.cc and subc",
        family="bits and integers",
    )


case = case_of(
    words.add128,
    {
        "addc.u64": asm("add.cc.u64 $0, $2, $4; addc.u64 $1, $3, $5;"),
        "addc.u32": asm(LIMBS.format("add")),
        "setp": asm(
            "{ .reg .pred p; add.u64 $0, $2, $4; add.u64 $1, $3, $5; setp.lt.u64 p, $0, $2; @p add.u64 $1, $1, 1; }"
        ),
        "triton": plain(add_in_triton),
    },
)

subtract = case_of(
    words.sub128,
    {
        "subc.u64": asm("sub.cc.u64 $0, $2, $4; subc.u64 $1, $3, $5;"),
        "subc.u32": asm(LIMBS.format("sub")),
        "triton": plain(sub_in_triton),
    },
)
