"""Rounding of exact rational numbers to IEEE-style formats; tests compare the definitions with it."""

from __future__ import annotations

from fractions import Fraction

RN, RZ, RM, RP = "rn", "rz", "rm", "rp"


def value(bits: int, exponent_bits: int, mantissa_bits: int) -> Fraction | str:
    """The exact value of a pattern; "nan", "+inf" or "-inf" for the others."""
    sign = -1 if bits >> (exponent_bits + mantissa_bits) & 1 else 1
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    fraction = bits & ((1 << mantissa_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        return "nan" if fraction else ("+inf" if sign > 0 else "-inf")
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent:
        fraction |= 1 << mantissa_bits
    else:
        exponent = 1
    return ratio(sign * fraction, 1, exponent - bias - mantissa_bits)


def ratio(numerator: int, denominator: int, power: int) -> Fraction:
    """A quotient times 2**power, reduced once: products of fractions are reduced at each step, which takes longer."""
    return Fraction(numerator << max(power, 0), denominator << max(-power, 0))


def rounded(x: Fraction, exponent_bits: int, mantissa_bits: int, mode: str = RN) -> int:
    """The pattern of a non-zero rational, rounded to nearest even, towards zero, down or up."""
    sign = 1 if x < 0 else 0
    numerator, denominator = abs(x.numerator), x.denominator
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = 1 - bias
    power = numerator.bit_length() - denominator.bit_length()
    for candidate in (power + 1, power, power - 1):
        if denominator << max(candidate, 0) <= numerator << max(-candidate, 0):  # 2**candidate <= |x|
            exponent = max(exponent, candidate)
            break
    # In units of the last place: |x| = (down + rest / unit) units.
    place = exponent - mantissa_bits
    unit = denominator << max(place, 0)
    down, rest = divmod(numerator << max(-place, 0), unit)
    if mode == RN:
        up = 2 * rest > unit or (2 * rest == unit and down & 1 == 1)
    else:
        up = rest != 0 and mode == (RM if sign else RP)
    code = ((exponent + bias - 1) << mantissa_bits) + down + up
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if code >= infinity:
        code = infinity if mode in (RN, RM if sign else RP) else infinity - 1
    return sign << (exponent_bits + mantissa_bits) | code
