"""float16 arithmetic, one or two values a register (ISA 9.7.4)."""

from __future__ import annotations

from harness.ptx.bits import scalar
from harness.ptx.softfloat import add_odd, f16_from_f64, f16_value

from .registry import instruction

_NEEDS = {"relu": 80, "NaN": 80, "xorsign": 86, "oob": 90}


@scalar
def f16_is_nan(a: int) -> bool:
    """Whether a float16 pattern is a NaN."""
    return (a & 0x7FFF) > 0x7C00


@scalar
def f16_flush(a: int, ftz: int) -> int:
    """A float16 pattern with subnormals replaced by zero of their sign, if `ftz`."""
    if ftz and (a & 0x7C00) == 0:
        return a & 0x8000
    return a


@scalar
def _finish(a: int, ftz: int, sat: int, relu: int) -> int:
    """What follows rounding: flush, then clamp to [0, 1] (NaN to +0) or to zero and above (NaN stays)."""
    a = f16_flush(a, ftz)
    if sat:
        if a > 0x7C00:
            return 0
        return 0x3C00 if a > 0x3C00 else a
    if relu and a & 0x8000:
        return 0x7FFF if f16_is_nan(a) else 0
    return a


@scalar
def _key(a: int) -> int:
    """A number ordered as the float16 it comes from, -0 just below +0."""
    return 0x7FFF - a if a & 0x8000 else a


@instruction("add{.rnd}{.ftz}{.sat}.f16", "d, a, b", section="9.7.4.1", rnd=".rn", contracts="add")
def add_f16(a: int, b: int, ftz: int, sat: int) -> int:
    """Sum, rounded to nearest even; exact in float64."""
    s = f16_value(f16_flush(a, ftz)) + f16_value(f16_flush(b, ftz))
    return _finish(f16_from_f64(s, 0), ftz, sat, 0)


@instruction("sub{.rnd}{.ftz}{.sat}.f16", "d, a, b", section="9.7.4.2", rnd=".rn", contracts="sub")
def sub_f16(a: int, b: int, ftz: int, sat: int) -> int:
    """Difference, rounded to nearest even."""
    return add_f16(a, b ^ 0x8000, ftz, sat)


@instruction("mul{.rnd}{.ftz}{.sat}.f16", "d, a, b", section="9.7.4.3", rnd=".rn", contracts="mul")
def mul_f16(a: int, b: int, ftz: int, sat: int) -> int:
    """Product, rounded to nearest even."""
    p = f16_value(f16_flush(a, ftz)) * f16_value(f16_flush(b, ftz))
    return _finish(f16_from_f64(p, 0), ftz, sat, 0)


@instruction(
    "fma.rnd{.ftz}{.sat}{.relu}.f16", "d, a, b, c", section="9.7.4.4", rnd=".rn", needs=_NEEDS, excludes=[".sat .relu"]
)
def fma_f16(a: int, b: int, c: int, ftz: int, sat: int, relu: int) -> int:
    """a * b + c, rounded once to nearest even."""
    p = f16_value(f16_flush(a, ftz)) * f16_value(f16_flush(b, ftz))
    return _finish(f16_from_f64(add_odd(p, f16_value(f16_flush(c, ftz))), 0), ftz, sat, relu)


@instruction("min{.ftz}{.NaN}{.xorsign}{.abs}.f16", "d, a, b", section="9.7.4.7", requires=80, needs=_NEEDS)
def min_f16(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """The smaller; -0 is less than +0; one NaN gives the other operand, or NaN with .NaN."""
    return _extreme(a, b, ftz, NaN, xorsign, 1)


@instruction("max{.ftz}{.NaN}{.xorsign}{.abs}.f16", "d, a, b", section="9.7.4.8", requires=80, needs=_NEEDS)
def max_f16(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """The larger; -0 is less than +0; one NaN gives the other operand, or NaN with .NaN."""
    return _extreme(a, b, ftz, NaN, xorsign, 0)


@scalar
def _extreme(a: int, b: int, ftz: int, keep_nan: int, xorsign: int, smaller: int) -> int:
    a, b = f16_flush(a, ftz), f16_flush(b, ftz)
    sign = (a ^ b) & 0x8000
    if xorsign:
        a, b = a & 0x7FFF, b & 0x7FFF
    if f16_is_nan(a) or f16_is_nan(b):
        if keep_nan or (f16_is_nan(a) and f16_is_nan(b)):
            return 0x7FFF
        result = b if f16_is_nan(a) else a
    else:
        result = a if (_key(a) < _key(b)) == (smaller != 0) else b
    return (result & 0x7FFF) | sign if xorsign else result


# Two values a register: each half by itself.


@instruction(
    "add{.rnd}{.ftz}{.sat}.f16x2", "d, a, b", section="9.7.4.1", rnd=".rn", contracts="add", undefined="halves"
)
def add_f16x2(a: int, b: int, ftz: int, sat: int) -> int:
    """Two sums."""
    return add_f16(a & 0xFFFF, b & 0xFFFF, ftz, sat) | add_f16(a >> 16, b >> 16, ftz, sat) << 16


@instruction(
    "sub{.rnd}{.ftz}{.sat}.f16x2", "d, a, b", section="9.7.4.2", rnd=".rn", contracts="sub", undefined="halves"
)
def sub_f16x2(a: int, b: int, ftz: int, sat: int) -> int:
    """Two differences."""
    return sub_f16(a & 0xFFFF, b & 0xFFFF, ftz, sat) | sub_f16(a >> 16, b >> 16, ftz, sat) << 16


@instruction(
    "mul{.rnd}{.ftz}{.sat}.f16x2", "d, a, b", section="9.7.4.3", rnd=".rn", contracts="mul", undefined="halves"
)
def mul_f16x2(a: int, b: int, ftz: int, sat: int) -> int:
    """Two products."""
    return mul_f16(a & 0xFFFF, b & 0xFFFF, ftz, sat) | mul_f16(a >> 16, b >> 16, ftz, sat) << 16


@instruction(
    "fma.rnd{.ftz}{.sat}{.relu}.f16x2",
    "d, a, b, c",
    section="9.7.4.4",
    rnd=".rn",
    needs=_NEEDS,
    excludes=[".sat .relu"],
    undefined="halves",
)
def fma_f16x2(a: int, b: int, c: int, ftz: int, sat: int, relu: int) -> int:
    """Two fused multiply-adds."""
    low = fma_f16(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF, ftz, sat, relu)
    return low | fma_f16(a >> 16, b >> 16, c >> 16, ftz, sat, relu) << 16


@instruction(
    "min{.ftz}{.NaN}{.xorsign}{.abs}.f16x2",
    "d, a, b",
    section="9.7.4.7",
    requires=80,
    needs=_NEEDS,
    undefined="halves",
)
def min_f16x2(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """Two minima."""
    low = min_f16(a & 0xFFFF, b & 0xFFFF, ftz, NaN, xorsign)
    return low | min_f16(a >> 16, b >> 16, ftz, NaN, xorsign) << 16


@instruction(
    "max{.ftz}{.NaN}{.xorsign}{.abs}.f16x2",
    "d, a, b",
    section="9.7.4.8",
    requires=80,
    needs=_NEEDS,
    undefined="halves",
)
def max_f16x2(a: int, b: int, ftz: int, NaN: int, xorsign: int) -> int:
    """Two maxima."""
    low = max_f16(a & 0xFFFF, b & 0xFFFF, ftz, NaN, xorsign)
    return low | max_f16(a >> 16, b >> 16, ftz, NaN, xorsign) << 16
