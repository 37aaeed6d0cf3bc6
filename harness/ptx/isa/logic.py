"""Logic and shifts (ISA 9.7.8)."""

from __future__ import annotations

from harness.ptx.bits import shl64, shr64
from harness.ptx.definedness import and_, or_, permute, shift_left, shift_right

from .registry import instruction

_BITS = ".b16 .b32 .b64"


@instruction("and.type", "d, a, b", section="9.7.8.1", type=".pred " + _BITS, undefined=and_)
def and_bits(a: int, b: int) -> int:
    """Bitwise and."""
    return a & b


@instruction("or.type", "d, a, b", section="9.7.8.2", type=".pred " + _BITS, undefined=or_)
def or_bits(a: int, b: int) -> int:
    """Bitwise or."""
    return a | b


@instruction("xor.type", "d, a, b", section="9.7.8.3", type=".pred " + _BITS, undefined="bits")
def xor_bits(a: int, b: int) -> int:
    """Bitwise exclusive or."""
    return a ^ b


@instruction("not.type", "d, a", section="9.7.8.4", type=".pred " + _BITS, undefined="bits")
def not_bits(a: int) -> int:
    """Bitwise complement."""
    return ~a


@instruction("shl.type", "d, a, b:u32", section="9.7.8.8", type=_BITS, undefined=shift_left)
def shl(a: int, b: int, width: int) -> int:
    """Left shift; an amount of the width or more gives 0."""
    if b >= width:
        return 0
    return shl64(a, b)


@instruction(
    "shr.type", "d, a, b:u32", section="9.7.8.9", type=_BITS + " .u16 .u32 .u64 .s16 .s32 .s64", undefined=shift_right
)
def shr(a: int, b: int, width: int, signed: int) -> int:
    """Right shift, filling with the sign if signed, with 0 otherwise; larger amounts behave as the width."""
    if signed:
        return a >> min(b, 63)
    if b >= width:
        return 0
    return shr64(a, b)


@instruction("lop3.b32", "d, a, b, c, immLut:const b32", section="9.7.8.6", undefined="bits")
def lop3(a: int, b: int, c: int, immLut: int) -> int:
    """Any function of three bits, by its truth table: bit 4a + 2b + c of immLut."""
    result = 0
    for row in range(8):
        x = a if row & 4 else ~a
        y = b if row & 2 else ~b
        z = c if row & 1 else ~c
        result |= x & y & z & -(immLut >> row & 1)
    return result


@instruction("prmt.b32", "d, a, b, c", section="9.7.9.7", undefined=permute)
def prmt(a: int, b: int, c: int) -> int:
    """Four bytes picked from {b, a}: each selector digit names a byte, its top bit spreads that byte's sign."""
    pool = shl64(b, 32) | a
    result = 0
    for i in range(4):
        selector = c >> (4 * i)
        byte = shr64(pool, 8 * (selector & 7)) & 0xFF
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * i)
    return result
