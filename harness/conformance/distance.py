"""The distance between two results of an approximate instruction."""

from __future__ import annotations

from ptxdiff.emulator.numeric.bits import mask, scalar

DIFFERENT = -1
"""No distance is defined: NaN, infinity or zero on one side only, different NaNs, zeros of different sign."""


@scalar
def code_distance(expected: int, got: int, ebits: int, mbits: int) -> int:
    """Ulps between two floats, at most 2**31 - 1; DIFFERENT if the distance is not defined."""
    if expected == got:
        return 0
    size = ebits + mbits
    a, b = expected & mask(size), got & mask(size)
    top = mask(ebits) << mbits
    if a >= top or b >= top or a == 0 or b == 0:
        return -1
    farthest = 0x7FFFFFFF
    # Clamped before the addition, because the sum of two float64 patterns may exceed 2**63.
    apart = abs(a - b) if (expected ^ got) >> size & 1 == 0 else min(a, farthest) + min(b, farthest)
    return min(apart, farthest)


@scalar
def distance(expected: int, got: int, codes: int, width: int, ebits: int, mbits: int) -> int:
    """The greatest distance of a register's codes in ulp, or DIFFERENT. Unequal integers are DIFFERENT."""
    worst = 0
    for place in range(codes):
        a = expected >> (place * width) & mask(width)
        b = got >> (place * width) & mask(width)
        if ebits == 0 and a != b:
            return -1
        apart = code_distance(a, b, ebits, mbits) if ebits else 0
        if apart < 0:
            return -1
        worst = max(worst, apart)
    return worst
