"""Sign and class of floating-point values (ISA 9.7.3.1, 9.7.3.2, 9.7.3.9, 9.7.3.10, 9.7.4.5, 9.7.4.6).

On hardware `abs` and `neg` are additions of zero, and so give a canonical NaN. A float64 NaN keeps sign and payload and
becomes quiet (an H200); by the ISA abs.f64 returns it unchanged, and neg.f64 is not defined.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.facts import ARITHMETIC
from ptxdiff.emulator.isa.registry import instruction, operation
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.floatbits import (
    F64,
    canonical_nan,
    flush,
    infinity,
    is_nan,
    magnitude,
    sign_bit,
    smallest_normal,
)

FINITE, INFINITE, NUMBER, NOTANUMBER, NORMAL, SUBNORMAL = range(6)
_PROPERTIES = ".finite .infinite .number .notanumber .normal .subnormal"


@scalar
def _settle(a: int, result: int, type: int, ftz: int) -> int:
    """`result`, with subnormals flushed if `ftz`. If `a` is NaN: the canonical NaN, or in float64 `a` made quiet."""
    if is_nan(a, type):
        return a | 0x0008000000000000 if type == F64 else canonical_nan(type)
    return flush(result, type, ftz)


@instruction("abs{.ftz}.type", "d, a", section="9.7.3.9", type=".f32")
@instruction("abs.type", "d, a", section="9.7.3.9", type=".f64")
@instruction("abs{.ftz}.type", "d, a", section="9.7.4.6", type=".f16")
@instruction("abs.type", "d, a", section="9.7.4.6", type=".bf16", requires=80)
def abs_float(a: int, type: int, ftz: int = 0) -> int:
    """The value without its sign."""
    return _settle(a, magnitude(a, type), type, ftz)


@instruction("neg{.ftz}.type", "d, a", section="9.7.3.10", type=".f32")
@instruction("neg.type", "d, a", section="9.7.3.10", type=".f64")
@instruction("neg{.ftz}.type", "d, a", section="9.7.4.5", type=".f16")
@instruction("neg.type", "d, a", section="9.7.4.5", type=".bf16", requires=80)
def neg_float(a: int, type: int, ftz: int = 0) -> int:
    """The value with its sign reversed, zeros included."""
    return _settle(a, a ^ sign_bit(type), type, ftz)


@instruction("abs{.ftz}.type", "d, a", section="9.7.4.6", type=".f16x2", undefined="halves")
@instruction("abs.type", "d, a", section="9.7.4.6", type=".bf16x2", requires=80, undefined="halves")
def abs_halves(a: int, type: int, ftz: int = 0) -> int:
    """Two values without their signs."""
    return abs_float(a & 0xFFFF, type, ftz) | abs_float(a >> 16, type, ftz) << 16


@instruction("neg{.ftz}.type", "d, a", section="9.7.4.5", type=".f16x2", undefined="halves")
@instruction("neg.type", "d, a", section="9.7.4.5", type=".bf16x2", requires=80, undefined="halves")
def neg_halves(a: int, type: int, ftz: int = 0) -> int:
    """Two values with their signs reversed."""
    return neg_float(a & 0xFFFF, type, ftz) | neg_float(a >> 16, type, ftz) << 16


@instruction("copysign.type", "d, a, b", section="9.7.3.2", type=".f32 .f64")
def copysign(a: int, b: int, type: int) -> int:
    """The magnitude of `b` with the sign of `a`; bits only, so NaNs keep their payload."""
    return magnitude(b, type) | (a & sign_bit(type))


@instruction("testp.op.type", "p:pred, a:type", section="9.7.3.1", op=_PROPERTIES, type=".f32 .f64")
def testp(a: int, op: int, type: int) -> int:
    """Whether the value is of a class; zeros count as normal."""
    size = magnitude(a, type)
    top, least = infinity(type), smallest_normal(type)
    if op == FINITE:
        return 1 if size < top else 0
    if op == INFINITE:
        return 1 if size == top else 0
    if op == NUMBER:
        return 1 if size <= top else 0
    if op == NOTANUMBER:
        return 1 if size > top else 0
    if op == NORMAL:
        return 1 if size == 0 or least <= size < top else 0
    return 1 if 0 < size < least else 0


# Without a class ptxas (12.9, 13.4) checks the operands and generates no code, so the predicate keeps its value.
operation("testp.type", "kept", operands="p:pred, a:type", section="9.7.3.1", type=".f32 .f64", facts=ARITHMETIC)
