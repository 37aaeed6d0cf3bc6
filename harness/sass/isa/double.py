"""float64 arithmetic. The negation of a NaN leaves its sign as it is."""

from __future__ import annotations

from ptxdiff.emulator.isa.compare import combine
from ptxdiff.emulator.isa.compare_float import compared
from ptxdiff.emulator.isa.float64 import add_f64, fma_f64, mul_f64
from ptxdiff.emulator.numeric.floatbits import F64, is_nan, order
from ptxdiff.sass.isa.single import BOOLEANS, COMPARISONS, ROUNDINGS
from ptxdiff.sass.rows import row


@row("DADD{.rnd}", "R2 = d,d", rnd=ROUNDINGS)
def dadd(a: int, b: int, rnd: int) -> int:
    """Sum."""
    return add_f64(a, b, rnd)


@row("DMUL{.rnd}", "R2 = d,d", rnd=ROUNDINGS)
def dmul(a: int, b: int, rnd: int) -> int:
    """Product."""
    return mul_f64(a, b, rnd)


@row("DFMA{.rnd}", "R2 = d,d,d", rnd=ROUNDINGS)
def dfma(a: int, b: int, c: int, rnd: int) -> int:
    """Fused product and sum."""
    return fma_f64(a, b, c, rnd)


@row("DSETP.cmp.bool", "P,P = d,d,p", cmp=COMPARISONS, bool=BOOLEANS)
def dsetp(a: int, b: int, c: int, cmp: int, bool: int, result: int) -> int:
    """A comparison joined with a predicate; the second destination gets the opposite comparison, joined too."""
    return combine(compared(a, b, cmp, 0, F64) == (result == 0), c, bool)


def _same_number(a: int, b: int) -> int:
    """Whether two patterns are one number: it is not known which of two equal ones DSETP.MIN and .MAX choose."""
    return 1 if a == b and not is_nan(a, F64) else 0


@row("DSETP.which.AND", "P,P = d,d,PT", which={"MIN": 0, "MAX": 1}, undecided=_same_number)
def dsetp_extreme(a: int, b: int, which: int, result: int) -> int:
    """Whether the first number is the smaller, or the larger, where -0 is below +0 and a NaN loses; for two NaN not.

    The second destination: whether both are NaN.
    """
    if result == 1:
        return 1 if is_nan(a, F64) and is_nan(b, F64) else 0
    if is_nan(a, F64) or is_nan(b, F64):
        return 0 if is_nan(a, F64) else 1
    x, y = order(a, F64), order(b, F64)
    return 1 if (x > y if which else x < y) else 0
