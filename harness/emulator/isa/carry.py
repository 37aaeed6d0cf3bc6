"""Extended-precision integer arithmetic: the carry flag CC.CF (ISA 9.7.2).

Each definition computes the result (`result` 0) or the carry out (`result` 1). The ISA calls the flag of a subtraction
a borrow. On hardware (H200, ptxas 12.9) it is the carry of a + ~b + 1, which is 1 if there was no borrow, and subc
borrows if the flag is 0. The difference is visible in sequences that mix additions and subtractions.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.integer import product_high, saturate
from ptxdiff.emulator.isa.modifiers import HI
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import below64, mask, scalar, wrap64

_WORDS = ".u32 .s32 .u64 .s64"
_HALF = ".u16 .s16"


@scalar
def carry_out(a: int, b: int, cc: int, width: int) -> int:
    """Bit `width` of the sum of two unsigned patterns and a carry."""
    if width < 64:
        return ((a & mask(width)) + (b & mask(width)) + cc) >> width
    total = wrap64(a + b + cc)
    return 1 if below64(total, a) or (cc != 0 and total == a) else 0


@scalar
def borrow_out(a: int, b: int, cc: int, width: int) -> int:
    """Whether unsigned `a` is less than `b` plus a borrow."""
    if width < 64:
        return 1 if (a & mask(width)) < (b & mask(width)) + cc else 0
    return 1 if below64(a, b) or (cc != 0 and a == b) else 0


@instruction("add.cc.type", "d, a, b", section="9.7.2.1", type=_WORDS, writes="cc")
def add_cc(a: int, b: int, width: int, result: int) -> int:
    """Sum; the carry out goes to the flag."""
    return carry_out(a, b, 0, width) if result else a + b


@instruction("addc.cc.type", "d, a, b", section="9.7.2.2", type=_WORDS, reads="cc", writes="cc")
@instruction("addc.type", "d, a, b", section="9.7.2.2", type=_WORDS + " " + _HALF, reads="cc")
def addc(a: int, b: int, cc: int, width: int, result: int) -> int:
    """Sum with the flag; with .cc the carry out goes to it. ptxas accepts 16 bits, which are not in the ISA."""
    return carry_out(a, b, cc, width) if result else a + b + cc


@instruction("addc.sat.s32", "d, a, b", section="9.7.2.2", reads="cc")
def addc_sat(a: int, b: int, cc: int) -> int:
    """Sum with the flag, clamped to the range of s32; accepted by ptxas, not in the ISA."""
    return saturate(a + b + cc, 32, 1)


@instruction("sub.cc.type", "d, a, b", section="9.7.2.3", type=_WORDS, writes="cc")
def sub_cc(a: int, b: int, width: int, result: int) -> int:
    """Difference; the flag becomes 0 if it borrows, else 1."""
    return 1 - borrow_out(a, b, 0, width) if result else a - b


@instruction("subc.cc.type", "d, a, b", section="9.7.2.4", type=_WORDS, reads="cc", writes="cc")
@instruction("subc.type", "d, a, b", section="9.7.2.4", type=_WORDS + " " + _HALF, reads="cc")
def subc(a: int, b: int, cc: int, width: int, result: int) -> int:
    """a - (b + borrow). Flag 0 means a borrow, both for the input and, with .cc, for the result.

    ptxas accepts 16 bits, which are not in the ISA.
    """
    return 1 - borrow_out(a, b, 1 - cc, width) if result else a - (b + 1 - cc)


@instruction("subc.sat.s32", "d, a, b", section="9.7.2.4", reads="cc")
def subc_sat(a: int, b: int, cc: int) -> int:
    """a - (b + borrow), clamped to the range of s32; accepted by ptxas, not in the ISA."""
    return saturate(a - b - (1 - cc), 32, 1)


@instruction("mad.mode.cc.type", "d, a, b, c", section="9.7.2.5", mode=".hi .lo", type=_WORDS, writes="cc")
def mad_cc(a: int, b: int, c: int, mode: int, width: int, signed: int, result: int) -> int:
    """Half of the product plus c; the carry out of that sum goes to the flag."""
    return madc(a, b, c, 0, mode, width, signed, result)


@instruction("madc.mode.cc.type", "d, a, b, c", section="9.7.2.6", mode=".hi .lo", type=_WORDS, reads="cc", writes="cc")
@instruction("madc.mode.type", "d, a, b, c", section="9.7.2.6", mode=".hi .lo", type=_WORDS + " " + _HALF, reads="cc")
def madc(a: int, b: int, c: int, cc: int, mode: int, width: int, signed: int, result: int) -> int:
    """Half of the product plus c and the flag; with .cc the carry out of that sum goes to it.

    ptxas accepts 16 bits, which are not in the ISA; .hi then starts at bit 32, which has only copies of the sign
    (H200).
    """
    half = product_high(a, b, max(width, 32), signed) if mode == HI else wrap64(a * b)
    return carry_out(half, c, cc, width) if result else half + c + cc


@instruction("madc.hi.sat.s32", "d, a, b, c", section="9.7.2.6", reads="cc")
def madc_sat(a: int, b: int, c: int, cc: int) -> int:
    """Upper half of the product plus c and the flag; accepted by ptxas, not in the ISA, and not clamped (H200)."""
    return (a * b >> 32) + c + cc
