"""Directed rounding in Triton code, which has no rounding modes."""

import triton
import triton.language as tl


@triton.jit
def rounded(asm: tl.constexpr, a, b):
    """One instruction of inline asm, because Triton has no rounding modes."""
    return tl.inline_asm_elementwise(asm, "=r,r,r", [a, b], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def sum_in_triton(a, b):
    """Two blocks, one for each bound."""
    return rounded("add.rm.f32 $0, $1, $2;", a, b), rounded("add.rp.f32 $0, $1, $2;", a, b)


@triton.jit
def product_in_triton(a, b):
    """Two blocks, one for each bound."""
    return rounded("mul.rm.f32 $0, $1, $2;", a, b), rounded("mul.rp.f32 $0, $1, $2;", a, b)
