"""Shifts and byte permutation (ISA 9.7.8, 9.7.9)."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import B4E, CLAMP, ECL, ECR, F4E, LEFT, RC8
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar, shl64, shr64

_BITS = ".b16 .b32 .b64"


@instruction(
    "shf.dir.mode.b32", "d, a, b, c:u32", section="9.7.8.7", dir=".l .r", mode=".wrap .clamp", undefined="moves a b"
)
def shf(a: int, b: int, c: int, dir: int, mode: int) -> int:
    """The upper (.l) or lower (.r) word of b:a shifted by c, where c is clamped to 32 (.clamp) or taken modulo 32
    (.wrap)."""
    amount = min(c, 32) if mode == CLAMP else c & 31
    pair = shl64(b, 32) | a
    return shr64(shl64(pair, amount), 32) if dir == LEFT else shr64(pair, amount)


@instruction("shl.type", "d, a, b:u32", section="9.7.8.8", type=_BITS, undefined="moves a")
def shl(a: int, b: int, width: int) -> int:
    """Left shift; an amount of the width or more gives 0."""
    if b >= width:
        return 0
    return shl64(a, b)


@instruction(
    "shr.type", "d, a, b:u32", section="9.7.8.9", type=_BITS + " .u16 .u32 .u64 .s16 .s32 .s64", undefined="moves a"
)
def shr(a: int, b: int, width: int, signed: int) -> int:
    """Right shift, filling with the sign if signed, with 0 otherwise; larger amounts behave as the width."""
    if signed:
        return a >> min(b, 63)
    if b >= width:
        return 0
    return shr64(a, b)


@scalar
def picked(a: int, b: int, place: int) -> int:
    """Byte `place` (0 to 7) of b:a."""
    return shr64(shl64(b, 32) | a, 8 * place) & 0xFF


@instruction("prmt.b32", "d, a, b, c", section="9.7.9.7", undefined="moves a b")
def prmt(a: int, b: int, c: int) -> int:
    """Four bytes of b:a. Each selector digit names a byte; its top bit replicates that byte's sign instead."""
    result = 0
    for i in range(4):
        selector = c >> (4 * i)
        byte = picked(a, b, selector & 7)
        if selector & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << (8 * i)
    return result


@instruction(
    "prmt.b32.mode", "d, a, b, c", section="9.7.9.7", mode=".f4e .b4e .rc8 .ecl .ecr .rc16", undefined="moves a b"
)
def prmt_mode(a: int, b: int, c: int, mode: int) -> int:
    """Four bytes of b:a in a pattern that starts at the byte in the low two bits of c.

    .f4e forwards from byte c, .b4e backwards from it, .rc8 byte c four times, .rc16 half c (modulo 2) twice,
    .ecl and .ecr bytes 0 to 3 with those below or above c replaced by it.
    """
    first = c & 3
    result = 0
    for i in range(4):
        if mode == F4E:
            place = first + i
        elif mode == B4E:
            place = (first - i) & 7
        elif mode == RC8:
            place = first
        elif mode == ECL:
            place = max(i, first)
        elif mode == ECR:
            place = min(i, first)
        else:
            place = (first & 1) * 2 + (i & 1)
        result |= picked(a, b, place) << (8 * i)
    return result
