"""Reciprocals and quotients in Triton code."""

import triton
import triton.language as tl


@triton.jit
def one_over(x):
    """`1 / x`, which compiles to div.full.f32."""
    return 1.0 / x


@triton.jit
def divide(a, b):
    """`a / b`, which compiles to div.full.f32."""
    return a / b


@triton.jit
def times_approximate_reciprocal(a, b):
    """The product with an approximate reciprocal, as Triton code around one instruction."""
    (multiplier,) = tl.inline_asm_elementwise(
        "rcp.approx.ftz.f32 $0, $1;", "=r,r", [b], dtype=[tl.float32], is_pure=True, pack=1
    )
    return a * multiplier
