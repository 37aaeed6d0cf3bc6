"""Scalar video instructions (ISA 9.7.18.1): on a byte, a half or the whole of each source.

Each extends the selected parts, computes, clamps with .sat, and combines the result with c: by a secondary operation,
or by replacing the part of c that the destination's selector names.

By the ISA intermediate values are exact, and .sat clamps to the destination's type and size. From sm_75 on no GPU has
these instructions: ptxas writes sequences on pairs of 32-bit registers, which differ from the ISA for values beyond 32
bits, in the same way on every target. The definitions follow these sequences, as read from the machine code of ptxas
12.9 and measured on an H200. ptxas 13.4 corrects one difference, that of `merged`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ptxdiff.emulator.isa.compare import ordered
from ptxdiff.emulator.isa.integer import saturate
from ptxdiff.emulator.isa.modifiers import ADD, CLAMP, MIN
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import below64, mask, scalar, shl64, shr64, sign_extend

Declare = Callable[..., Callable[[Callable[..., int]], Any]]

_instruction: Declare = instruction
_TYPE = ".u32 .s32"
_NONE = -1
_WORD = 32 << 8
_UPPER_HALF = 16 << 8 | 16


@scalar
def part(x: int, sel: int, signed: int) -> int:
    """The byte, half or word of a register that a selector names."""
    bits = sel >> 8
    value = x >> (sel & 0xFF)
    return sign_extend(value, bits) if signed else value & mask(bits)


@scalar
def clamped(value: int, dsel: int, signed: int) -> int:
    """`.sat`: a whole u32 is clamped only at zero, and wraps above; for a byte or half a negative value counts as
    huge."""
    bits = dsel >> 8
    if bits == 32:
        return saturate(value, 32, 1) if signed else max(value, 0)
    top = mask(bits - signed)
    return value if 0 <= value <= top else top


@scalar
def joined(value: int, c: int, op2: int, dsel: int, dsigned: int) -> int:
    """The result combined with c: by the secondary operation, by a merge, or not at all."""
    if op2 == ADD:
        return value + c
    if op2 != _NONE:
        # The comparison has 64 bits and the destination's signedness: a negative value is above every u32.
        below = value < c if dsigned else below64(value, c)
        return value if below == (op2 == MIN) else c
    return value if dsel == _WORD else merged(value, c, dsel)


@scalar
def merged(value: int, c: int, dsel: int) -> int:
    """c with the selected part replaced by the value's low bits, except .h1, which is replaced by bits 16 to 31.

    The ISA and ptxas 13.4 use the low half there too; ptxas 12.9 permutes the wrong bytes.
    """
    field = mask(dsel >> 8) << (dsel & 0xFF)
    moved = value if dsel == _UPPER_HALF else value << (dsel & 0xFF)
    return (moved & field) | (c & ~field)


def _declare(function: Callable[..., int], pattern: str, b: str, d: str, c: str, **groups: str) -> None:
    """Declare the three rows of an instruction: without c, with a secondary operation, and merging into c."""
    row: Declare = partial(_instruction, section="9.7.18.1", atype=_TYPE, **groups)
    row(pattern, f"d:{d}, a.part:atype, b.part:{b}")(function)
    row(f"{pattern}.op2", f"d:{d}, a.part:atype, b.part:{b}, c:{c}", op2=".add .min .max")(function)
    row(pattern, f"d.part:{d}, a.part:atype, b.part:{b}, c:{c}")(function)


# Parameters after b that a row does not have keep their defaults: no c, the whole word, no secondary operation.


def vadd(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Sum of the selected parts; truncated to signed 32 bits before a secondary operation."""
    value = part(a, asel, asigned) + part(b, bsel, bsigned)
    value = clamped(value, dsel, dsigned) if sat else value
    return joined(sign_extend(value, 32), c, op2, dsel, dsigned)


def vsub(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Difference of the selected parts; truncated as in `vadd`."""
    value = part(a, asel, asigned) - part(b, bsel, bsigned)
    value = clamped(value, dsel, dsigned) if sat else value
    return joined(sign_extend(value, 32), c, op2, dsel, dsigned)


def vabsdiff(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Absolute difference of the selected parts."""
    value = abs(part(a, asel, asigned) - part(b, bsel, bsigned))
    value = clamped(value, dsel, dsigned) if sat else value
    return joined(value, c, op2, dsel, dsigned)


def vmin(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The smaller of the selected parts."""
    value = min(part(a, asel, asigned), part(b, bsel, bsigned))
    value = clamped(value, dsel, dsigned) if sat else value
    return joined(value, c, op2, dsel, dsigned)


def vmax(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The larger of the selected parts."""
    value = max(part(a, asel, asigned), part(b, bsel, bsigned))
    value = clamped(value, dsel, dsigned) if sat else value
    return joined(value, c, op2, dsel, dsigned)


_ARITHMETIC: tuple[Callable[..., int], ...] = (vadd, vsub, vabsdiff, vmin, vmax)
for _function in _ARITHMETIC:
    _pattern = f"{_function.__name__}.dtype.atype.btype{{.sat}}"
    _declare(_function, _pattern, "btype", "dtype", "dtype", dtype=_TYPE, btype=_TYPE)


@scalar
def amount(b: int, bsel: int, mode: int) -> int:
    """The shift amount of vshl and vshr: clamped to 32 (.clamp) or modulo 32 (.wrap)."""
    wanted = part(b, bsel, 0)
    return min(wanted, 32) if mode == CLAMP else wanted & 31


def vshl(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, mode: int = 0,
    op2: int = _NONE, asigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The selected part, shifted left; with .sat truncated to signed 34 bits, and then clamped to 32 bits (not to a
    part)."""
    value = shl64(part(a, asel, asigned), amount(b, bsel, mode))
    if sat:
        value = sign_extend(saturate(sign_extend(value, 34), 32, dsigned), 32)
    return joined(value, c, op2, dsel, dsigned)


def vshr(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, mode: int = 0,
    op2: int = _NONE, asigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The selected part, shifted right; a signed one fills with its sign. Clamped as in `vshl`."""
    value = part(a, asel, asigned) >> amount(b, bsel, mode)
    if sat:
        value = sign_extend(saturate(value, 32, dsigned), 32)
    return joined(value, c, op2, dsel, dsigned)


for _function in (vshl, vshr):
    _pattern = f"{_function.__name__}.dtype.atype.u32{{.sat}}.mode"
    _declare(_function, _pattern, "u32", "dtype", "dtype", dtype=_TYPE, mode=".clamp .wrap")


def vset(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, cmp: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0,
) -> int:  # fmt: skip
    """The comparison of the selected parts: 1 or 0. In a secondary .min or .max, c is signed if a is."""
    x, y = part(a, asel, asigned), part(b, bsel, bsigned)
    return joined(1 if ordered(cmp, x < y, x == y) else 0, c, op2, dsel, asigned)


_declare(vset, "vset.atype.btype.cmp", "btype", "u32", "atype", btype=_TYPE, cmp=".eq .ne .lt .le .gt .ge")


def vmad(
    a: int, b: int, c: int, asel: int, bsel: int, aneg: int, bneg: int, cneg: int, po: int, sat: int, scale: int,
    asigned: int, bsigned: int,
) -> int:  # fmt: skip
    """Product plus c, with one of them negated or one added (.po); shifted right, clamped with .sat.

    Factors and c are read as signed 32 bits whatever their types, and 64 bits are kept. If a and b are unsigned and
    nothing is negated, the 64 bits are shifted as unsigned and clamped as u32 with .sat; a negative sum clamps to 0
    only if it is still negative after the shift.
    """
    product = sign_extend(part(a, asel, asigned), 32) * sign_extend(part(b, bsel, bsigned), 32)
    addend = sign_extend(c, 32)
    total = (-product if aneg ^ bneg else product) + (-addend if cneg else addend) + po
    signed = 1 if asigned or bsigned or aneg ^ bneg or cneg else 0
    shifted = total >> scale if signed else shr64(total, scale)
    return saturate(shifted, 32, signed) if sat else shifted


_vmad: Declare = partial(instruction, section="9.7.18.1.3", dtype=_TYPE, atype=_TYPE, btype=_TYPE)
_VMAD = "d, -a.part:atype, -b.part:btype, -c:u32"
_vmad("vmad.dtype.atype.btype{.po}{.sat}", _VMAD, given={"scale": 0})(vmad)
_vmad("vmad.dtype.atype.btype{.po}{.sat}.scale", _VMAD, scale=".shr7 .shr15")(vmad)
