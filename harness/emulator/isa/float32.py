"""float32 arithmetic, with one or two values in a register (ISA 9.7.3).

NaN results are always 0x7fffffff, whatever the operands' NaNs (measured on an H200). With .ftz, subnormal operands and
results are zeros of their sign; .sat clamps to [0, 1] and turns NaN into +0.
"""

from __future__ import annotations

from ptxdiff.emulator.isa.registry import instruction
from ptxdiff.emulator.numeric.bits import divide, f32_value, f64_bits, scalar, shl64, shr64, square_root
from ptxdiff.emulator.numeric.softfloat import add_odd, f32_finish, f32_flush, f32_from_f64, f32_saturate, f32_zero_sign

RND = ".rn .rz .rm .rp"


@scalar
def _sign(x: float) -> int:
    """The sign of a float64 as a float32's sign bit, zeros included."""
    return 0x80000000 if f64_bits(x) < 0 else 0


@instruction("add{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.3", rnd=RND, contracts="add")
def add_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Sum, rounded once. An exact zero sum is +0, or -0 when rounding down."""
    a, b = f32_flush(a, ftz), f32_flush(b, ftz)
    x, y = f32_value(a), f32_value(b)
    s = x + y
    if s != s:
        return 0 if sat else 0x7FFFFFFF
    if s == 0.0:
        return f32_saturate(f32_zero_sign(s, a, b, rnd), sat)
    if rnd != 0:
        # For rounding to nearest, rounding the float64 sum again is correct: 53 bits are more than 2 * 24 + 1
        # (Figueroa).
        s = add_odd(x, y)
    return f32_finish(s, rnd, ftz, sat)


@instruction("sub{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.4", rnd=RND, contracts="sub")
def sub_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Difference: the sum with the second sign reversed."""
    return add_f32(a, b ^ 0x80000000, rnd, ftz, sat)


@instruction("mul{.rnd}{.ftz}{.sat}.f32", "d, a, b", section="9.7.3.5", rnd=RND, contracts="mul")
def mul_f32(a: int, b: int, rnd: int, ftz: int, sat: int) -> int:
    """Product, rounded once; exact in float64."""
    return f32_finish(f32_value(f32_flush(a, ftz)) * f32_value(f32_flush(b, ftz)), rnd, ftz, sat)


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
        # An exact zero sum of opposite signs (or of zeros with different signs) is -0 only when rounding down.
        return f32_saturate(f32_zero_sign(s, _sign(p), c, rnd), sat)
    return f32_finish(add_odd(p, z), rnd, ftz, sat)


@instruction("div.rnd{.ftz}.f32", "d, a, b", section="9.7.3.8", rnd=RND)
def div_f32(a: int, b: int, rnd: int, ftz: int) -> int:
    """Quotient, rounded once. float64's quotient lies on the same side of every 25-bit number as the true one."""
    return f32_finish(divide(f32_value(f32_flush(a, ftz)), f32_value(f32_flush(b, ftz))), rnd, ftz, 0)


@instruction("rcp.rnd{.ftz}.f32", "d, a", section="9.7.3.13", rnd=RND)
def rcp_f32(a: int, rnd: int, ftz: int) -> int:
    """Reciprocal, rounded once."""
    return div_f32(0x3F800000, a, rnd, ftz)


@instruction("sqrt.rnd{.ftz}.f32", "d, a", section="9.7.3.15", rnd=RND)
def sqrt_f32(a: int, rnd: int, ftz: int) -> int:
    """Square root, rounded once; -0 for -0, NaN below zero. float64's root decides every rounding, as for div."""
    return f32_from_f64(square_root(f32_value(f32_flush(a, ftz))), rnd)


# Two values in a register; each half is computed separately.


@instruction(
    "add{.rnd}{.ftz}.f32x2", "d, a, b", section="9.7.3.3", requires=100, rnd=RND, contracts="add", undefined="words"
)
def add_f32x2(a: int, b: int, rnd: int, ftz: int) -> int:
    """Two sums."""
    low = add_f32(a & 0xFFFFFFFF, b & 0xFFFFFFFF, rnd, ftz, 0)
    return low | shl64(add_f32(shr64(a, 32), shr64(b, 32), rnd, ftz, 0), 32)


@instruction(
    "sub{.rnd}{.ftz}.f32x2", "d, a, b", section="9.7.3.4", requires=100, rnd=RND, contracts="sub", undefined="words"
)
def sub_f32x2(a: int, b: int, rnd: int, ftz: int) -> int:
    """Two differences."""
    low = sub_f32(a & 0xFFFFFFFF, b & 0xFFFFFFFF, rnd, ftz, 0)
    return low | shl64(sub_f32(shr64(a, 32), shr64(b, 32), rnd, ftz, 0), 32)


@instruction(
    "mul{.rnd}{.ftz}.f32x2", "d, a, b", section="9.7.3.5", requires=100, rnd=RND, contracts="mul", undefined="words"
)
def mul_f32x2(a: int, b: int, rnd: int, ftz: int) -> int:
    """Two products."""
    low = mul_f32(a & 0xFFFFFFFF, b & 0xFFFFFFFF, rnd, ftz, 0)
    return low | shl64(mul_f32(shr64(a, 32), shr64(b, 32), rnd, ftz, 0), 32)


@instruction("fma.rnd{.ftz}.f32x2", "d, a, b, c", section="9.7.3.6", requires=100, rnd=RND, undefined="words")
def fma_f32x2(a: int, b: int, c: int, rnd: int, ftz: int) -> int:
    """Two fused multiply-adds."""
    low = fma_f32(a & 0xFFFFFFFF, b & 0xFFFFFFFF, c & 0xFFFFFFFF, rnd, ftz, 0)
    return low | shl64(fma_f32(shr64(a, 32), shr64(b, 32), shr64(c, 32), rnd, ftz, 0), 32)
