"""Approximate float64 instructions, as models (ISA 9.7.3.14, 9.7.3.16, 9.7.3.17)."""

from __future__ import annotations

import math

from harness.ptx.isa.registry import instruction
from harness.ptx.numeric.binary64 import F64_NAN
from harness.ptx.numeric.bits import SIGN64, divide, f64_value, scalar, shl64
from harness.ptx.numeric.elementary import rsqrt64
from harness.ptx.numeric.softfloat import narrow

_UPPER_NAN = 0x7FFFFFFF


@scalar
def _upper(a: int) -> float:
    """The value of a pattern's upper half, the lower one zero, subnormals as zeros of their sign."""
    kept = a >> 32 << 32
    return f64_value(kept & SIGN64 if kept & 0x7FF0000000000000 == 0 else kept)


@scalar
def _of_upper(x: float) -> int:
    """The pattern whose upper half is nearest to x, with subnormals flushed, the lower half zero."""
    upper = _UPPER_NAN if x != x else narrow(x, 11, 20, 0)
    return shl64(upper & 0x80000000 if upper & 0x7FF00000 == 0 else upper, 32)


@instruction("rcp.approx.ftz.f64", "d, a", section="9.7.3.14", approximate=True)
def rcp_approx_f64(a: int) -> int:
    """About 1 / a to 20 bits: upper half of `a` to upper half of the result, whose lower half is zero."""
    return _of_upper(divide(1.0, _upper(a)))


@instruction("rsqrt.approx.ftz.f64", "d, a", section="9.7.3.17", approximate=True)
def rsqrt_approx_ftz_f64(a: int) -> int:
    """About 1 / sqrt(a) to 20 bits, upper half to upper half; an infinity of its sign for zero, NaN below."""
    x = _upper(a)
    if x < 0.0 or x != x:
        return shl64(_UPPER_NAN, 32)
    return _of_upper(divide(1.0, x if x == 0.0 else math.sqrt(x)))


@instruction("rsqrt.approx.f64", "d, a", section="9.7.3.16", approximate=True)
def rsqrt_approx_f64(a: int) -> int:
    """About 1 / sqrt(a); special values as in the sequence that ptxas inserts. NaNs come back quiet."""
    magnitude = a & 0x7FFFFFFFFFFFFFFF
    if magnitude > 0x7FF0000000000000:
        return a | 0x0008000000000000
    if magnitude == 0:
        return a | 0x7FF0000000000000
    if a < 0:
        return F64_NAN
    return 0 if a == 0x7FF0000000000000 else rsqrt64(a)
