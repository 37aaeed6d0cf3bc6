"""float32 arithmetic (ISA 9.7.3)."""

from __future__ import annotations

from harness.ptx.bits import divide, f32_value, f64_bits, scalar
from harness.ptx.softfloat import (
    add_odd,
    f32_flush,
    f32_from_f64,
    f32_is_nan,
    f32_saturate,
    f32_zero_sign,
)

from .registry import instruction

RND = ".rn .rz .rm .rp"


@scalar
def _key(a: int) -> int:
    """A number ordered as the float32 it comes from, -0 just below +0."""
    return 0x7FFFFFFF - a if a & 0x80000000 else a


@scalar
def _sign(x: float) -> int:
    """The sign of a float64 as a float32's sign bit, zeros included."""
    return 0x80000000 if f64_bits(x) < 0 else 0


@instruction("add{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.3", rnd=RND, contracts="add")
def add_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Sum, rounded once. NaN is 0x7fffffff; an exact zero sum is +0, or -0 when rounding down."""
    a, b = f32_flush(a, ftz), f32_flush(b, ftz)
    x, y = f32_value(a), f32_value(b)
    s = x + y
    if s != s:
        return 0 if sat else 0x7FFFFFFF
    if s == 0.0:
        return f32_saturate(f32_zero_sign(s, a, b, rnd), sat)
    if rnd != 0:
        s = add_odd(x, y)
    return f32_saturate(f32_flush(f32_from_f64(s, rnd), ftz), sat)


@instruction("sub{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.4", rnd=RND, contracts="sub")
def sub_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Difference: the sum with the second sign reversed."""
    return add_f32(a, b ^ 0x80000000, rnd, ftz, sat)


@instruction("mul{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.5", rnd=RND, contracts="mul")
def mul_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Product, rounded once."""
    p = f32_value(f32_flush(a, ftz)) * f32_value(f32_flush(b, ftz))
    if p != p:
        return 0 if sat else 0x7FFFFFFF
    return f32_saturate(f32_flush(f32_from_f64(p, rnd), ftz), sat)


@instruction("fma.rnd{.ftz}{.sat}.f32", "d, a, b, c", section="9.7.3.6", rnd=RND)
@instruction("mad.rnd{.ftz}{.sat}.f32", "d, a, b, c", section="9.7.3.7", rnd=RND)
def fma_f32(a: int, b: int, c: int, rnd: int, ftz: int, sat: int) -> int:
    """a * b + c, rounded once."""
    c = f32_flush(c, ftz)
    p = f32_value(f32_flush(a, ftz)) * f32_value(f32_flush(b, ftz))
    z = f32_value(c)
    s = p + z
    if s != s:
        return 0 if sat else 0x7FFFFFFF
    if s == 0.0:
        # An exact zero sum of opposite signs (or of two zeros that differ) is -0 only when rounding down.
        return f32_saturate(f32_zero_sign(s, _sign(p), c, rnd), sat)
    return f32_saturate(f32_flush(f32_from_f64(add_odd(p, z), rnd), ftz), sat)


@instruction("div.rnd{.ftz}.f32", "d, a, b", section="9.7.3.8", rnd=RND)
def div_f32(a: int, b: int, rnd: int, ftz: int) -> int:
    """Quotient, rounded once. float64's quotient is far enough from every float32 midpoint to round again."""
    q = divide(f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz)))
    return f32_flush(f32_from_f64(q, rnd), ftz)


@instruction("rcp.rnd{.ftz}.f32", "d, a", section="9.7.3.12", rnd=RND)
def rcp_f32(a: int, rnd: int, ftz: int) -> int:
    """Reciprocal, rounded once."""
    return div_f32(0x3F800000, a, rnd, ftz)


@instruction("min{.ftz}{.NaN}{.xorsign}{.abs}.f32", "d, a, b", section="9.7.3.10", needs={"NaN": 80, "xorsign": 86})
def min_f32(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """The smaller; -0 is less than +0; one NaN gives the other operand, or NaN with .NaN."""
    a, b = f32_flush(a, ftz), f32_flush(b, ftz)
    sign = (a ^ b) & 0x80000000
    if xorsign:
        a, b = a & 0x7FFFFFFF, b & 0x7FFFFFFF
    if f32_is_nan(a) or f32_is_nan(b):
        if NaN or (f32_is_nan(a) and f32_is_nan(b)):
            return 0x7FFFFFFF
        result = b if f32_is_nan(a) else a
    else:
        result = a if _key(a) < _key(b) else b
    return (result & 0x7FFFFFFF) | sign if xorsign else result


@instruction("max{.ftz}{.NaN}{.xorsign}{.abs}.f32", "d, a, b", section="9.7.3.11", needs={"NaN": 80, "xorsign": 86})
def max_f32(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """The larger; -0 is less than +0; one NaN gives the other operand, or NaN with .NaN."""
    a, b = f32_flush(a, ftz), f32_flush(b, ftz)
    sign = (a ^ b) & 0x80000000
    if xorsign:
        a, b = a & 0x7FFFFFFF, b & 0x7FFFFFFF
    if f32_is_nan(a) or f32_is_nan(b):
        if NaN or (f32_is_nan(a) and f32_is_nan(b)):
            return 0x7FFFFFFF
        result = b if f32_is_nan(a) else a
    else:
        result = a if _key(a) > _key(b) else b
    return (result & 0x7FFFFFFF) | sign if xorsign else result
