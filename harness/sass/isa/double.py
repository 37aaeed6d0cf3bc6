"""float64 arithmetic. The negation of a NaN leaves its sign as it is."""

from __future__ import annotations

from ptxdiff.emulator.isa.compare import combine
from ptxdiff.emulator.isa.compare_float import compared
from ptxdiff.emulator.isa.float64 import add_f64, fma_f64, mul_f64
from ptxdiff.emulator.numeric.floatbits import F64
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
