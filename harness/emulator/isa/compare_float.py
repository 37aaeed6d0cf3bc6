"""Comparison of floating-point values (ISA 9.7.6, 9.7.7).

With .ftz subnormal operands count as zeros of their sign. -0 equals +0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ptxdiff.emulator.isa.compare import combine, float_compare, truth
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar
from ptxdiff.emulator.numeric.floatbits import flush, value_of

_CMP = ".eq .ne .lt .le .gt .ge .equ .neu .ltu .leu .gtu .geu .num .nan"
_BOOL = ".and .or .xor"
_TWO = "p:pred|q?:pred, a:type, b:type"
_ONE = "p:pred, a:type, b:type"
_SET = "d:dtype, a:type, b:type"
# Destination types of `set`, by the type compared.
_WIDE = ".u32 .s32 .f32 .f16 .bf16"
_F16 = ".u16 .s16 .u32 .s32 .f16 .bf16"
_BF16 = ".u16 .s16 .u32 .s32 .bf16"


@scalar
def compared(a: int, b: int, cmp: int, ftz: int, type: int) -> bool:
    """Whether the comparison of two patterns holds."""
    return float_compare(cmp, value_of(flush(a, type, ftz), type), value_of(flush(b, type, ftz), type))


@instruction("setp.cmp{.ftz}.type", _TWO, section="9.7.6.2", cmp=_CMP, type=".f32")
@instruction("setp.cmp.type", _TWO, section="9.7.6.2", cmp=_CMP, type=".f64")
def setp_float(a: int, b: int, cmp: int, type: int, result: int, ftz: int = 0) -> int:
    """Compare; the second destination gets the opposite."""
    return setp_float_bool(a, b, 1, cmp, 0, type, result, ftz)


@instruction("setp.cmp.bool{.ftz}.type", _TWO + ", c:pred", section="9.7.6.2", cmp=_CMP, bool=_BOOL, type=".f32")
@instruction("setp.cmp.bool.type", _TWO + ", c:pred", section="9.7.6.2", cmp=_CMP, bool=_BOOL, type=".f64")
def setp_float_bool(a: int, b: int, c: int, cmp: int, bool: int, type: int, result: int, ftz: int = 0) -> int:
    """Compare and join with `c`; the second destination gets the opposite comparison, joined too."""
    return combine(compared(a, b, cmp, ftz, type) == (result == 0), c, bool)


@instruction("setp.cmp{.ftz}.type", _ONE, section="9.7.7.2", cmp=_CMP, type=".f16")
@instruction("setp.cmp.type", _ONE, section="9.7.7.2", cmp=_CMP, type=".bf16", requires=90)
def setp_half(a: int, b: int, cmp: int, type: int, ftz: int = 0) -> int:
    """Compare; unlike wider types, halves have one destination."""
    return 1 if compared(a, b, cmp, ftz, type) else 0


@instruction("setp.cmp.bool{.ftz}.type", _ONE + ", c:pred", section="9.7.7.2", cmp=_CMP, bool=_BOOL, type=".f16")
@instruction(
    "setp.cmp.bool.type", _ONE + ", c:pred", section="9.7.7.2", cmp=_CMP, bool=_BOOL, type=".bf16", requires=90
)
def setp_half_bool(a: int, b: int, c: int, cmp: int, bool: int, type: int, ftz: int = 0) -> int:
    """Compare and join with `c`."""
    return combine(compared(a, b, cmp, ftz, type), c, bool)


_Row = Callable[..., Callable[[Callable[..., int]], Callable[..., int]]]

_pairs: _Row = partial(instruction, section="9.7.7.2", cmp=_CMP, undefined="own half")


@_pairs("setp.cmp{.ftz}.type", _TWO, type=".f16x2")
@_pairs("setp.cmp.type", _TWO, type=".bf16x2", requires=90)
def setp_halves(a: int, b: int, cmp: int, type: int, result: int, ftz: int = 0) -> int:
    """Compare two pairs: the first destination gets the result of the lower halves, the second of the upper."""
    return setp_halves_bool(a, b, 1, cmp, 0, type, result, ftz)


@_pairs("setp.cmp.bool{.ftz}.type", _TWO + ", c:pred", bool=_BOOL, type=".f16x2")
@_pairs("setp.cmp.bool.type", _TWO + ", c:pred", bool=_BOOL, type=".bf16x2", requires=90)
def setp_halves_bool(a: int, b: int, c: int, cmp: int, bool: int, type: int, result: int, ftz: int = 0) -> int:
    """Compare two pairs and join each with `c`."""
    place = 16 * result
    return combine(compared(a >> place & 0xFFFF, b >> place & 0xFFFF, cmp, ftz, type), c, bool)


def set_float(a: int, b: int, cmp: int, dtype: int, type: int, ftz: int = 0) -> int:
    """Compare: all ones or 0, and for a floating-point destination 1.0 or +0."""
    return set_float_bool(a, b, 1, cmp, 0, dtype, type, ftz)


def set_float_bool(a: int, b: int, c: int, cmp: int, bool: int, dtype: int, type: int, ftz: int = 0) -> int:
    """Compare and join with `c`: all ones or 0, and for a floating-point destination 1.0 or +0."""
    return truth(combine(compared(a, b, cmp, ftz, type), c, bool), dtype)


def set_halves(a: int, b: int, cmp: int, dtype: int, type: int, ftz: int = 0) -> int:
    """Compare two pairs: in each half all ones or 0, 1.0 or +0."""
    return set_halves_bool(a, b, 1, cmp, 0, dtype, type, ftz)


def set_halves_bool(a: int, b: int, c: int, cmp: int, bool: int, dtype: int, type: int, ftz: int = 0) -> int:
    """Compare two pairs and join each with `c`: in each half all ones or 0, 1.0 or +0."""
    low = truth(combine(compared(a & 0xFFFF, b & 0xFFFF, cmp, ftz, type), c, bool), dtype) & 0xFFFF
    return low | (truth(combine(compared(a >> 16, b >> 16, cmp, ftz, type), c, bool), dtype) & 0xFFFF) << 16


_NEW: dict[str, Any] = {"needs": {"bf16": 90}}
_NO_FTZ: dict[str, Any] = {"excludes": [".ftz .bf16"]}
for _ftz, _type, _dtype, _section, _limits in (
    ("{.ftz}", ".f32", _WIDE, "9.7.6.1", _NEW | _NO_FTZ),
    ("", ".f64", _WIDE, "9.7.6.1", _NEW),
    ("{.ftz}", ".f16", _F16, "9.7.7.1", _NEW | _NO_FTZ),
    ("", ".bf16", _BF16, "9.7.7.1", {"requires": 90}),
    ("{.ftz}", ".f16x2", ".f16x2 .u32 .s32", "9.7.7.1", {}),
    ("", ".bf16x2", ".bf16x2 .u32 .s32", "9.7.7.1", {"requires": 90}),
):
    _plain, _joined = (set_halves, set_halves_bool) if "x2" in _type else (set_float, set_float_bool)
    _row: _Row = partial(instruction, cmp=_CMP, dtype=_dtype, type=_type, section=_section, **_limits)
    _row(f"set.cmp{_ftz}.dtype.type", _SET, undefined="halves" if "x2" in _type else "all")(_plain)
    _row(f"set.cmp.bool{_ftz}.dtype.type", _SET + ", c:pred", bool=_BOOL)(_joined)
