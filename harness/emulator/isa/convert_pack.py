"""cvt.pack: two clamped integers in one register (ISA 9.7.9.23)."""

from __future__ import annotations

from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import mask, scalar


@scalar
def _clamped(a: int, width: int, signed: int) -> int:
    """A signed number clamped to a type's range, as a pattern of that width."""
    low = -(1 << (width - 1)) if signed else 0
    return min(max(a, low), low + (1 << width) - 1) & mask(width)


@instruction(
    "cvt.pack.sat.ctype.s32", "d:u32, a:s32, b:s32", section="9.7.9.23", requires=72, ctype=".u16 .s16", relaxed=True
)
def cvt_pack(a: int, b: int, cwidth: int, csigned: int) -> int:
    """`a` in the upper half, `b` in the lower."""
    return _clamped(a, cwidth, csigned) << cwidth | _clamped(b, cwidth, csigned)


@instruction(
    "cvt.pack.sat.ctype.s32.b32",
    "d:u32, a:s32, b:s32, c:b32",
    section="9.7.9.23",
    requires=72,
    needs=dict.fromkeys(("u4", "s4", "u2", "s2"), 75),
    ctype=".u2 .s2 .u4 .s4 .u8 .s8",
    relaxed=True,
)
def cvt_pack_onto(a: int, b: int, c: int, cwidth: int, csigned: int) -> int:
    """From the low bits up: `b`, `a`, and the lower bits of `c`."""
    return c << 2 * cwidth | _clamped(a, cwidth, csigned) << cwidth | _clamped(b, cwidth, csigned)
