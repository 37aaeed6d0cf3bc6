"""Video instructions on two halves or four bytes at once (ISA 9.7.18.2).

Selectors choose the elements of both sources from b:a. Without .add the results replace the elements of c in the
destination's mask; with .add they are added to the whole of c.

The definitions follow the pseudocode of the ISA; an H200 agrees (ptxas 12.9) on every input tried. (The text on vset2
and vset4 says that other elements come from b.)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ptxdiff.emulator.isa.compare import ordered
from ptxdiff.emulator.isa.integer import saturate
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import mask, scalar, shl64, shr64, sign_extend

Declare = Callable[..., Callable[[Callable[..., int]], Any]]

_instruction: Declare = instruction
_TYPE = ".u32 .s32"
_CMP = ".eq .ne .lt .le .gt .ge"


@scalar
def element(a: int, b: int, sel: int, i: int, bits: int, signed: int) -> int:
    """Element `i` of a source: the element of b:a that digit `i` of the selector names."""
    pool = shl64(b, 32) | (a & 0xFFFFFFFF)
    value = shr64(pool, bits * (sel >> (4 * i) & 15)) & mask(bits)
    return sign_extend(value, bits) if signed else value


@scalar
def joined(total: int, value: int, i: int, bits: int, dsel: int, add: int) -> int:
    """`total` (initially c) with the result of element `i` added or inserted, if the mask contains i."""
    if not dsel >> i & 1:
        return total
    if add:
        return total + value
    field = mask(bits) << (bits * i)
    return ((value << (bits * i)) & field) | (total & ~field)


def _declare(function: Callable[..., int], pattern: str, c: str, sat: bool, **groups: str) -> None:
    """Declare the rows of an instruction: merging and adding, for halves (`pattern` with 2) and bytes (with 4)."""
    for count, kind, sel in ((2, "halves", "pair"), (4, "bytes", "quad")):
        operands = f"d.{kind}:{c}, a.{sel}:atype, b.{sel}:btype, c:{c}"
        opcode, _, rest = pattern.partition(".")
        row: Declare = partial(
            _instruction, section="9.7.18.2", atype=_TYPE, btype=_TYPE, given={"bits": 32 // count}, **groups
        )
        row(f"{opcode}{count}.{rest}{'{.sat}' if sat else ''}", operands)(function)
        row(f"{opcode}{count}.{rest}.add", operands)(function)


def vadd(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """Sums of the elements."""
    total = c
    for i in range(32 // bits):
        value = element(a, b, asel, i, bits, asigned) + element(a, b, bsel, i, bits, bsigned)
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


def vsub(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """Differences of the elements."""
    total = c
    for i in range(32 // bits):
        value = element(a, b, asel, i, bits, asigned) - element(a, b, bsel, i, bits, bsigned)
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


def vavrg(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """Averages of the elements, with ties rounded away from zero."""
    total = c
    for i in range(32 // bits):
        value = element(a, b, asel, i, bits, asigned) + element(a, b, bsel, i, bits, bsigned)
        value = (value + 1 if value >= 0 else value) >> 1
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


def vabsdiff(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """Absolute differences of the elements."""
    total = c
    for i in range(32 // bits):
        value = abs(element(a, b, asel, i, bits, asigned) - element(a, b, bsel, i, bits, bsigned))
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


def vmin(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """The smaller of each pair of elements."""
    total = c
    for i in range(32 // bits):
        value = min(element(a, b, asel, i, bits, asigned), element(a, b, bsel, i, bits, bsigned))
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


def vmax(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, asigned: int, bsigned: int, dsigned: int,
    sat: int = 0, add: int = 0,
) -> int:  # fmt: skip
    """The larger of each pair of elements."""
    total = c
    for i in range(32 // bits):
        value = max(element(a, b, asel, i, bits, asigned), element(a, b, bsel, i, bits, bsigned))
        total = joined(total, saturate(value, bits, dsigned) if sat else value, i, bits, dsel, add)
    return total


for _function in (vadd, vsub, vavrg, vabsdiff, vmin, vmax):
    _declare(_function, f"{_function.__name__}.dtype.atype.btype", "dtype", True, dtype=_TYPE)


def vset(
    a: int, b: int, c: int, bits: int, asel: int, bsel: int, dsel: int, cmp: int, asigned: int, bsigned: int,
    add: int = 0,
) -> int:  # fmt: skip
    """The comparison of each pair of elements: 1 or 0."""
    total = c
    for i in range(32 // bits):
        x, y = element(a, b, asel, i, bits, asigned), element(a, b, bsel, i, bits, bsigned)
        total = joined(total, 1 if ordered(cmp, x < y, x == y) else 0, i, bits, dsel, add)
    return total


_declare(vset, "vset.atype.btype.cmp", "u32", False, cmp=_CMP)
