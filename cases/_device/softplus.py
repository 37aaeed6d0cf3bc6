"""ln(1 + e^x) in plain Triton and with libdevice's log1p."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def in_triton(x):
    """max(x, 0) + ln(1 + e^-|x|): nothing overflows, and no threshold is needed."""
    kept = tl.where(x != x, x, tl.maximum(x, 0.0))
    return kept + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def with_log1p(x):
    """The same with log1p, which keeps the digits of a small e^x."""
    kept = tl.where(x != x, x, tl.maximum(x, 0.0))
    return kept + libdevice.log1p(tl.exp(-tl.abs(x)))
