"""Scalar video instructions (ISA 9.7.18.1): on a byte, a half or the whole of each source.

Each extends the selected parts, computes exactly, clamps with .sat to the destination's type and size, and joins the
result with c: by a secondary operation, or by putting it into the part of c that the destination's selector names.

These follow the text of the ISA. Since sm_75 ptxas expands most of them, and where clamping, secondary operations or
merges meet values of more than 32 bits its code departs from the text: the conformance ledger tells which forms differ
on an H200, and on what.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from harness.ptx.bits import mask, scalar, shl64, shr64, sign_extend, wrap64

from .compare import ordered
from .integer import saturate
from .modifiers import ADD, CLAMP, MIN
from .registry import instruction

Declare = Callable[..., Callable[[Callable[..., int]], Any]]

_instruction: Declare = instruction
_TYPE = ".u32 .s32"
_NONE = -1
_WORD = 32 << 8


@scalar
def part(x: int, sel: int, signed: int) -> int:
    """The byte, half or word of a register that a selector names."""
    bits = sel >> 8
    value = x >> (sel & 0xFF)
    return sign_extend(value, bits) if signed else value & mask(bits)


@scalar
def finish(value: int, c: int, sat: int, op2: int, dsel: int, dsigned: int) -> int:
    """Clamp, then the secondary operation with c or the merge into it."""
    bits = dsel >> 8
    if sat:
        value = saturate(value, bits, dsigned)
    if op2 == ADD:
        return value + c
    if op2 != _NONE:
        return min(value, c) if op2 == MIN else max(value, c)
    if bits < 32:
        field = mask(bits) << (dsel & 0xFF)
        return (shl64(value, dsel & 0xFF) & field) | (c & ~field)
    return value


def _declare(function: Callable[..., int], pattern: str, b: str, c: str, **groups: str) -> None:
    """The three rows of an instruction: alone, with a secondary operation, and merging into c."""
    row: Declare = partial(_instruction, section="9.7.18.1", atype=_TYPE, **groups)
    row(pattern, f"d:{c}, a.part:atype, b.part:{b}")(function)
    row(f"{pattern}.op2", f"d:{c}, a.part:atype, b.part:{b}, c:{c}", op2=".add .min .max")(function)
    row(pattern, f"d.part:{c}, a.part:atype, b.part:{b}, c:{c}")(function)


# The parameters after b that a row lacks have their defaults: no c, the whole word, no secondary operation.


def vadd(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Sum of the selected parts."""
    return finish(part(a, asel, asigned) + part(b, bsel, bsigned), c, sat, op2, dsel, dsigned)


def vsub(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Difference of the selected parts."""
    return finish(part(a, asel, asigned) - part(b, bsel, bsigned), c, sat, op2, dsel, dsigned)


def vabsdiff(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """Distance of the selected parts."""
    return finish(abs(part(a, asel, asigned) - part(b, bsel, bsigned)), c, sat, op2, dsel, dsigned)


def vmin(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The smaller of the selected parts."""
    return finish(min(part(a, asel, asigned), part(b, bsel, bsigned)), c, sat, op2, dsel, dsigned)


def vmax(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The larger of the selected parts."""
    return finish(max(part(a, asel, asigned), part(b, bsel, bsigned)), c, sat, op2, dsel, dsigned)


_ARITHMETIC: tuple[Callable[..., int], ...] = (vadd, vsub, vabsdiff, vmin, vmax)
for _function in _ARITHMETIC:
    _pattern = f"{_function.__name__}.dtype.atype.btype{{.sat}}"
    _declare(_function, _pattern, "btype", "dtype", dtype=_TYPE, btype=_TYPE)


@scalar
def amount(b: int, bsel: int, mode: int) -> int:
    """How far vshl and vshr shift: at most 32 (.clamp) or modulo 32 (.wrap)."""
    wanted = part(b, bsel, 0)
    return min(wanted, 32) if mode == CLAMP else wanted & 31


def vshl(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, mode: int = 0,
    op2: int = _NONE, asigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The selected part, shifted left."""
    value = part(a, asel, asigned)
    shift = amount(b, bsel, mode)
    # By 32: the low 32 bits are 0, and if anything is left above them, it lies outside every range.
    far = (1 << 40) * ((value > 0) - (value < 0))
    return finish(value << shift if shift < 32 else far, c, sat, op2, dsel, dsigned)


def vshr(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, sat: int = 0, mode: int = 0,
    op2: int = _NONE, asigned: int = 0, dsigned: int = 0,
) -> int:  # fmt: skip
    """The selected part, shifted right; a signed one fills with its sign."""
    return finish(part(a, asel, asigned) >> amount(b, bsel, mode), c, sat, op2, dsel, dsigned)


for _function in (vshl, vshr):
    _pattern = f"{_function.__name__}.dtype.atype.u32{{.sat}}.mode"
    _declare(_function, _pattern, "u32", "dtype", dtype=_TYPE, mode=".clamp .wrap")


def vset(
    a: int, b: int, c: int = 0, asel: int = 0, bsel: int = 0, dsel: int = _WORD, cmp: int = 0, op2: int = _NONE,
    asigned: int = 0, bsigned: int = 0,
) -> int:  # fmt: skip
    """Whether the selected parts compare so: 1 or 0."""
    x, y = part(a, asel, asigned), part(b, bsel, bsigned)
    return finish(1 if ordered(cmp, x < y, x == y) else 0, c, 0, op2, dsel, 0)


_declare(vset, "vset.atype.btype.cmp", "btype", "u32", btype=_TYPE, cmp=".eq .ne .lt .le .gt .ge")


def vmad(
    a: int, b: int, c: int, asel: int, bsel: int, aneg: int, bneg: int, cneg: int, po: int, sat: int, scale: int,
    asigned: int, bsigned: int,
) -> int:  # fmt: skip
    """Product plus c, either negated, or both and one more (.po); shifted right, clamped with .sat.

    Unsigned throughout if a and b are and nothing is negated, else signed: c is then extended with its sign.
    """
    negative = aneg ^ bneg
    signed = asigned or bsigned or negative or cneg
    product = wrap64(part(a, asel, asigned) * part(b, bsel, bsigned))
    # An unsigned product of 2**62 or more leaves every range, but not 64 bits, after it was negated or shifted.
    huge = not asigned and not bsigned and shr64(product, 62) != 0
    addend = sign_extend(c, 32) if signed else c
    total = wrap64((-product if negative else product) + (-addend if cneg else addend) + po)
    shifted = (total >> scale) if signed else shr64(total, scale)
    if not sat:
        return shifted
    if signed and huge:
        return -0x80000000 if negative else 0x7FFFFFFF
    if not signed and shr64(shifted, 32) != 0:
        return 0xFFFFFFFF
    return saturate(shifted, 32, 1 if signed else 0)


_vmad: Declare = partial(instruction, section="9.7.18.1.3", dtype=_TYPE, atype=_TYPE, btype=_TYPE)
_VMAD = "d, -a.part:atype, -b.part:btype, -c:u32"
_vmad("vmad.dtype.atype.btype{.po}{.sat}", _VMAD, given={"scale": 0})(vmad)
_vmad("vmad.dtype.atype.btype{.po}{.sat}.scale", _VMAD, scale=".shr7 .shr15")(vmad)
