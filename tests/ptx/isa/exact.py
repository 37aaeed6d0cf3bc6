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
    return sign * fraction * Fraction(2) ** (exponent - bias - mantissa_bits)


def rounded(x: Fraction, exponent_bits: int, mantissa_bits: int, mode: str = RN) -> int:
    """The pattern of a non-zero rational, rounded to nearest even, towards zero, down or up."""
    sign = 1 if x < 0 else 0
    magnitude = abs(x)
    bias = (1 << (exponent_bits - 1)) - 1
    exponent = 1 - bias
    power = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    for candidate in (power + 1, power, power - 1):
        if Fraction(2) ** candidate <= magnitude:
            exponent = max(exponent, candidate)
            break
    unit = Fraction(2) ** (exponent - mantissa_bits)
    steps = magnitude / unit
    down = steps.numerator // steps.denominator
    rest = steps - down
    if mode == RN:
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down & 1 == 1)
    else:
        up = rest != 0 and mode == (RM if sign else RP)
    code = ((exponent + bias - 1) << mantissa_bits) + down + up
    infinity = ((1 << exponent_bits) - 1) << mantissa_bits
    if code >= infinity:
        code = infinity if mode in (RN, RM if sign else RP) else infinity - 1
    return sign << (exponent_bits + mantissa_bits) | code
