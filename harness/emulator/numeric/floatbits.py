"""Operations on patterns of the floating-point formats of registers, by the code of the type.

Type codes are constants in compiled definitions, so the compiler keeps only one branch of each function.
"""

from __future__ import annotations

from ptxdiff.emulator.numeric.binary64 import F64_NAN
from ptxdiff.emulator.numeric.bits import SIGN64, f32_value, f64_value, scalar
from ptxdiff.emulator.numeric.softfloat import bf16_value, f16_value

F32, F16, BF16, F64 = 2, 3, 4, 5
"""Codes of the types; integers have lower codes (`isa.modifiers`)."""


@scalar
def sign_bit(type: int) -> int:
    """The pattern of -0."""
    if type == F32:
        return 0x80000000
    return 0x8000 if type in (F16, BF16) else SIGN64


@scalar
def magnitude(a: int, type: int) -> int:
    """A pattern without its sign."""
    return a & (sign_bit(type) - 1) if type in (F16, BF16, F32) else a & 0x7FFFFFFFFFFFFFFF


@scalar
def infinity(type: int) -> int:
    """The pattern of +infinity."""
    if type == F32:
        return 0x7F800000
    if type == F16:
        return 0x7C00
    return 0x7F80 if type == BF16 else 0x7FF0000000000000


@scalar
def smallest_normal(type: int) -> int:
    """The pattern of the smallest normal number."""
    if type == F32:
        return 0x00800000
    if type == F16:
        return 0x0400
    return 0x0080 if type == BF16 else 0x0010000000000000


@scalar
def canonical_nan(type: int) -> int:
    """The NaN result of arithmetic: all bits set but the sign; in float64 0xfff8000000000000."""
    if type == F32:
        return 0x7FFFFFFF
    return 0x7FFF if type in (F16, BF16) else F64_NAN


@scalar
def is_nan(a: int, type: int) -> bool:
    """Whether a pattern is a NaN."""
    return magnitude(a, type) > infinity(type)


@scalar
def flush(a: int, type: int, ftz: int) -> int:
    """A pattern with subnormals replaced by zero of their sign, if `ftz`."""
    if ftz and magnitude(a, type) < smallest_normal(type):
        return a & sign_bit(type)
    return a


@scalar
def order(a: int, type: int) -> int:
    """A number ordered as the value of a pattern that is no NaN, -0 just below +0."""
    size = magnitude(a, type)
    return -1 - size if a & sign_bit(type) else size


@scalar
def value_of(a: int, type: int) -> float:
    """The value as a float64; a NaN's payload may be lost."""
    if type == F32:
        return f32_value(a)
    if type == F16:
        return f16_value(a)
    return bf16_value(a) if type == BF16 else f64_value(a)
