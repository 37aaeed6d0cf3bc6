"""Approximate float16 and bfloat16 instructions, as models (ISA 9.7.4.9, 9.7.4.10).

The model gives the nearest value of the format, which the hardware may miss. NaN results are 0x7fff.
"""

from __future__ import annotations

from harness.ptx.isa.half import half_round
from harness.ptx.isa.registry import instruction
from harness.ptx.numeric.elementary import exp2_f64, tanh_nearest
from harness.ptx.numeric.floatbits import BF16, flush, value_of


@instruction("tanh.approx.type", "d, a", section="9.7.4.9", requires=75, approximate=True, type=".f16")
@instruction("tanh.approx.type", "d, a", section="9.7.4.9", requires=90, approximate=True, type=".bf16")
def tanh_half(a: int, type: int) -> int:
    """About the hyperbolic tangent; subnormals come back as they are."""
    return half_round(tanh_nearest(value_of(a, type)), type, 0)


@instruction("ex2.approx.type", "d, a", section="9.7.4.10", requires=75, approximate=True, type=".f16")
@instruction("ex2.approx.ftz.type", "d, a", section="9.7.4.10", requires=90, approximate=True, type=".bf16")
def ex2_half(a: int, type: int) -> int:
    """About 2**a; float16 keeps subnormals, bfloat16 flushes them on both sides.

    Below 2**-24, the least number of float16, the result is zero (an H200, all arguments).
    """
    bf16 = 1 if type == BF16 else 0
    exponent = value_of(flush(a, type, bf16), type)
    if exponent < -24.0 and not bf16:
        return 0
    return flush(half_round(exp2_f64(exponent), type, 0), type, bf16)


@instruction(
    "tanh.approx.type",
    "d, a",
    section="9.7.4.9",
    requires=75,
    approximate=True,
    type=".f16x2",
    undefined="halves",
)
@instruction(
    "tanh.approx.type",
    "d, a",
    section="9.7.4.9",
    requires=90,
    approximate=True,
    type=".bf16x2",
    undefined="halves",
)
def tanh_halves(a: int, type: int) -> int:
    """About two hyperbolic tangents."""
    return tanh_half(a & 0xFFFF, type) | tanh_half(a >> 16, type) << 16


@instruction(
    "ex2.approx.type",
    "d, a",
    section="9.7.4.10",
    requires=75,
    approximate=True,
    type=".f16x2",
    undefined="halves",
)
@instruction(
    "ex2.approx.ftz.type",
    "d, a",
    section="9.7.4.10",
    requires=90,
    approximate=True,
    type=".bf16x2",
    undefined="halves",
)
def ex2_halves(a: int, type: int) -> int:
    """About two powers of 2."""
    return ex2_half(a & 0xFFFF, type) | ex2_half(a >> 16, type) << 16
