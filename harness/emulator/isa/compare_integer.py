"""Comparison of integers (ISA 9.7.6)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ptxdiff.emulator.isa.compare import combine, ordered, truth
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import below64

Declare = Callable[..., Callable[[Callable[..., int]], Any]]

_CMP = ".eq .ne .lt .le .gt .ge"
# The comparisons of each kind of type; .lo .ls .hi .hs are synonyms of .lt .le .gt .ge.
_KINDS = (
    (".eq .ne", ".b16 .b32 .b64"),
    (_CMP, ".s16 .s32 .s64"),
    (_CMP + " .lo .ls .hi .hs", ".u16 .u32 .u64"),
)
_SETP = "p:pred|q?:pred, a:type, b:type"
_SET = "d:dtype, a:type, b:type"
_BOOL = ".and .or .xor"
_DTYPE = ".u32 .s32 .f32 .f16 .bf16"


def setp_integer(a: int, b: int, cmp: int, signed: int, width: int, result: int) -> int:
    """Compare integers; the second destination gets the opposite."""
    return setp_integer_bool(a, b, 1, cmp, 0, signed, width, result)


def setp_integer_bool(a: int, b: int, c: int, cmp: int, bool: int, signed: int, width: int, result: int) -> int:
    """Compare integers and join with `c`; the second destination gets the opposite comparison, joined too."""
    less = a < b if signed or width < 64 else below64(a, b)
    found = ordered(cmp, less, a == b)
    return combine(found == (result == 0), c, bool)


def set_integer(a: int, b: int, cmp: int, dtype: int, signed: int, width: int) -> int:
    """Compare integers: all ones or 0, and for a floating-point destination 1.0 or 0."""
    return truth(setp_integer_bool(a, b, 1, cmp, 0, signed, width, 0), dtype)


def set_integer_bool(a: int, b: int, c: int, cmp: int, bool: int, dtype: int, signed: int, width: int) -> int:
    """Compare integers and join with `c`: all ones or 0, and for a floating-point destination 1.0 or 0."""
    return truth(setp_integer_bool(a, b, c, cmp, bool, signed, width, 0), dtype)


def _declare(cmp: str, type: str) -> None:
    """Declare the rows for one kind of types."""
    setp: Declare = partial(instruction, section="9.7.6.2", cmp=cmp, type=type)
    setp("setp.cmp.type", _SETP)(setp_integer)
    setp("setp.cmp.bool.type", _SETP + ", c:pred", bool=_BOOL)(setp_integer_bool)
    to: Declare = partial(instruction, section="9.7.6.1", needs={"bf16": 90}, cmp=cmp, type=type, dtype=_DTYPE)
    to("set.cmp.dtype.type", _SET)(set_integer)
    to("set.cmp.bool.dtype.type", _SET + ", c:pred", bool=_BOOL)(set_integer_bool)


for _cmp, _type in _KINDS:
    _declare(_cmp, _type)
