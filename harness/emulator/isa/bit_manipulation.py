"""Counting, finding, reversing and extracting bits (ISA 9.7.1), and carry-less products."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import CLAMP, HI
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import clz64, mask, popcount64, scalar, shl64, shr64, sign_extend

_BITS = ".b32 .b64"
_WORDS = ".u32 .u64 .s32 .s64"


@scalar
def unsigned(a: int, width: int) -> int:
    """The pattern of a register, zero-extended (64 bits: as it is)."""
    return a if width == 64 else a & mask(width)


@instruction("popc.type", "d:u32, a:type", section="9.7.1.14", type=_BITS)
def popc(a: int) -> int:
    """Number of ones."""
    return popcount64(a)


@instruction("clz.type", "d:u32, a:type", section="9.7.1.15", type=_BITS)
def clz(a: int, width: int) -> int:
    """Number of zeros above the highest one; the width if there is none."""
    return clz64(a) - 64 + width


@instruction("bfind{.shiftamt}.type", "d:u32, a:type", section="9.7.1.16", type=_WORDS)
def bfind(a: int, shiftamt: int, width: int, signed: int) -> int:
    """Position of the highest bit that differs from the sign (unsigned: of the highest one); all ones if there is none.

    With .shiftamt: the left shift that moves it to the top; again all ones if there is none.
    """
    found = 63 - clz64(unsigned(~a if signed and a < 0 else a, width))
    if found < 0:
        return -1
    return width - 1 - found if shiftamt else found


@instruction("fns.b32", "d, mask, base, offset:bits s32", section="9.7.1.17")
def fns(mask: int, base: int, offset: int) -> int:
    """Position of the n-th one at or above `base` (offset n > 0), at or below it (n < 0), or at it (0); else all ones.

    A base above 31, which the ISA leaves undefined, finds nothing. An offset of -2**31 gives 0 (both on an H200).
    ptxas also accepts float registers and constants, and uses their bits.
    """
    if offset == -0x80000000:
        return 0
    if base > 31:
        return -1
    if offset == 0:
        return base if mask >> base & 1 else -1
    step = 1 if offset > 0 else -1
    left = abs(offset)
    place = base
    while 0 <= place < 32:
        left -= mask >> place & 1
        if left == 0:
            return place
        place += step
    return -1


@scalar
def reverse(a: int, width: int) -> int:
    """The bits in the opposite order."""
    result = 0
    for i in range(width):
        result = shl64(result, 1) | (shr64(a, i) & 1)
    return result


@instruction("brev.type", "d, a", section="9.7.1.18", type=_BITS, undefined="moves a")
def brev(a: int, width: int) -> int:
    """The bits in the opposite order."""
    return reverse(a, width)


@scalar
def field_place(x: int, width: int) -> int:
    """The start or length of a bit field, as the hardware reads the operand."""
    return x & 0xFF if width == 32 else x


@instruction("bfe.type", "d, a, b:u32, c:u32", section="9.7.1.19", type=_WORDS, undefined="moves a", small="b c")
def bfe(a: int, b: int, c: int, width: int, signed: int) -> int:
    """The field of c bits from bit b on; bits above the register are copies of the sign, or zero.

    If signed, the result is filled with the field's highest bit, or with the register's if the field extends beyond it.
    An empty field gives 0. For 32 bits, b and c are taken modulo 256, as the ISA says; for 64 bits, ptxas's code uses
    all their bits.
    """
    start, length = field_place(b, width), field_place(c, width)
    if length == 0:
        return 0
    field = (a >> min(start, 63) if signed else shr64(a, min(start, 63))) if start < width or signed else 0
    if start + length >= width:
        return field
    return sign_extend(field, length) if signed else field & mask(length)


@instruction("bfi.type", "f, a, b, c:u32, d:u32", section="9.7.1.20", type=_BITS, undefined="moves a b", small="c d")
def bfi(a: int, b: int, c: int, d: int, width: int) -> int:
    """b with the low bits of a in its field of d bits from bit c on (c and d as for bfe)."""
    start, length = field_place(c, width), field_place(d, width)
    if start >= width:
        return b
    field = shl64(mask(min(length, width)), start)
    return (shl64(a, start) & field) | (b & ~field)


@instruction(
    "szext.mode.type", "d, a, b:u32", section="9.7.1.21", mode=".wrap .clamp", type=".u32 .s32", undefined="moves a"
)
def szext(a: int, b: int, mode: int, signed: int) -> int:
    """The low b bits of a, extended; 0 for b = 0. With .wrap b is taken modulo 32; else b above 31 keeps all of a."""
    if mode == CLAMP and b >= 32:
        return a
    length = b & 31
    if length == 0:
        return 0
    return sign_extend(a, length) if signed else a & mask(length)


@instruction("bmsk.mode.b32", "d:u32, a:u32, b:u32", section="9.7.1.22", mode=".wrap .clamp")
def bmsk(a: int, b: int, mode: int) -> int:
    """b ones from bit a on, as far as they fit.

    With .wrap a and b are taken modulo 32; with .clamp a above 31 gives 0.
    """
    if mode == CLAMP:
        return 0 if a >= 32 else mask(min(b, 32)) << a
    return mask(b & 31) << (a & 31)


@instruction(
    "clmad.mode.type", "d, a, b, c", section="9.7.1.5 (ISA 9.3)", mode=".hi .lo", type=".u64 .s64", requires=90
)
def clmad(a: int, b: int, c: int, mode: int) -> int:
    """Half of the carry-less product (the product of polynomials over two elements), exclusive-or c.

    The ISA has it from sm_80 on, but ptxas 12.9, which Triton uses below sm_90, does not have it. There is no .s64
    form.
    """
    low, high = 0, 0
    for i in range(64):
        if shr64(b, i) & 1:
            low ^= shl64(a, i)
            high ^= shr64(a, 64 - i) if i else 0
    return (high if mode == HI else low) ^ c
