"""float64 arithmetic (ISA 9.7.3).

Subnormals are always kept. A NaN operand is returned quiet with its sign; `f64_nan` says which of several. An invalid
operation on numbers gives 0xfff8000000000000. All this was measured on an H200; the ISA does not define it. Division,
reciprocal and root are sequences that ptxas inserts; their handling of NaNs follows from the sequences.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.binary64 import divide64, f64_is_nan, f64_nan, fma64, root64
from ptxdiff.emulator.numeric.bits import SIGN64, divide, f64_bits, f64_value

RND = ".rn .rz .rm .rp"
_ONE = 0x3FF0000000000000


@instruction("add{.rnd}.f64", "d, a, b", section="9.7.3.3", rnd=RND, contracts="add")
def add_f64(a: int, b: int, rnd: int) -> int:
    """Sum, rounded once; an exact zero sum is +0, or -0 when rounding down."""
    if rnd:
        return fma64(a, _ONE, b, rnd)
    s = f64_value(a) + f64_value(b)
    return f64_nan(b, a) if s != s else f64_bits(s)


@instruction("sub{.rnd}.f64", "d, a, b", section="9.7.3.4", rnd=RND, contracts="sub")
def sub_f64(a: int, b: int, rnd: int) -> int:
    """Difference: the sum with the second sign reversed, except a NaN's."""
    return add_f64(a, b if f64_is_nan(b) else b ^ SIGN64, rnd)


@instruction("mul{.rnd}.f64", "d, a, b", section="9.7.3.5", rnd=RND, contracts="mul")
def mul_f64(a: int, b: int, rnd: int) -> int:
    """Product, rounded once."""
    if rnd:
        # Adding a zero of the product's sign does not change the product.
        return fma64(a, b, (a ^ b) & SIGN64, rnd)
    p = f64_value(a) * f64_value(b)
    return f64_nan(b, a) if p != p else f64_bits(p)


@instruction("fma.rnd.f64", "d, a, b, c", section="9.7.3.6", rnd=RND)
@instruction("mad.rnd.f64", "d, a, b, c", section="9.7.3.7", rnd=RND)
def fma_f64(a: int, b: int, c: int, rnd: int) -> int:
    """a * b + c, rounded once."""
    return fma64(a, b, c, rnd)


@instruction("div.rnd.f64", "d, a, b", section="9.7.3.8", rnd=RND)
def div_f64(a: int, b: int, rnd: int) -> int:
    """Quotient, rounded once."""
    if rnd:
        return divide64(a, b, rnd)
    q = divide(f64_value(a), f64_value(b))
    return f64_nan(a, b) if q != q else f64_bits(q)


@instruction("rcp.rnd{.ftz}.f64", "d, a", section="9.7.3.13", rnd=RND)
def rcp_f64(a: int, rnd: int) -> int:
    """Reciprocal, rounded once. ptxas accepts .ftz but generates the same code, which keeps subnormals."""
    return div_f64(_ONE, a, rnd)


@instruction("sqrt.rnd.f64", "d, a", section="9.7.3.15", rnd=RND)
def sqrt_f64(a: int, rnd: int) -> int:
    """Square root, rounded once; -0 for -0, NaN for negative arguments."""
    return root64(a, rnd)
