"""The quadratic interpolator of a special function unit.

How such a unit works is published: a significand's upper bits choose a segment, and its lower bits are the argument of
a polynomial of degree two, whose square omits the partial-product columns of low weight (S. F. Oberman and M. Y. Siu,
"A High-Performance Area-Efficient Multifunction Interpolator", 17th IEEE Symposium on Computer Arithmetic, 2005).
Widths are parameters here; the coefficients of one generation of GPUs are in `ptxdiff.emulator.numeric.hopper`.
"""

from __future__ import annotations

from ptxdiff.emulator.numeric.bits import scalar


@scalar
def _row(x: int, i: int, cut: int) -> int:
    """Row i of the square of x, from weight `cut` on: bit i times itself (weight 2i), and twice bit i times lower bits;
    2i >= cut."""
    return ((1 << (2 * i - cut)) + ((x & ((1 << i) - 1)) << (i + 1) >> cut)) & -(x >> i & 1)


@scalar
def truncated_square(x: int, bits: int, cut: int) -> int:
    """The truncated square of a number of `bits` bits, in units of 2**cut: only partial-product columns from 2**cut
    on."""
    total = 0
    for i in range((cut + 1) >> 1, bits):
        total += _row(x, i, cut)
    return total


@scalar
def square_of_steps(x: int) -> int:
    """truncated_square(x, 17, 19), unrolled: compilers vectorise it, which is three times as fast."""
    upper = _row(x, 16, 19) + _row(x, 15, 19) + _row(x, 14, 19)
    return upper + _row(x, 13, 19) + _row(x, 12, 19) + _row(x, 11, 19) + _row(x, 10, 19)


@scalar
def interpolated(constant: int, slope: int, curve: int, steps: int) -> int:
    """constant + slope * steps + curve * steps**2 / 2**19 with the truncated square; `steps` has 17 bits."""
    return constant + slope * steps + curve * square_of_steps(steps)
