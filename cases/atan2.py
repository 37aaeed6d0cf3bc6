"""The angle of a point: a polynomial on [0, 1] and reflections, and libdevice's atan2."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, absolute, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32


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


case = Case(
    inputs={"y": F32, "x": F32},
    outputs={"angle": F32},
    reference=faithful.atan2,
    pytorch=torch.atan2,
    variants={
        "polynomial": plain(
            polynomial,
            match=absolute(
                2.0**-21, source="Abramowitz, Stegun 4.4.49: 2e-8; the quotient, the steps and pi - angle add 2^-21.4"
            ),
        ),
        "libdevice": plain(
            in_libdevice,
            match=ulp(
                4,
                underflow=True,
                source="CUDA C++ Programming Guide, mathematical functions: atan2f 3 ulp; the reference half",
            ),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="Abramowitz, Stegun, Handbook of Mathematical Functions, 4.4.49; IEEE 754 9.2.1",
)
