"""Arithmetic of sm_107 on pairs of different floating-point formats."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ptxdiff.emulator.isa.float_mixed import add_cut, add_mixed_pair, fma_mixed_pair, mul_cut, mul_other_half
from ptxdiff.emulator.numeric.floatbits import BF16, F16
from ptxdiff.sass.isa.single import ROUNDINGS
from ptxdiff.sass.rows import Definition, row

_NAMES = {"F16x2": F16, "BF16x2": BF16}
_PAIRS = ("R = x,x",), ("R = x,N", "R = N,x", "R = N,N")
"""Kinds of operands, without and with a pair of which one number is negated: these are forms of their own."""


def _to_float32(name: str, *shapes: Sequence[str]) -> Callable[[Definition], Definition]:
    """Rows of an instruction whose first operand is a pair of halves. shapes: without and with a negated number."""

    def declare(definition: Definition) -> Definition:
        for word, code in _NAMES.items():
            pattern = name.format(word) + "{.rnd}"
            for some, more in zip(shapes, ("", ".one_negated"), strict=True):
                row(pattern, *some, rnd=ROUNDINGS, given={"type": code}, label=pattern + more)(definition)
        return definition

    return declare


def _to_halves(name: str) -> Callable[[Definition], Definition]:
    """Rows of an instruction on pairs of float32 that gives halves. With float16 it flushes."""

    def declare(definition: Definition) -> Definition:
        for word, code in _NAMES.items():
            pattern = f"{name}.{word}.F32x2.F32x2{'.FTZ' if code == F16 else ''}.RZ"
            for some, more in zip(_PAIRS, ("", ".one_negated"), strict=True):
                row(pattern, *some, given={"type": code}, label=pattern + more)(definition)
        return definition

    return declare


@_to_float32("FHADD2.F32x2.{}.F32x2", ("R2 = H,x",), ("R2 = H,N",))
def fhadd2(a: int, b: int, rnd: int, type: int) -> int:
    """Two sums of a pair of halves and one of float32, as float32."""
    return add_mixed_pair(a, b, rnd, type)


@_to_float32("FHFMA2.F32x2.{}.F32x2.F32x2", ("R2 = H,x,x",), ("R2 = H,x,N", "R2 = H,N,x", "R2 = H,N,N"))
def fhfma2(a: int, b: int, c: int, rnd: int, type: int) -> int:
    """Two fused products and sums of a pair of halves and two of float32, as float32."""
    return fma_mixed_pair(a, b, c, rnd, type)


@_to_halves("FHADD2")
def fhadd2_cut(a: int, b: int, type: int) -> int:
    """Two sums of float32, rounded once, as halves."""
    return add_cut(a, b, type)


@_to_halves("FHMUL2")
def fhmul2_cut(a: int, b: int, type: int) -> int:
    """Two products of float32, rounded once, as halves."""
    return mul_cut(a, b, type)


@row("HMUL2.F16x2.F16x2.BF16x2", "R = H,H", given={"type": F16})
@row("HMUL2.BF16x2.BF16x2.F16x2", "R = H,H", given={"type": BF16})
def hmul2_mixed(a: int, b: int, type: int) -> int:
    """Two products of halves of both formats, in the format of the first, rounded as in PTX."""
    return mul_other_half(a, b, type)
