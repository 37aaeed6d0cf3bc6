"""Sums of float16 and bfloat16: two an instruction, one, as a fused product with one, by float32, and Triton."""

from functools import partial

import torch
import triton

from ptxdiff import Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import BF16, F16


@triton.jit
def in_triton(a, b):
    """The sum, rounded once."""
    return a + b


def sums(fmt, variants):
    """The case of one format."""
    return Case(
        inputs={"a": fmt, "b": fmt},
        outputs={"y": fmt},
        reference=partial(arithmetic.add, fmt=fmt),
        pytorch=torch.add,
        variants={**variants, "triton": plain(in_triton)},
        source="PTX ISA, half precision add and fma; IEEE 754 addition",
        family="packed arithmetic",
    )


def two(text, **policies):
    """Asm on two halves a register; `one` is 1.0 twice."""
    return asm(text, constraints="=r,r,r", pack=2, **policies)


f16 = sums(
    F16,
    {
        "add.f16x2": two("add.rn.f16x2 $0, $1, $2;"),
        "add.f16": asm("add.rn.f16 $0, $1, $2;", packs=(1,)),
        "fma.f16x2": two("{ .reg .b32 one; mov.b32 one, 0x3C003C00; fma.rn.f16x2 $0, $1, one, $2; }"),
    },
)

bf16 = sums(
    BF16,
    {
        "add.bf16x2": two("add.rn.bf16x2 $0, $1, $2;", targets=since("sm_90")),
        "fma.bf16x2": two(
            "{ .reg .b32 one; mov.b32 one, 0x3F803F80; fma.rn.bf16x2 $0, $1, one, $2; }", targets=since("sm_80")
        ),
        # A bfloat16 is the upper half of a float32, which has more than twice its bits, so rounding twice is harmless.
        "float32": two(
            """{
                .reg .f32 a, b, low, high;
                shl.b32 a, $1, 16;  shl.b32 b, $2, 16;  add.rn.f32 low, a, b;
                and.b32 a, $1, 0xFFFF0000;  and.b32 b, $2, 0xFFFF0000;  add.rn.f32 high, a, b;
                cvt.rn.bf16x2.f32 $0, high, low;
            }""",
            targets=since("sm_80"),
        ),
    },
)
