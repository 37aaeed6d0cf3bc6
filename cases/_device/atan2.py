"""The angle of a point, by a polynomial and by libdevice."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def polynomial(y, x):
    """Abramowitz and Stegun 4.4.49 for the quotient of the smaller and the larger magnitude; then reflections."""
    a, b = tl.abs(x), tl.abs(y)
    small, large = tl.minimum(a, b), tl.maximum(a, b)
    r = tl.div_rn(small, tl.where(large == 0.0, 1.0, large))
    r = tl.where(small == float("inf"), 1.0, r)  # both are infinite
    s = r * r
    p = tl.fma(s, 0.0028662257, -0.0161657367)
    p = tl.fma(p, s, 0.0429096138)
    p = tl.fma(p, s, -0.0752896400)
    p = tl.fma(p, s, 0.1065626393)
    p = tl.fma(p, s, -0.1420889944)
    p = tl.fma(p, s, 0.1999355085)
    p = tl.fma(p, s, -0.3333314528)
    angle = tl.fma(p * s, r, r)
    angle = tl.where(b > a, 1.5707963267948966 - angle, angle)
    angle = tl.where(x.to(tl.uint32, bitcast=True) >> 31 == 1, 3.141592653589793 - angle, angle)
    angle = tl.where((x != x) | (y != y), float("nan"), angle)
    signed = angle.to(tl.uint32, bitcast=True) | (y.to(tl.uint32, bitcast=True) & 0x80000000)
    return signed.to(tl.float32, bitcast=True)


@triton.jit
def in_libdevice(y, x):
    """CUDA's atan2f."""
    return libdevice.atan2(y, x)
