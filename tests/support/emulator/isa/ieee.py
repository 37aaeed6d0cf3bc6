"""IEEE arithmetic on bit patterns in exact rational numbers, with PTX's modifiers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tests.support.emulator.isa.exact import RM, RN, rounded, value


class Format(NamedTuple):
    """A binary format and the NaN that its arithmetic makes."""

    exponent_bits: int
    mantissa_bits: int
    nan: int

    @property
    def sign(self) -> int:
        """The pattern of -0."""
        return 1 << (self.exponent_bits + self.mantissa_bits)

    @property
    def infinity(self) -> int:
        """The pattern of +infinity."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def normal(self) -> int:
        """The pattern of the smallest normal number."""
        return 1 << self.mantissa_bits

    def is_nan(self, a: int) -> bool:
        """Whether a pattern is a NaN."""
        return a & (self.sign - 1) > self.infinity

    def flushed(self, a: int) -> int:
        """A pattern with subnormals as zeros of their sign."""
        return a & self.sign if a & (self.sign - 1) < self.normal else a

    def fraction(self, a: int) -> Fraction:
        """The value of a finite pattern."""
        found = value(a, self.exponent_bits, self.mantissa_bits)
        assert isinstance(found, Fraction)
        return found


F16, BF16 = Format(5, 10, 0x7FFF), Format(8, 7, 0x7FFF)
F32, F64 = Format(8, 23, 0x7FFFFFFF), Format(11, 52, 0xFFF8000000000000)
FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}


def operands(form: Format, count: int, lanes: int, seed: int = 0) -> list[list[int]]:
    """Columns of patterns: many with close exponents, short significands, subnormals, ends of the range, specials."""
    rng = np.random.default_rng([seed, count, form.mantissa_bits])
    top = (1 << form.exponent_bits) - 1
    specials = [0, form.infinity, form.infinity | 1, form.sign - 1, 1, form.normal, form.normal - 1, form.infinity - 1]
    specials += [((top >> 1) << form.mantissa_bits), form.normal + 1]
    base = rng.integers(1, top, lanes)
    columns = []
    for _ in range(count):
        near = np.clip(base + rng.integers(-form.mantissa_bits, form.mantissa_bits + 1, lanes), 0, top - 1)
        exponent = np.where(rng.random(lanes) < 0.6, near, rng.integers(0, top, lanes))
        exponent = np.where(rng.random(lanes) < 0.08, 0, exponent)
        short = rng.integers(0, 16, lanes) << (form.mantissa_bits - 4)
        fraction = np.where(rng.random(lanes) < 0.3, short, rng.integers(0, 1 << form.mantissa_bits, lanes))
        column = (exponent.astype(object) << form.mantissa_bits) + fraction.astype(object)
        for lane in np.flatnonzero(rng.random(lanes) < 0.12):
            column[lane] = specials[rng.integers(len(specials))]
        columns.append(
            [int(c) | (form.sign if s else 0) for c, s in zip(column, rng.integers(0, 2, lanes), strict=True)]
        )
    return columns


def settle(x: Fraction, negative: bool, form: Format, mode: str, ftz: bool, sat: bool) -> int:
    """Round an exact result, flush it (as if the exponent were unbounded), clamp it; `negative`: the sign of a zero."""
    if x == 0:
        code = form.sign if negative else 0
    else:
        code = rounded(x, form.exponent_bits, form.mantissa_bits, mode)
        least = form.fraction(form.normal)
        if ftz and abs(x) < least:
            wide = rounded(x * 2**form.mantissa_bits, form.exponent_bits, form.mantissa_bits, mode)
            small = abs(form.fraction(wide)) < least * 2**form.mantissa_bits
            code = (code & form.sign) | (0 if small else form.normal)
    if sat:
        one = form.infinity >> 1 & ~(form.normal - 1)
        return 0 if code & form.sign else min(code, one)
    return code


def arithmetic(
    name: str, inputs: Sequence[int], form: Format, mode: str = RN, ftz: bool = False, sat: bool = False
) -> int:
    """The result of add, sub, mul, fma, div, rcp or sqrt on patterns; every NaN is the format's."""
    a, *more = (form.flushed(i) if ftz else i for i in inputs)
    if any(form.is_nan(i) for i in (a, *more)):
        return 0 if sat else form.nan
    one = form.infinity >> 1 & ~(form.normal - 1)
    if name == "rcp":
        a, more, name = one, [a], "div"
    if name == "sqrt":
        return _root(a, form, mode)
    if name == "div":
        found = _quotient(a, more[0], form, mode, ftz, sat)
    else:
        b, c = {"add": (one, more[-1]), "sub": (one, more[-1] ^ form.sign), "mul": (more[0], None)}.get(
            name, (more[0], more[-1])
        )
        found = _fused(a, b, c, form, mode, ftz, sat)
    if found is None:
        return 0 if sat else form.nan
    return found


def _infinite(negative: bool, form: Format, sat: bool) -> int:
    if sat:
        return 0 if negative else form.infinity >> 1 & ~(form.normal - 1)
    return form.infinity | (form.sign if negative else 0)


def _fused(a: int, b: int, c: int | None, form: Format, mode: str, ftz: bool, sat: bool) -> int | None:
    """a * b + c, or a * b if c is None; None if the operation is invalid."""
    size, negative = form.sign - 1, bool((a ^ b) & form.sign)
    big = form.infinity in (a & size, b & size)
    if big and 0 in (a & size, b & size):
        return None
    if c is not None and c & size == form.infinity:
        if big and negative != bool(c & form.sign):
            return None
        return _infinite(bool(c & form.sign), form, sat)
    if big:
        return _infinite(negative, form, sat)
    product = form.fraction(a) * form.fraction(b)
    if c is None:
        return settle(product, negative, form, mode, ftz, sat)
    minus = bool(c & form.sign)
    zero = negative if negative == minus and product == 0 else mode == RM
    if product != 0 and negative == minus:
        zero = negative
    return settle(product + form.fraction(c), zero, form, mode, ftz, sat)


def _quotient(a: int, b: int, form: Format, mode: str, ftz: bool, sat: bool) -> int | None:
    size, negative = form.sign - 1, bool((a ^ b) & form.sign)
    x, y = a & size, b & size
    if x == y and x in (0, form.infinity):
        return None
    if x == form.infinity or y == 0:
        return _infinite(negative, form, sat)
    if y == form.infinity:
        return settle(Fraction(0), negative, form, mode, ftz, sat)
    return settle(form.fraction(a) / form.fraction(b), negative, form, mode, ftz, sat)


def _root(a: int, form: Format, mode: str) -> int:
    if a & (form.sign - 1) == 0 or a == form.infinity:
        return a
    if a & form.sign:
        return form.nan
    # 200 bits and a sticky one decide every rounding.
    x = form.fraction(a)
    scaled = x * 4**700
    root = math.isqrt(scaled.numerator // scaled.denominator)
    exact = root * root == scaled
    return rounded(Fraction(2 * root + (not exact), 2**701), form.exponent_bits, form.mantissa_bits, mode)
