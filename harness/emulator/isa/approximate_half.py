"""Approximate float16 and bfloat16 instructions, as a Hopper GPU computes them (ISA 9.7.4.9, 9.7.4.10).

The unit computes them as the float32 functions, and truncates the result to the format (an H100 and an H200, all
arguments). NaN results are 0x7fff. `rounded=` names the model that rounds to nearest.
"""

from __future__ import annotations

from functools import partial

from ptxdiff.emulator.isa.approximate_rounded import (
    ex2_half_rounded,
    ex2_halves_rounded,
    tanh_half_rounded,
    tanh_halves_rounded,
)
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import f32_round, f32_value, scalar
from ptxdiff.emulator.numeric.floatbits import BF16, value_of
from ptxdiff.emulator.numeric.softfloat import narrow
from ptxdiff.emulator.numeric.special_functions import unit_ex2, unit_tanh


@scalar
def _widened(a: int, type: int) -> int:
    """A 16-bit number as a float32 pattern."""
    return a << 16 if type == BF16 else f32_round(value_of(a, type))


@scalar
def _cut(x: int, type: int) -> int:
    """A float32 pattern truncated to the format. In float16, infinity from 2**16 on; subnormal results are kept."""
    if type == BF16:
        return x >> 16
    if x & 0x7FFFFFFF > 0x7F800000:
        return 0x7FFF
    infinite = (x >> 16 & 0x8000) | 0x7C00
    return infinite if x & 0x7FFFFFFF >= 0x47800000 else narrow(f32_value(x), 5, 10, 1)


_tanh = partial(
    instruction,
    "tanh.approx.type",
    "d, a",
    section="9.7.4.9",
    requires=75,
    needs={"bf16": 90, "bf16x2": 90},
    approximate=True,
)
# bfloat16 always has .ftz, float16 never.
_ex2_f16 = partial(instruction, "ex2.approx.type", "d, a", section="9.7.4.10", requires=75, approximate=True)
_ex2_bf16 = partial(instruction, "ex2.approx.ftz.type", "d, a", section="9.7.4.10", requires=90, approximate=True)


@_tanh(rounded=tanh_half_rounded, type=".f16 .bf16")
def tanh_half(a: int, type: int) -> int:
    """About the hyperbolic tangent; below 2**-8 the result is the argument."""
    return _cut(unit_tanh(_widened(a, type)), type)


@_ex2_f16(rounded=ex2_half_rounded, type=".f16")
@_ex2_bf16(rounded=ex2_half_rounded, type=".bf16")
def ex2_half(a: int, type: int) -> int:
    """About 2**a; float16 keeps subnormals, bfloat16 flushes them on both sides."""
    return _cut(unit_ex2(_widened(a, type)), type)


@_tanh(rounded=tanh_halves_rounded, type=".f16x2 .bf16x2", undefined="halves")
def tanh_halves(a: int, type: int) -> int:
    """About two hyperbolic tangents."""
    return tanh_half(a & 0xFFFF, type) | tanh_half(a >> 16, type) << 16


@_ex2_f16(rounded=ex2_halves_rounded, type=".f16x2", undefined="halves")
@_ex2_bf16(rounded=ex2_halves_rounded, type=".bf16x2", undefined="halves")
def ex2_halves(a: int, type: int) -> int:
    """About two powers of 2."""
    return ex2_half(a & 0xFFFF, type) | ex2_half(a >> 16, type) << 16
