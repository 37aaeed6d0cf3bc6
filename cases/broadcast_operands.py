"""Inline asm on constants and scalars, broadcast to its other operands, where the compiler may fold them; and
Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, F32

FMA: tl.constexpr = tl.constexpr("fma.rn.f32 $0, $1, $2, $3;")

ADD_F16X2: tl.constexpr = tl.constexpr("add.rn.f16x2 $0, $1, $2;")


@triton.jit
def constant_operands(x):
    """Both constants are scalars in Triton's code, broadcast for the call."""
    return tl.inline_asm_elementwise(FMA, "=f,f,f,f", [x, 1.5, 0.25], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def full_operands(x):
    """A tensor filled with a constant, and a scalar."""
    scale = tl.full(x.shape, 1.5, tl.float32)
    return tl.inline_asm_elementwise(FMA, "=f,f,f,f", [x, scale, 0.25], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def in_triton(x):
    """Rounded once."""
    return tl.fma(x, tl.full(x.shape, 1.5, tl.float32), tl.full(x.shape, 0.25, tl.float32))


@triton.jit
def packed_constant(x):
    """A float16 constant fills both halves of its register."""
    one = tl.full(x.shape, 1.5, tl.float16)
    return tl.inline_asm_elementwise(ADD_F16X2, "=r,r,r", [x, one], dtype=tl.float16, is_pure=True, pack=2)


@triton.jit
def half_in_triton(x):
    """The sum."""
    return x + 1.5


THREE_HALVES, QUARTER = 0x3FC00000, 0x3E800000


def line(x):
    """1.5 x + 0.25, rounded once."""
    return arithmetic.fma(x, torch.full_like(x, THREE_HALVES), torch.full_like(x, QUARTER))


def plus_three_halves(x):
    """The float16 sum."""
    return arithmetic.add(x, torch.full_like(x, 0x3E00), fmt=F16)


shared = {"source": "Triton, tl.inline_asm_elementwise: arguments broadcast", "family": "compiler hazards"}

case = Case(
    **shared,
    inputs={"x": F32},
    outputs={"y": F32},
    reference=line,
    variants={
        "immediates": asm("fma.rn.f32 $0, $1, 0f3FC00000, 0f3E800000;"),
        "scalars": plain(constant_operands),
        "full": plain(full_operands),
        "triton": plain(in_triton),
    },
)
packed = Case(
    **shared,
    inputs={"x": F16},
    outputs={"y": F16},
    reference=plus_three_halves,
    variants={"f16x2": plain(packed_constant), "triton": plain(half_in_triton)},
)
