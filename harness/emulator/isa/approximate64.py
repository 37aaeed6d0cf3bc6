"""Approximate float64 instructions, as a Hopper GPU computes them (ISA 9.7.3.14, 9.7.3.16, 9.7.3.17).

The unit's float64 functions read and write only upper halves: they use 20 fraction bits of the argument, and truncate
the float32 function's result to 20 fraction bits (an H100 and an H200). `rounded=` names the model that rounds to
nearest.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.approximate_rounded import rcp64_rounded, rsqrt64_rounded, rsqrt64_upper_rounded
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.binary64 import F64_NAN, fma64
from ptxdiff.emulator.numeric.bits import SIGN64, f64_bits, f64_value, scalar, shl64
from ptxdiff.emulator.numeric.special_functions import reciprocal_root_significand, reciprocal_significand

_INFINITY = 0x7FF00000
_NAN = 0x7FFFFFFF
_SIGN = 0x80000000


@instruction("rcp.approx.ftz.f64", "d, a", section="9.7.3.14", approximate=True, rounded=rcp64_rounded)
def rcp_approx_f64(a: int) -> int:
    """About 1 / a to 20 bits: upper half of `a` to upper half of the result, whose lower half is zero."""
    upper = a >> 32 & 0xFFFFFFFF
    exponent = upper >> 20 & 0x7FF
    result = (2044 - exponent << 20) + (reciprocal_significand((upper & 0xFFFFF) << 3) >> 3)
    result = 0 if result < 0x00100000 or exponent == 2047 else result
    result = _INFINITY if exponent == 0 else result
    return shl64(_NAN if upper & _NAN > _INFINITY else (upper & _SIGN) | result, 32)


@instruction("rsqrt.approx.ftz.f64", "d, a", section="9.7.3.17", approximate=True, rounded=rsqrt64_upper_rounded)
def rsqrt_approx_ftz_f64(a: int) -> int:
    """About 1 / sqrt(a) to 20 bits, upper half to upper half; an infinity of its sign for zero, NaN for negative
    arguments."""
    upper = a >> 32 & 0xFFFFFFFF
    exponent = upper >> 20 & 0x7FF
    root = reciprocal_root_significand(~exponent & 1, (upper & 0xFFFFF) << 3) >> 3
    result = (1021 - (exponent - 1023 >> 1) << 20) + root
    result = 0 if upper == _INFINITY else result
    result = _NAN if upper > _INFINITY else result
    return shl64((upper & _SIGN) | _INFINITY if exponent == 0 else result, 32)


@scalar
def _corrected_root(a: int) -> int:
    """1 / sqrt of a positive normal float64: the unit's y, then y + y * e * (1/2 + 3/8 * e) with e = 1 - a * y**2."""
    y = rsqrt_approx_ftz_f64(a)
    # y has 21 bits: its square is exact.
    square = f64_value(y) * f64_value(y)
    e = fma64(a, f64_bits(square) ^ SIGN64, 0x3FF0000000000000, 0)
    factor = fma64(e, 0x3FD8000000000000, 0x3FE0000000000000, 0)
    return fma64(factor, f64_bits(f64_value(y) * f64_value(e)), y, 0)


@instruction("rsqrt.approx.f64", "d, a", section="9.7.3.16", approximate=True, rounded=rsqrt64_rounded)
def rsqrt_approx_f64(a: int) -> int:
    """About 1 / sqrt(a), by the sequence that ptxas inserts: subnormal arguments are scaled by 2**54.

    An infinity of its sign for zero; a NaN argument is returned quiet.
    """
    magnitude = a & 0x7FFFFFFFFFFFFFFF
    if magnitude > 0x7FF0000000000000:
        return a | 0x0008000000000000
    if magnitude == 0:
        return a | 0x7FF0000000000000
    if a < 0:
        return F64_NAN
    if a == 0x7FF0000000000000:
        return 0
    if a < 0x0010000000000000:
        root = _corrected_root(f64_bits(f64_value(a) * 18014398509481984.0))
        return f64_bits(f64_value(root) * 134217728.0)
    return _corrected_root(a)
