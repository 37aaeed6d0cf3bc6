"""Integer arithmetic on whole registers (ISA 9.7.1)."""

from __future__ import annotations

from ptxdiff.emulator.isa.modifiers import HI
from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import below64, high64, scalar, shr64, udiv64, wrap64

_INT = ".u16 .u32 .u64 .s16 .s32 .s64"
_SIGNED = ".s16 .s32 .s64"
_MODE = ".hi .lo"


@scalar
def saturate(x: int, width: int, signed: int) -> int:
    """`x` clamped to the range of an integer type of up to 32 bits."""
    low = -(1 << (width - 1)) if signed else 0
    high = (1 << (width - 1)) - 1 if signed else (1 << width) - 1
    return min(max(x, low), high)


@instruction("add.type", "d, a, b", section="9.7.1.1", type=_INT, undefined="upward")
def add(a: int, b: int) -> int:
    """Sum, wrapping."""
    return a + b


@instruction("add.sat.type", "d, a, b", section="9.7.1.1", type=".s32")
@instruction("add.sat.type", "d, a, b", section="9.7.1.1", type=".u32", requires="107f 120f")
def add_sat(a: int, b: int, width: int, signed: int) -> int:
    """Sum, clamped to the type's range."""
    return saturate(a + b, width, signed)


@instruction("sub.type", "d, a, b", section="9.7.1.2", type=_INT, undefined="upward")
def sub(a: int, b: int) -> int:
    """Difference, wrapping."""
    return a - b


@instruction("sub.sat.s32", "d, a, b", section="9.7.1.2")
def sub_sat(a: int, b: int) -> int:
    """Difference, clamped to the range of s32."""
    return saturate(a - b, 32, 1)


@scalar
def product_high(a: int, b: int, width: int, signed: int) -> int:
    """Bits `width` and up of the product of two values of that width."""
    if width < 64:
        return shr64(wrap64(a * b), width)
    high = high64(a, b)
    if signed:
        high -= (b if a < 0 else 0) + (a if b < 0 else 0)
    return wrap64(high)


@instruction("mul.mode.type", "d, a, b", section="9.7.1.3", mode=".lo", type=_INT, undefined="upward")
def mul_lo(a: int, b: int) -> int:
    """Lower half of the product."""
    return a * b


@instruction("mul.mode.type", "d, a, b", section="9.7.1.3", mode=".hi", type=_INT)
def mul_hi(a: int, b: int, width: int, signed: int) -> int:
    """Upper half of the product."""
    return product_high(a, b, width, signed)


@instruction("mul.wide.type", "d:wide type, a, b", section="9.7.1.3", type=".u16 .u32 .s16 .s32")
def mul_wide(a: int, b: int) -> int:
    """Whole product, twice as wide as its factors."""
    return a * b


@instruction("mad.mode.type", "d, a, b, c", section="9.7.1.4", mode=".lo", type=_INT, undefined="upward")
def mad_lo(a: int, b: int, c: int) -> int:
    """Lower half of the product, plus c, wrapping."""
    return a * b + c


@instruction("mad.mode.type", "d, a, b, c", section="9.7.1.4", mode=".hi", type=_INT)
def mad_hi(a: int, b: int, c: int, width: int, signed: int) -> int:
    """Upper half of the product, plus c, wrapping."""
    return product_high(a, b, width, signed) + c


@instruction("mad.hi.sat.s32", "d, a, b, c", section="9.7.1.4")
def mad_hi_sat(a: int, b: int, c: int) -> int:
    """Upper half of the product, plus c, clamped to the range of s32."""
    return saturate((a * b >> 32) + c, 32, 1)


@instruction("mad.wide.type", "d:wide type, a, b, c:wide type", section="9.7.1.4", type=".u16 .u32 .s16 .s32")
def mad_wide(a: int, b: int, c: int) -> int:
    """Whole product plus c, which is as wide as the product; wrapping."""
    return a * b + c


@scalar
def product24(a: int, b: int, mode: int, signed: int) -> int:
    """Bits 0 to 31 or 16 to 47 of the product of the lower 24 bits of two registers."""
    x, y = a & 0xFFFFFF, b & 0xFFFFFF
    if signed:
        x, y = (x ^ 0x800000) - 0x800000, (y ^ 0x800000) - 0x800000
    return x * y >> 16 if mode == HI else x * y


@instruction("mul24.mode.type", "d, a, b", section="9.7.1.5", mode=_MODE, type=".u32 .s32")
def mul24(a: int, b: int, mode: int, signed: int) -> int:
    """Lower (.lo) or upper (.hi) 32 bits of the 48-bit product; bits 24 to 31 of the factors are ignored."""
    return product24(a, b, mode, signed)


@instruction("mad24.mode.type", "d, a, b, c", section="9.7.1.6", mode=_MODE, type=".u32 .s32")
def mad24(a: int, b: int, c: int, mode: int, signed: int) -> int:
    """Like mul24, plus c, wrapping."""
    return product24(a, b, mode, signed) + c


@instruction("mad24.hi.sat.s32", "d, a, b, c", section="9.7.1.6")
def mad24_sat(a: int, b: int, c: int) -> int:
    """Like mul24.hi, plus c, clamped to the range of s32."""
    product = product24(a, b, HI, 1) & 0xFFFFFFFF
    return saturate(((product ^ 0x80000000) - 0x80000000) + c, 32, 1)


@instruction("sad.type", "d, a, b, c", section="9.7.1.7", type=_INT)
def sad(a: int, b: int, c: int, width: int, signed: int) -> int:
    """c plus |a - b|, wrapping."""
    less = a < b if signed or width < 64 else below64(a, b)
    return c + (b - a if less else a - b)


@scalar
def magnitude(a: int) -> int:
    """|a| as an unsigned pattern; 2**63 is its own pattern."""
    return wrap64(-a) if a < 0 else a


@instruction("div.type", "d, a, b", section="9.7.1.8", type=_INT)
def div(a: int, b: int, width: int, signed: int) -> int:
    """Quotient, rounded towards zero; the most negative value divided by -1 gives itself. By zero: see `by_zero`."""
    if b == 0:
        return by_zero(a, width, signed)
    if not signed:
        return udiv64(a, b)
    quotient = udiv64(magnitude(a), magnitude(b))
    return -quotient if (a < 0) != (b < 0) else quotient


@instruction("rem.type", "d, a, b", section="9.7.1.9", type=_INT)
def rem(a: int, b: int, width: int, signed: int) -> int:
    """Remainder of div: a - (a div b) * b, with the sign of a. By zero: see `by_zero`."""
    if b == 0:
        return by_zero(a, width, signed)
    if not signed:
        return a - wrap64(udiv64(a, b) * b)
    rest = wrap64(magnitude(a) - wrap64(udiv64(magnitude(a), magnitude(b)) * magnitude(b)))
    return -rest if a < 0 else rest


@scalar
def by_zero(a: int, width: int, signed: int) -> int:
    """Quotient and remainder by zero, which the ISA leaves unspecified: all ones."""
    return -1


@instruction("abs.type", "d, a", section="9.7.1.10", type=_SIGNED)
def absolute(a: int) -> int:
    """Magnitude; the most negative value gives itself."""
    return -a if a < 0 else a


@instruction("neg.type", "d, a", section="9.7.1.11", type=_SIGNED, undefined="upward")
def negate(a: int) -> int:
    """Two's complement; the most negative value gives itself."""
    return -a


@instruction("min.type", "d, a, b", section="9.7.1.12", type=_INT)
def minimum(a: int, b: int, width: int, signed: int) -> int:
    """The smaller."""
    less = a < b if signed or width < 64 else below64(a, b)
    return a if less else b


@instruction("max.type", "d, a, b", section="9.7.1.13", type=_INT)
def maximum(a: int, b: int, width: int, signed: int) -> int:
    """The larger."""
    less = a < b if signed or width < 64 else below64(a, b)
    return b if less else a


@instruction("min.relu.s32", "d, a, b", section="9.7.1.12", requires=90)
def min_relu(a: int, b: int) -> int:
    """The smaller, but not below zero."""
    return max(min(a, b), 0)


@instruction("max.relu.s32", "d, a, b", section="9.7.1.13", requires=90)
def max_relu(a: int, b: int) -> int:
    """The larger, but not below zero."""
    return max(max(a, b), 0)
