"""Explicit-width helpers for scalar instruction definitions.

A definition runs in two ways: as plain Python to trace one value, and compiled by numba over arrays. So that both give
the same result, **every integer has one type: int64 when compiled, int in Python**. A bit pattern is

- zero-extended for unsigned and untyped operands up to 32 bits (a value from 0 to 2**32 - 1),
- sign-extended for signed operands,
- with 64 bits always read as signed, from -2**63 to 2**63 - 1.

Results need no masking: they are truncated to the destination's width. Three things need care, because int64 wraps and
Python's int does not. Pass a sum, difference, product or left shift that can exceed 64 bits through `wrap64` before
comparing it or shifting it right. Use `shr64` for a logical right shift of 64 bits. Use `below64` for an unsigned
64-bit comparison. Never write a literal above 2**63 - 1: numba would make it uint64, and uint64 with int64 becomes a
float.

Floating-point values are float64, which is the same in both. It holds float32 and narrower values exactly.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeVar

_F = TypeVar("_F", bound=Callable[..., object])

SCALARS: list[Callable[..., object]] = []
"""Functions to register with numba before the first compilation."""

COMPILED: dict[Callable[..., object], str] = {}
"""Functions whose compiled form differs from their Python text, with the name of that form in `bits_compiled`."""


def scalar(function: _F) -> _F:
    """Mark a helper of scalar definitions, whose Python text numba compiles."""
    SCALARS.append(function)
    return function


def _compiled(function: _F) -> _F:
    COMPILED[function] = function.__name__
    return function


SIGN64 = -(1 << 63)


@_compiled
def wrap64(x: int) -> int:
    """An integer's low 64 bits, read as signed."""
    return ((x + 0x8000000000000000) & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


@_compiled
def shr64(x: int, n: int) -> int:
    """Logical right shift of a 64-bit pattern by 0 to 63."""
    return wrap64((x & 0xFFFFFFFFFFFFFFFF) >> n)


@_compiled
def shl64(x: int, n: int) -> int:
    """Left shift of a 64-bit pattern by 0 to 63."""
    return wrap64(x << n)


@scalar
def below64(a: int, b: int) -> bool:
    """Whether `a` is less than `b` as unsigned 64-bit patterns."""
    return (a ^ SIGN64) < (b ^ SIGN64)


@_compiled
def high64(a: int, b: int) -> int:
    """Upper 64 bits of the 128-bit product of two unsigned 64-bit patterns."""
    return wrap64(((a & 0xFFFFFFFFFFFFFFFF) * (b & 0xFFFFFFFFFFFFFFFF)) >> 64)


@_compiled
def udiv64(a: int, b: int) -> int:
    """Quotient of unsigned 64-bit patterns; `b` is not zero."""
    return wrap64((a & 0xFFFFFFFFFFFFFFFF) // (b & 0xFFFFFFFFFFFFFFFF))


@_compiled
def clz64(x: int) -> int:
    """Leading zeros of a 64-bit pattern; 64 for zero."""
    return 64 - (x & 0xFFFFFFFFFFFFFFFF).bit_length()


@_compiled
def popcount64(x: int) -> int:
    """The number of set bits of a 64-bit pattern."""
    return (x & 0xFFFFFFFFFFFFFFFF).bit_count()


@scalar
def sign_extend(x: int, width: int) -> int:
    """The low `width` bits (up to 63) of `x` as a signed number."""
    half = 1 << (width - 1)
    return ((x & (2 * half - 1)) ^ half) - half


@scalar
def mask(width: int) -> int:
    """A mask of the `width` low bits, up to 64 (then -1)."""
    if width >= 64:
        return -1
    return (1 << width) - 1


@_compiled
def f32_value(bits: int) -> float:
    """The value of a float32 bit pattern (a NaN's payload may be lost)."""
    return float(struct.unpack("<f", (bits & 0xFFFFFFFF).to_bytes(4, "little"))[0])


@_compiled
def f32_round(x: float) -> int:
    """Bit pattern of the float32 nearest to a float64, ties to even; overflow gives infinity."""
    try:
        return int.from_bytes(struct.pack("<f", x), "little")
    except OverflowError:
        return 0x7F800000 if x > 0 else 0xFF800000


@_compiled
def f64_value(bits: int) -> float:
    """The float64 of a 64-bit pattern."""
    return float(struct.unpack("<d", (bits & 0xFFFFFFFFFFFFFFFF).to_bytes(8, "little"))[0])


@_compiled
def f64_bits(x: float) -> int:
    """The 64-bit pattern of a float64."""
    return int(struct.unpack("<q", struct.pack("<d", x))[0])


@_compiled
def divide(a: float, b: float) -> float:
    """IEEE division of float64 values, without exceptions."""
    if b != 0:
        return a / b
    if a == 0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


@_compiled
def square_root(x: float) -> float:
    """IEEE square root of a float64, NaN below zero."""
    return math.sqrt(x) if x >= 0 else (x if x != x or x == 0 else math.nan)


@_compiled
def to_float(x: int) -> float:
    """The float64 nearest to a signed 64-bit integer."""
    return float(x)


@_compiled
def to_int(x: float) -> int:
    """The integer part of a float64 below 2**63 in magnitude."""
    return int(x)
