"""Approximate float32 instructions, as models (ISA 9.7.3).

Special values, flushing and range follow the hardware; elsewhere the model gives the float32 nearest to the true
value, which the hardware misses by the ulps that the ISA bounds.
"""

from __future__ import annotations

import math

from harness.ptx.bits import divide, f32_value, scalar
from harness.ptx.softfloat import f32_flush, f32_from_f64

from .registry import instruction


@instruction("rcp.approx{.ftz}.f32", "d, a", section="9.7.3.12", approximate=True)
def rcp_approx(a: int, ftz: int) -> int:
    """About 1 / a, within 1 ulp; infinity for zero."""
    return f32_flush(f32_from_f64(divide(1.0, f32_value(f32_flush(a, ftz))), 0), ftz)


@instruction("div.full{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True)
def div_full(a: int, b: int, ftz: int) -> int:
    """About a / b over the full range of b, within 2 ulp."""
    return f32_flush(f32_from_f64(divide(f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz))), 0), ftz)


@instruction("div.approx{.ftz}.f32", "d, a, b", section="9.7.3.8", approximate=True)
def div_approx(a: int, b: int, ftz: int) -> int:
    """About a times 1 / b, within 2 ulp; above 2**126 in magnitude, 1 / b counts as zero."""
    magnitude = b & 0x7FFFFFFF
    if 0x7E800000 < magnitude < 0x7F800000:
        b = (b & 0x80000000) | 0x7F800000
        if (a & 0x7FFFFFFF) == 0x7F800000:
            return 0x7FFFFFFF
    return div_full(a, b, ftz)


@scalar
def exp2(x: float) -> float:
    """2**x, for x where float32's exponent ends and beyond."""
    if x != x:
        return x
    return math.pow(2.0, min(max(x, -1000.0), 1000.0))


@instruction("ex2.approx{.ftz}.f32", "d, a", section="9.7.3.21", approximate=True)
def ex2_approx(a: int, ftz: int) -> int:
    """About 2**a, within 2 ulp."""
    return f32_flush(f32_from_f64(exp2(f32_value(f32_flush(a, ftz))), 0), ftz)
