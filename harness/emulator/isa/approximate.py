"""Approximate float32 instructions, as a Hopper GPU computes them (ISA 9.7.3.8, 9.7.3.13 to 9.7.3.22).

Each definition follows the sequence that ptxas generates (read from the machine code of 12.9 and 13.4 for sm_90a): an
instruction of the special function unit (`ptxdiff.emulator.numeric.special_functions`), with multiplications before and
after it. It gives the bits of an H100 and an H200. For other generations, whose units differ, it is a model. NaN
results are 0x7fffffff. `rounded=` names the model that rounds to nearest.

For every argument a definition calls the unit once and selects the factors before and after it. So numba can vectorise
the loop; a branch would make it half as fast. An exact multiplication by a power of 2 is an addition to the exponent.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.approximate_rounded import (
    cos_rounded,
    div_approx_rounded,
    div_full_rounded,
    ex2_rounded,
    lg2_rounded,
    rcp_rounded,
    rsqrt_rounded,
    sin_rounded,
    sqrt_rounded,
    tanh_rounded,
)
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_round, f32_value, f64_bits, f64_value, scalar, to_float
from ptxdiff.emulator.numeric.softfloat import f32_flush
from ptxdiff.emulator.numeric.special_functions import (
    unit_cos,
    unit_ex2,
    unit_lg2,
    unit_rcp,
    unit_rsqrt,
    unit_sin,
    unit_sqrt,
    unit_tanh,
)

_INFINITY = 0x7F800000
_LEAST_NORMAL = 0x00800000
_TWO_TO_126 = 0x7E800000


@scalar
def _product(x: float, ftz: int) -> int:
    """FMUL: a float64 that holds a product exactly, rounded to nearest; NaN may have any payload.

    With .ftz a result is zero if, rounded to 24 bits with an unbounded exponent, it is below 2**-126.
    """
    least = 1.1754943157898258e-38  # 2**-126 - 2**-151, which rounds to 2**-126
    return f32_round(x) & 0x80000000 if ftz and abs(x) < least else f32_round(x)


@scalar
def _canonical(a: int) -> int:
    """A pattern; for a NaN the NaN that the unit gives."""
    return 0x7FFFFFFF if a & 0x7FFFFFFF > _INFINITY else a


@scalar
def _normal(a: int) -> int:
    """A subnormal number times 2**24; any other number unchanged."""
    size = a & 0x7FFFFFFF
    scaled = (f64_bits(to_float(size)) >> 29) - (1023 - 127 + 149 - 24 << 23)  # a pattern counts units of 2**-149
    return (a & 0x80000000) + scaled if 0 < size < _LEAST_NORMAL else a


@scalar
def _quarter(a: int) -> int:
    """A number above 2**126 in magnitude times 1/4; any other number unchanged."""
    return a - (2 << 23) if _TWO_TO_126 < a & 0x7FFFFFFF < _INFINITY else a


@instruction("rcp.approx{.ftz}.f32", "d, a", section="9.7.3.13", approximate=True, rounded=rcp_rounded)
def rcp_approx(a: int, ftz: int) -> int:
    """About 1 / a, within 1 ulp; infinity for zero.

    Without .ftz very large and subnormal arguments are scaled before and after.
    """
    if ftz:
        return unit_rcp(a)
    size = a & 0x7FFFFFFF
    scale = 16777216.0 if size < _LEAST_NORMAL else (0.25 if size > _TWO_TO_126 else 1.0)
    return _canonical(_product(f32_value(unit_rcp(_quarter(_normal(a)))) * scale, 0))


@scalar
def _quotient(a: int, b: int, scale: float, ftz: int) -> int:
    """a * scale, times 1 / b, for a `b` that was scaled.

    ptxas rounds the first product too. This changes the product only if the result is zero or infinite in any case.
    """
    return _canonical(_product(f32_value(f32_flush(a, ftz)) * scale * f32_value(unit_rcp(b)), ftz))


@instruction("div.full{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True, rounded=div_full_rounded)
def div_full(a: int, b: int, ftz: int) -> int:
    """About a / b over the full range of b, within 2 ulp: large and (without .ftz) subnormal divisors are scaled."""
    size = b & 0x7FFFFFFF
    scale = 0.25 if size > _TWO_TO_126 else (16777216.0 if size < _LEAST_NORMAL and not ftz else 1.0)
    return _quotient(a, _quarter(b if ftz else _normal(b)), scale, ftz)


@instruction("div.approx{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True, rounded=div_approx_rounded)
def div_approx(a: int, b: int, ftz: int) -> int:
    """About a times 1 / b, within 2 ulp; above 2**126 in magnitude, 1 / b counts as zero."""
    tiny = b & 0x7FFFFFFF < _LEAST_NORMAL and not ftz
    return _quotient(a, b if ftz else _normal(b), 16777216.0 if tiny else 1.0, ftz)


@instruction("sqrt.approx{.ftz}.f32", "d, a", section="9.7.3.15", approximate=True, rounded=sqrt_rounded)
def sqrt_approx(a: int, ftz: int) -> int:
    """About the square root; -0 for -0, NaN for negative arguments. Without .ftz subnormal arguments are scaled."""
    if ftz:
        return unit_sqrt(a)
    root = unit_sqrt(_normal(a))
    return root - (12 << 23) if 0 < a < _LEAST_NORMAL else root


@instruction("rsqrt.approx{.ftz}.f32", "d, a", section="9.7.3.16", approximate=True, rounded=rsqrt_rounded)
def rsqrt_approx(a: int, ftz: int) -> int:
    """About 1 / sqrt(a), within 2 ulp; an infinity of its sign for zero, NaN for negative arguments."""
    if ftz:
        return unit_rsqrt(a)
    root = unit_rsqrt(_normal(a))
    return root + (12 << 23) if 0 < a < _LEAST_NORMAL else root


@scalar
def _turns(a: int) -> int:
    """The angle in turns: FMUL.RZ by 1/(2 pi) of 24 bits. An angle below 2**-25 may become zero: it has no effect."""
    t = f32_value(a) * 0.15915493667125702
    if abs(t) < 1.1754943508222875e-38:
        return a & 0x80000000
    return f32_round(f64_value(f64_bits(t) >> 29 << 29))


@instruction("sin.approx{.ftz}.f32", "d, a", section="9.7.3.18", approximate=True, rounded=sin_rounded)
def sin_approx(a: int) -> int:
    """About the sine, within 2**-20.5 in [-2 pi, 2 pi]; .ftz makes no difference.

    The argument is reduced by one multiplication with a 24-bit 1/(2 pi), whose error grows with the argument, and
    truncated to units of 2**-25 turns.
    """
    return unit_sin(_turns(a))


@instruction("cos.approx{.ftz}.f32", "d, a", section="9.7.3.19", approximate=True, rounded=cos_rounded)
def cos_approx(a: int) -> int:
    """About the cosine, within 2**-20.4 in [-2 pi, 2 pi]; the argument as in `sin_approx`."""
    return unit_cos(_turns(a))


@instruction("lg2.approx{.ftz}.f32", "d, a", section="9.7.3.20", approximate=True, rounded=lg2_rounded)
def lg2_approx(a: int, ftz: int) -> int:
    """About log2; -infinity for zeros, NaN for negative arguments. Without .ftz subnormal arguments are scaled."""
    if ftz:
        return unit_lg2(a)
    logarithm = unit_lg2(_normal(a))
    shifted = f32_round(f32_value(logarithm) - 24.0)
    return shifted if 0 < a < _LEAST_NORMAL else logarithm


@instruction("ex2.approx{.ftz}.f32", "d, a", section="9.7.3.21", approximate=True, rounded=ex2_rounded)
def ex2_approx(a: int, ftz: int) -> int:
    """About 2**a, within 2 ulp. Without .ftz, below -126, it is the square of 2**(a / 2)."""
    # Compared as unsigned numbers: patterns of numbers below -126, including -infinity (halving it does no harm).
    low = 0xC2FC0000 < a <= 0xFF800000 and not ftz
    root = unit_ex2(a - (1 << 23) if low else a)
    value = f32_value(root)
    return f32_round(value * value) if low else root


@instruction("tanh.approx.f32", "d, a", section="9.7.3.22", requires=75, approximate=True, rounded=tanh_rounded)
def tanh_approx(a: int) -> int:
    """About the hyperbolic tangent, within a relative 2**-11; below 2**-8 the result is the argument."""
    return unit_tanh(a)
