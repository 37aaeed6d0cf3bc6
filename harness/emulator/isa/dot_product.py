"""Dot products of small integers (ISA 9.7.1)."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import HI
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import scalar, sign_extend

_TYPE = ".u32 .s32"


@scalar
def part(x: int, i: int, bits: int, signed: int) -> int:
    """Part `i`, of that many bits, of a register."""
    value = x >> (i * bits)
    return sign_extend(value, bits) if signed else value & ((1 << bits) - 1)


@instruction("dp4a.atype.btype", "d:u32, a:u32, b:u32, c:u32", section="9.7.1.23", atype=_TYPE, btype=_TYPE)
def dp4a(a: int, b: int, c: int, asigned: int, bsigned: int) -> int:
    """c plus the four products of bytes of a and b, wrapping."""
    total = c
    for i in range(4):
        total += part(a, i, 8, asigned) * part(b, i, 8, bsigned)
    return total


@instruction(
    "dp2a.mode.atype.btype",
    "d:u32, a:u32, b:u32, c:u32",
    section="9.7.1.24",
    mode=".lo .hi",
    atype=_TYPE,
    btype=_TYPE,
)
def dp2a(a: int, b: int, c: int, mode: int, asigned: int, bsigned: int) -> int:
    """c plus the products of the halves of a and the lower (.lo) or upper (.hi) two bytes of b, wrapping."""
    first = 2 if mode == HI else 0
    total = c
    for i in range(2):
        total += part(a, i, 16, asigned) * part(b, first + i, 8, bsigned)
    return total
