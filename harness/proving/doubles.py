"""Float64 values as bit patterns, and conversions between formats, as terms.

Comparisons and conversions are circuits of bit operations. Sums, products, quotients and roots are functions, which a
solver may leave uninterpreted or compute by its theory of floats. A NaN that arithmetic or a conversion makes is
0x7ff8000000000000: definitions and references depend on no payload of an intermediate NaN.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable

from ptxdiff.proving import terms as t
from ptxdiff.proving.terms import FALSE, Term, TermFunction, TheoryFormat

NAN = 0x7FF8000000000000
_INFINITY = 0x7FF0000000000000
_SIZE = (1 << 63) - 1


def pattern(value: float) -> int:
    """The pattern of a float64; of every NaN the same one."""
    return NAN if value != value else int(struct.unpack("<Q", struct.pack("<d", value))[0])


def number(bits: int) -> float:
    """The float64 of a pattern."""
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def constant(value: float) -> Term:
    """A constant."""
    return t.const(pattern(value), 64)


def _c(value: int, width: int = 64) -> Term:
    return t.const(value, width)


# Circuits


def leading_zeros(a: Term) -> Term:
    """The number of zeros above the highest set bit; the width for zero."""
    return t.sub(_c(a.width, a.width), bit_length(a))


def bit_length(a: Term) -> Term:
    """Python's `int.bit_length` of a pattern."""
    width = a.width
    length = _c(0, width)
    step = 1 << ((a.maybe.bit_length() - 1).bit_length() - 1) if a.maybe > 1 else 0
    while step:
        wide = t.nonzero(t.lshr(a, _c(step, width)))
        length = t.add(length, t.ite(wide, _c(step, width), _c(0, width)))
        a = t.ite(wide, t.lshr(a, _c(step, width)), a)
        step >>= 1
    return t.add(length, t.and_(a, _c(1, width)))


def population(a: Term) -> Term:
    """The number of set bits."""
    counts, step = a, 1
    while step < a.width:
        mask = _c(sum(((1 << step) - 1) << k for k in range(0, a.width, 2 * step)), a.width)
        counts = t.add(t.and_(counts, mask), t.and_(t.lshr(counts, _c(step, a.width)), mask))
        step *= 2
    return counts


def is_nan(a: Term) -> Term:
    """Whether a float64 is a NaN."""
    return t.ult(_c(_INFINITY), t.and_(a, _c(_SIZE)))


def _negative(a: Term) -> Term:
    return t.nonzero(t.extract(a, 63, 63))


def negated(a: Term) -> Term:
    """The float64 of the other sign."""
    return t.xor(a, _c(1 << 63))


def absolute(a: Term) -> Term:
    """The float64 without its sign."""
    return t.and_(a, _c(_SIZE))


def equal(a: Term, b: Term) -> Term:
    """Equality of float64 values: not of NaNs, and of the two zeros."""
    zeros = t.eq(absolute(t.or_(a, b)), _c(0))
    return t.band(t.bor(t.eq(a, b), zeros), t.band(t.bnot(is_nan(a)), t.bnot(is_nan(b))))


def less(a: Term, b: Term) -> Term:
    """Whether a float64 is less than another one."""
    numbers = t.band(t.bnot(is_nan(a)), t.bnot(is_nan(b)))
    both_zero = t.eq(absolute(t.or_(a, b)), _c(0))
    one_sign = t.ite(_negative(a), t.ult(b, a), t.ult(a, b))
    same = t.eq(_negative(a), _negative(b))
    return t.band(numbers, t.ite(same, one_sign, t.band(_negative(a), t.bnot(both_zero))))


def widened(a: Term, exponent_bits: int, mantissa_bits: int) -> Term:
    """The float64 of a pattern of a narrower IEEE format."""
    m = mantissa_bits
    bias = (1 << (exponent_bits - 1)) - 1
    sign = t.extract(a, exponent_bits + m, exponent_bits + m)
    field = t.zext(t.extract(a, exponent_bits + m - 1, m), 64)
    fraction = t.zext(t.extract(a, m - 1, 0), 64)
    normal = t.or_(t.shl(t.add(field, _c(1023 - bias)), _c(52)), t.shl(fraction, _c(52 - m)))
    # A subnormal is normalised by steps, so that its leading one leaves the fraction.
    left, exponent = fraction, _c(1 - bias + 1023)
    for step in (32, 16, 8, 4, 2, 1):
        if step <= m:
            short = t.eq(t.lshr(left, _c(m + 1 - step)), _c(0))
            left = t.ite(short, t.and_(t.shl(left, _c(step)), _c((2 << m) - 1)), left)
            exponent = t.ite(short, t.sub(exponent, _c(step)), exponent)
    small = t.or_(t.shl(exponent, _c(52)), t.shl(t.and_(left, _c((1 << m) - 1)), _c(52 - m)))
    small = t.ite(t.eq(fraction, _c(0)), _c(0), small)
    top = t.eq(field, _c((1 << exponent_bits) - 1))
    size = t.ite(t.eq(field, _c(0)), small, t.ite(top, _c(_INFINITY), normal))
    wide = t.or_(t.shl(t.zext(sign, 64), _c(63)), size)
    return t.ite(t.band(top, t.nonzero(fraction)), _c(NAN), wide)


def narrowed(a: Term, exponent_bits: int, mantissa_bits: int) -> Term:
    """A float64 rounded to nearest even in a narrower IEEE format; a NaN becomes the quiet one without a payload."""
    m = mantissa_bits
    bias = (1 << (exponent_bits - 1)) - 1
    width = 1 + exponent_bits + m
    size = absolute(a)
    field, fraction = t.lshr(size, _c(52)), t.and_(size, _c((1 << 52) - 1))
    significand = t.ite(t.eq(field, _c(0)), fraction, t.or_(fraction, _c(1 << 52)))
    target = t.sub(field, _c(1023 - bias))
    under = t.slt(target, _c(1))
    drop = t.ite(under, t.sub(_c(53 - m), target), _c(52 - m))
    drop = t.ite(t.ult(_c(55), drop), _c(55), drop)
    kept = t.lshr(significand, drop)
    lost = t.sub(significand, t.shl(kept, drop))
    half = t.shl(_c(1), t.sub(drop, _c(1)))
    up = t.bor(t.ult(half, lost), t.band(t.eq(lost, half), t.nonzero(t.and_(kept, _c(1)))))
    kept = t.add(kept, t.as_bits(up, 64))
    infinity = ((1 << exponent_bits) - 1) << m
    result = t.add(t.ite(under, _c(0), t.shl(t.sub(target, _c(1)), _c(m))), kept)
    over = t.bor(t.slt(_c((1 << exponent_bits) - 2), target), t.ult(_c(infinity), result))
    result = t.ite(over, _c(infinity), result)
    result = t.ite(is_nan(a), _c(infinity | 1 << (m - 1)), result)
    sign = t.band(_negative(a), t.bnot(is_nan(a)))
    return t.or_(t.extract(result, width - 1, 0), t.shl(t.as_bits(sign, width), _c(width - 1, width)))


def from_integer(a: Term) -> Term:
    """The float64 nearest to a signed 64-bit integer, ties to even."""
    negative = t.slt(a, _c(0))
    size = t.ite(negative, t.neg(a), a)
    length = bit_length(size)
    left = t.shl(size, t.sub(_c(64), length))  # the leading one is in bit 63
    kept = t.lshr(left, _c(11))
    if a.maybe.bit_length() > 53:
        lost = t.and_(left, _c(0x7FF))
        up = t.bor(t.ult(_c(0x400), lost), t.band(t.eq(lost, _c(0x400)), t.nonzero(t.and_(kept, _c(1)))))
        kept = t.add(kept, t.as_bits(up, 64))
    exponent = t.shl(t.add(length, _c(1023 - 2)), _c(52))  # the leading one of `kept` adds one
    magnitude = t.ite(t.eq(size, _c(0)), _c(0), t.add(exponent, kept))
    return t.or_(magnitude, t.shl(t.as_bits(negative, 64), _c(63)))


def to_integer(a: Term) -> Term:
    """The integer part of a float64 below 2**63 in magnitude; of others an unknown number."""
    size = absolute(a)
    field = t.lshr(size, _c(52))
    significand = t.or_(t.and_(size, _c((1 << 52) - 1)), _c(1 << 52))
    right = t.lshr(significand, t.sub(_c(1023 + 52), field))
    left = t.shl(significand, t.sub(field, _c(1023 + 52)))
    whole = t.ite(t.ult(field, _c(1023 + 52)), right, left)
    whole = t.ite(t.ult(field, _c(1023)), _c(0), whole)
    truncated = t.ite(_negative(a), t.neg(whole), whole)
    return t.ite(t.ult(field, _c(1023 + 63)), truncated, t.apply(_OUT_OF_RANGE, a))


_OUT_OF_RANGE = TermFunction("f64.integer_out_of_range", 64, lambda a: 1 << 63)


# Arithmetic


def _divided(a: float, b: float) -> float:
    if b != 0:
        return a / b
    if a == 0 or a != a or b != b:
        return math.nan
    return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _function(name: str, compute: Callable[..., float], operation: str) -> TermFunction:
    return TermFunction(
        f"f64.{name}",
        64,
        lambda *patterns: pattern(compute(*map(number, patterns))),
        lambda *texts: f"({operation} RNE {' '.join(f'((_ to_fp 11 53) {text})' for text in texts)})",
        TheoryFormat(11, 53, NAN),
        commutes=name in ("add", "mul"),
    )


_ADD = _function("add", lambda a, b: a + b, "fp.add")
_MULTIPLY = _function("mul", lambda a, b: a * b, "fp.mul")
_DIVIDE = _function("div", _divided, "fp.div")
_ROOT = _function("sqrt", lambda a: math.sqrt(a) if a >= 0 else (a if a == 0 else math.nan), "fp.sqrt")


def _ordered(a: Term, b: Term) -> tuple[Term, Term]:
    return (a, b) if (a.op == "const", a.number) <= (b.op == "const", b.number) else (b, a)


def add(a: Term, b: Term) -> Term:
    """Sum, rounded to nearest even."""
    return t.apply(_ADD, *_ordered(a, b))


def subtract(a: Term, b: Term) -> Term:
    """Difference, rounded to nearest even: the sum with the other sign."""
    return add(a, negated(b))


def _with_sign(function: TermFunction, a: Term, b: Term) -> Term:
    """A product or quotient, from magnitudes, with the sign of both. NaN operands are one NaN."""
    sizes = [t.ite(t.ult(_c(_INFINITY), absolute(v)), _c(NAN), absolute(v)) for v in (a, b)]
    # What is known of every such result is said, so that the function may stay unknown.
    size = absolute(t.apply(function, *(_ordered(*sizes) if function.commutes else sizes)))
    size = t.ite(t.ult(_c(_INFINITY), size), _c(NAN), size)
    sign = t.and_(t.xor(a, b), _c(1 << 63))
    return t.ite(t.eq(size, _c(NAN)), size, t.or_(size, sign))


def multiply(a: Term, b: Term) -> Term:
    """Product, rounded to nearest even."""
    for one, other in ((a, b), (b, a)):
        if one.constant is not None and other.constant is None and not one.constant & ((1 << 52) - 1):
            field = one.constant >> 52
            if 0 < field < 0x7FF:  # positive, normal and a power of two
                return _scaled(other, field - 1023)
    return _with_sign(_MULTIPLY, a, b)


def divide(a: Term, b: Term) -> Term:
    """Quotient, rounded to nearest even."""
    return _with_sign(_DIVIDE, a, b)


def square_root(a: Term) -> Term:
    """Square root, rounded to nearest even; NaN below zero."""
    return t.apply(_ROOT, a)


def integral(a: Term, rounding: int) -> Term:
    """A float64 rounded to an integral value of its sign; infinities and NaN unchanged.

    Modes: 0 to nearest even, 1 towards zero, 2 down, 3 up.
    """
    size, negative = absolute(a), _negative(a)
    field = t.lshr(size, _c(52))
    below_one = t.ult(field, _c(1023))
    drop = t.ite(below_one, _c(52), t.sub(_c(1023 + 52), field))  # bits after the point; of no use from 2**52 on
    kept = t.lshr(size, drop)
    rest = t.sub(size, t.shl(kept, drop))
    unit = t.shl(_c(1), drop)
    if rounding == 0:
        half = t.lshr(unit, _c(1))
        up = t.bor(t.ult(half, rest), t.band(t.eq(rest, half), t.nonzero(t.and_(kept, _c(1)))))
        one = t.ult(_c(0x3FE0000000000000), size)
    else:
        up = FALSE if rounding == 1 else t.band(t.nonzero(rest), negative if rounding == 2 else t.bnot(negative))
        one = FALSE if rounding == 1 else t.band(t.nonzero(size), negative if rounding == 2 else t.bnot(negative))
    rounded = t.shl(t.add(kept, t.as_bits(up, 64)), drop)
    small = t.ite(one, constant(1.0), _c(0))
    integral_value = t.or_(t.ite(below_one, small, rounded), t.and_(a, _c(1 << 63)))
    return t.ite(t.ult(field, _c(1023 + 52)), integral_value, a)


def _scaled(a: Term, power: int) -> Term:
    """A float64 times a power of two: an addition to the exponent, except near the ends of the range."""
    field = t.and_(t.lshr(a, _c(52)), _c(0x7FF))
    after = t.add(field, _c(power))
    inside = t.band(t.nonzero(field), t.ult(t.sub(after, _c(1)), _c(0x7FE)))
    same = t.bor(t.eq(absolute(a), _c(0)), t.eq(absolute(a), _c(_INFINITY)))
    plain = _with_sign(_MULTIPLY, a, constant(math.ldexp(1.0, power)))
    ordinary = t.band(inside, t.ult(field, _c(0x7FF)))
    return t.ite(ordinary, t.add(a, _c(power << 52)), t.ite(same, a, plain))
