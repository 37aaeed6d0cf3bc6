"""Asm on constants and scalars that Triton broadcasts."""

import triton
import triton.language as tl

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
