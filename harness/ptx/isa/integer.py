"""Integer arithmetic (ISA 9.7.1)."""

from __future__ import annotations

from .registry import instruction

_INT = ".u16 .u32 .u64 .s16 .s32 .s64"


@instruction("add.type", "d, a, b", section="9.7.1.1", type=_INT)
def add(a: int, b: int) -> int:
    """Sum, wrapping."""
    return a + b


@instruction("sub.type", "d, a, b", section="9.7.1.2", type=_INT)
def sub(a: int, b: int) -> int:
    """Difference, wrapping."""
    return a - b
