"""Quotients in Triton code."""

import triton
import triton.language as tl


@triton.jit
def rounded(a, b):
    """tl.div_rn, whatever fast-math options say."""
    return tl.div_rn(a, b)


@triton.jit
def fast(a, b):
    """A slash: div.full.f32."""
    return a / b
