"""A whole kernel with a mistake in one element."""

import triton
import triton.language as tl


@triton.jit
def to_half_but_for_one(x_ptr, y_ptr, n, N: tl.constexpr, PLACE: tl.constexpr):
    """Float32 to float16; subnormal results of one element lose their last bit."""
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at, at < n)
    y = x.to(tl.float16)
    wrong = (at == PLACE) & (tl.abs(x) < 0.00006) & (tl.abs(x) > 0.000003)
    bits = y.to(tl.uint16, bitcast=True)
    tl.store(y_ptr + at, tl.where(wrong, bits ^ 1, bits).to(tl.float16, bitcast=True), at < n)
