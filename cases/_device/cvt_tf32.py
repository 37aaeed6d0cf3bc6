"""float32 to tf32 in integers."""

import triton
import triton.language as tl


@triton.jit
def in_integers(x, NEAREST: tl.constexpr, AWAY: tl.constexpr):
    """NEAREST adds half of the last place, minus one where a tie must round down to even."""
    bits = x.to(tl.uint32, bitcast=True)
    added = bits
    if AWAY:
        added = bits + 0x1000
    elif NEAREST:
        added = bits + 0xFFF + ((bits >> 13) & 1)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, added & 0xFFFFE000).to(tl.uint32)


@triton.jit
def truncated(x):
    """How a tensor core reads an unrounded operand: it ignores the lower 13 bits."""
    return x.to(tl.uint32, bitcast=True) & 0xFFFFE000
