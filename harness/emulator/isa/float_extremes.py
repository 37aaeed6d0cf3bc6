"""Minimum and maximum of floating-point values (ISA 9.7.3.11, 9.7.3.12, 9.7.4.7, 9.7.4.8).

-0 is less than +0. If one operand is NaN, the result is the other one, unless .NaN is written. NaN results are
canonical, except in float64, where the result is the second operand made quiet (ptxas selects it with integer
instructions).
"""

from __future__ import annotations

from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.floatbits import F64, canonical_nan, flush, is_nan, magnitude, order, sign_bit

_F32 = {"NaN": 80}


@scalar
def lesser(a: int, b: int, NaN: int, type: int) -> int:
    """The smaller of two patterns."""
    if is_nan(a, type) or is_nan(b, type):
        if NaN or (is_nan(a, type) and is_nan(b, type)):
            return b | 0x0008000000000000 if type == F64 else canonical_nan(type)
        return b if is_nan(a, type) else a
    return a if order(a, type) < order(b, type) else b


@scalar
def greater(a: int, b: int, NaN: int, type: int) -> int:
    """The larger of two patterns."""
    if is_nan(a, type) or is_nan(b, type):
        if NaN or (is_nan(a, type) and is_nan(b, type)):
            return b | 0x0008000000000000 if type == F64 else canonical_nan(type)
        return b if is_nan(a, type) else a
    return a if order(a, type) > order(b, type) else b


@scalar
def _signed(found: int, a: int, b: int, type: int) -> int:
    """A magnitude with the product of two signs; NaN unchanged."""
    return found if is_nan(found, type) else found | ((a ^ b) & sign_bit(type))


@instruction("min{.ftz}{.NaN}.type", "d, a, b", section="9.7.3.11", type=".f32", needs=_F32)
@instruction("min.type", "d, a, b", section="9.7.3.11", type=".f64")
@instruction("min{.ftz}{.NaN}.type", "d, a, b", section="9.7.4.7", type=".f16", requires=80)
@instruction("min{.NaN}.type", "d, a, b", section="9.7.4.7", type=".bf16", requires=80)
def min_float(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """The smaller."""
    return lesser(flush(a, type, ftz), flush(b, type, ftz), NaN, type)


@instruction("max{.ftz}{.NaN}.type", "d, a, b", section="9.7.3.12", type=".f32", needs=_F32)
@instruction("max.type", "d, a, b", section="9.7.3.12", type=".f64")
@instruction("max{.ftz}{.NaN}.type", "d, a, b", section="9.7.4.8", type=".f16", requires=80)
@instruction("max{.NaN}.type", "d, a, b", section="9.7.4.8", type=".bf16", requires=80)
def max_float(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """The larger."""
    return greater(flush(a, type, ftz), flush(b, type, ftz), NaN, type)


@instruction("min{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.3.11", type=".f32", requires=86)
@instruction("min{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.7", type=".f16", requires=86)
@instruction("min{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.7", type=".bf16", requires=86)
def min_xorsign(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """The smaller magnitude, with the product of the two signs unless it is NaN."""
    x, y = magnitude(flush(a, type, ftz), type), magnitude(flush(b, type, ftz), type)
    return _signed(lesser(x, y, NaN, type), a, b, type)


@instruction("max{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.3.12", type=".f32", requires=86)
@instruction("max{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.8", type=".f16", requires=86)
@instruction("max{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.8", type=".bf16", requires=86)
def max_xorsign(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """The larger magnitude, with the product of the two signs unless it is NaN."""
    x, y = magnitude(flush(a, type, ftz), type), magnitude(flush(b, type, ftz), type)
    return _signed(greater(x, y, NaN, type), a, b, type)


@instruction("min{.ftz}{.NaN}{.abs}.type", "d, a, b, c", section="9.7.3.11", type=".f32", requires=100)
def min_of_three(a: int, b: int, c: int, ftz: int, NaN: int, abs: int, type: int) -> int:
    """The smallest, with .abs of the magnitudes; NaN operands are ignored unless .NaN is written or all three are
    NaN."""
    a, b, c = flush(a, type, ftz), flush(b, type, ftz), flush(c, type, ftz)
    if abs:
        a, b, c = magnitude(a, type), magnitude(b, type), magnitude(c, type)
    return lesser(lesser(a, b, NaN, type), c, NaN, type)


@instruction("max{.ftz}{.NaN}{.abs}.type", "d, a, b, c", section="9.7.3.12", type=".f32", requires=100)
def max_of_three(a: int, b: int, c: int, ftz: int, NaN: int, abs: int, type: int) -> int:
    """The largest, with .abs of the magnitudes; NaN operands are ignored unless .NaN is written or all three are
    NaN."""
    a, b, c = flush(a, type, ftz), flush(b, type, ftz), flush(c, type, ftz)
    if abs:
        a, b, c = magnitude(a, type), magnitude(b, type), magnitude(c, type)
    return greater(greater(a, b, NaN, type), c, NaN, type)


# Two values in a register; each half is computed separately.


@instruction("min{.ftz}{.NaN}.type", "d, a, b", section="9.7.4.7", type=".f16x2", requires=80, undefined="halves")
@instruction("min{.NaN}.type", "d, a, b", section="9.7.4.7", type=".bf16x2", requires=80, undefined="halves")
def min_halves(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """Two minima."""
    low = min_float(a & 0xFFFF, b & 0xFFFF, type, ftz, NaN)
    return low | min_float(a >> 16, b >> 16, type, ftz, NaN) << 16


@instruction("max{.ftz}{.NaN}.type", "d, a, b", section="9.7.4.8", type=".f16x2", requires=80, undefined="halves")
@instruction("max{.NaN}.type", "d, a, b", section="9.7.4.8", type=".bf16x2", requires=80, undefined="halves")
def max_halves(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """Two maxima."""
    low = max_float(a & 0xFFFF, b & 0xFFFF, type, ftz, NaN)
    return low | max_float(a >> 16, b >> 16, type, ftz, NaN) << 16


@instruction(
    "min{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.7", type=".f16x2", requires=86, undefined="halves"
)
@instruction(
    "min{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.7", type=".bf16x2", requires=86, undefined="halves"
)
def min_xorsign_halves(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """Two minima of magnitudes with the product of the signs."""
    low = min_xorsign(a & 0xFFFF, b & 0xFFFF, type, ftz, NaN)
    return low | min_xorsign(a >> 16, b >> 16, type, ftz, NaN) << 16


@instruction(
    "max{.ftz}{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.8", type=".f16x2", requires=86, undefined="halves"
)
@instruction(
    "max{.NaN}.xorsign.abs.type", "d, a, b", section="9.7.4.8", type=".bf16x2", requires=86, undefined="halves"
)
def max_xorsign_halves(a: int, b: int, type: int, ftz: int = 0, NaN: int = 0) -> int:
    """Two maxima of magnitudes with the product of the signs."""
    low = max_xorsign(a & 0xFFFF, b & 0xFFFF, type, ftz, NaN)
    return low | max_xorsign(a >> 16, b >> 16, type, ftz, NaN) << 16
