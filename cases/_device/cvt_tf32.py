"""float32 to tf32 in integers."""

import triton
import triton.language as tl


@triton.jit
def in_integers(x, NEAREST: tl.constexpr, AWAY: tl.constexpr):
    """Of nearest, half of the last place is added, less one where a tie goes to even and stays there."""
    bits = x.to(tl.uint32, bitcast=True)
    added = bits
    if AWAY:
        added = bits + 0x1000
    elif NEAREST:
        added = bits + 0xFFF + ((bits >> 13) & 1)
    return tl.where((bits & 0x7FFFFFFF) > 0x7F800000, 0x7FFFE000, added & 0xFFFFE000).to(tl.uint32)


@triton.jit
def truncated(x):
    """What a tensor core makes of an operand that nobody rounded: the lower 13 bits are ignored."""
    return x.to(tl.uint32, bitcast=True) & 0xFFFFE000
