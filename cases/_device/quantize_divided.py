"""Quantisation after a quotient in Triton code."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def to_int8(x, scale):
    """A slash, which is div.full.f32; to nearest even; saturated; NaN becomes zero."""
    q = libdevice.rint(x / scale)
    return tl.where(q == q, tl.clamp(q, -128.0, 127.0), 0.0).to(tl.int8)


@triton.jit
def to_e4m3(x, scale):
    """A slash, and a cast, which saturates; codes are bytes."""
    return (x / scale).to(tl.float8e4nv).to(tl.uint8, bitcast=True)
