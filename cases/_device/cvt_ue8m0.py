"""Powers of two, from and to floats, in plain Triton."""

import triton
import triton.language as tl


@triton.jit
def in_integers(x, UP: tl.constexpr):
    """The exponent field, plus one if UP and a lower bit is set. 2^-127, code 0, is a subnormal float32."""
    size = x.to(tl.float32).to(tl.uint32, bitcast=True) & 0x7FFFFFFF
    code = size >> 23
    if UP:
        above = tl.where(size < 0x800000, size > 0x400000, (size & 0x7FFFFF) != 0)
        code = tl.minimum(code + above.to(tl.uint32), 254)
    code = tl.where(size == 0x7F800000, 254, code)
    return tl.where(size > 0x7F800000, 255, code).to(tl.uint8)


@triton.jit
def shifted(x):
    """The code is bfloat16's exponent field; 2^-127 is subnormal there, and 0xff is NaN."""
    bits = tl.where(x == 0, 0x40, tl.where(x == 255, 0x7FFF, x.to(tl.uint16) << 7))
    return bits.to(tl.uint16).to(tl.bfloat16, bitcast=True)
