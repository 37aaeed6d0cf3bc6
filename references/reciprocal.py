"""Reciprocals, quotients and the reciprocal square root: rounded, and the product with an approximate reciprocal.

PTX ISA 9, rcp and div: `rcp.rn/.rz/.rm/.rp` and `div.rn/...` are IEEE 754 correctly rounded, with subnormals;
`rcp.approx.ftz` is within 1 ulp of 1 / b over its full range, with subnormal operands and results flushed to
zero of the same sign, 1 / +-0 = +-inf and 1 / +-inf = +-0.

Bounds for `a * rcp.approx.ftz(b)`, which is one rounded multiplication:

- Against `times_reciprocal`, which multiplies by the correctly rounded, flushed reciprocal r: an approximation whose
ordinal differs by one from that of r differs from it by a relative 2^-23 at most, so the
  exact products differ by |p| * 2^-23, under 2 ulp(p). An interval that short contains at most two midpoints
  of neighbouring values (below a power of two the spacing halves, but there |p| * 2^-23 is one larger ulp),
  so the rounded products lie at most 2 ulp apart. There are exceptions at the ends of the range: at |b| = 2^126, r is
  the smallest normal value and an approximation below it is flushed to zero; and one product may overflow where the
  other does not.
- Against a / b itself no bound holds for all b: from |b| > 2^126 on 1 / b is subnormal and flushed, so the
  product is 0 however large a is; for subnormal b it is infinity. On `times_reciprocal_domain` it holds: the
  approximation lies within 1 ulp of 1 / b, a relative 2^-23, so the product is at most 2 ulp from the rounded quotient;
  3 ulp if the approximation is only known to lie within one ulp of the *rounded* reciprocal (1.5 ulp of 1 / b).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references import arithmetic
from ptxdiff.references.correct_rounding import round_function, settle
from ptxdiff.references.formats import (
    F32,
    Format,
    encode,
    from_ordinal,
    is_finite,
    is_infinity,
    is_nan,
    is_zero,
    magnitude,
    ordinal,
    sign,
    to_float64,
)
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, Rounding, flush_subnormals, operand

if TYPE_CHECKING:
    from torch import Tensor


def correctly_rounded(b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`1 / b`, rounded once; int64 codes of `fmt`. 1 / +-0 is +-inf, 1 / +-inf is +-0, NaN is canonical."""
    return arithmetic.div(torch.full_like(b, encode(fmt, 1.0)), b, fmt=fmt, rounding=rounding, ftz=ftz)


def quotient(a: Tensor, b: Tensor, *, fmt: Format = F32, rounding: Rounding = "rn", ftz: Ftz = False) -> Tensor:
    """`a / b`, rounded once; int64 codes of `fmt`."""
    return arithmetic.div(a, b, fmt=fmt, rounding=rounding, ftz=ftz)


def flushed(b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`rcp.rn.ftz`: the rounded reciprocal with subnormal operand and result flushed to zero of the same
    sign.
    """
    return correctly_rounded(b, rounding=rounding, ftz=True)


def times_reciprocal(a: Tensor, b: Tensor, *, offset: int = 0) -> Tensor:
    """`a` times the flushed reciprocal of `b`, rounded to nearest even: the specification of `a * rcp.approx.ftz(b)`.

    `offset` moves the reciprocal by that many ulps, if it is finite and not zero: -1 and 1 give the results of the
    approximations furthest from it that the ISA allows (see `times_reciprocal_range`).
    """
    reciprocal = flushed(b)
    if offset:
        moved = from_ordinal(F32, ordinal(F32, reciprocal) + offset)
        fixed = is_zero(F32, reciprocal) | is_infinity(F32, reciprocal) | is_nan(F32, reciprocal)
        reciprocal = torch.where(fixed, reciprocal, flush_subnormals(F32, moved))
    return arithmetic.mul(a, reciprocal)


def times_reciprocal_range(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The lowest and highest codes, in the order of values, that `a * rcp.approx.ftz(b)` may give; NaN if it is NaN."""
    below, above = times_reciprocal(a, b, offset=-1), times_reciprocal(a, b, offset=1)
    swap = ordinal(F32, below) > ordinal(F32, above)
    return torch.where(swap, above, below), torch.where(swap, below, above)


def times_reciprocal_domain(a: Tensor, b: Tensor) -> Tensor:
    """Whether `a * rcp.approx.ftz(b)` is also within 2 ulp of the rounded a / b (or 3, see the module's text).

    This holds if 2^-126 <= |b| < 2^126 and |a / b| is not within a few ulp of overflow. It also holds for special
    operands (b zero, infinite or NaN; a NaN; a infinite with such a b), for which both give the same zero, infinity or
    NaN.
    """
    size = magnitude(F32, b)
    ordinary = (size >= encode(F32, 2.0**-126)) & (size < encode(F32, 2.0**126))
    near_overflow = magnitude(F32, quotient(a, b)) > F32.max_finite - 4
    special = is_zero(F32, b) | is_infinity(F32, b) | is_nan(F32, b) | is_nan(F32, a)
    inside: Tensor = (ordinary & (~near_overflow | is_infinity(F32, a))) | special
    return inside


def rsqrt(a: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """1 / sqrt(a), correctly rounded to nearest even: the function that `rsqrt.approx` approximates.

    +-0 gives +-inf, +inf gives +0, negative numbers give NaN (PTX ISA 9, rsqrt). No result is tiny; with `ftz=True` a
    subnormal operand counts as zero.
    """
    a = operand(fmt, a, ftz)
    rounded = round_function("rsqrt", torch.rsqrt, a, fmt, ftz)
    if fmt is not F32:
        return rounded
    # The table covers [1, 4): scale positive operands to it by a power of four, and the result back by a power of two.
    bits = to_float64(F32, a).view(torch.int64)
    half = ((bits >> 52) & 2047) - 1023 >> 1
    reduced = (bits >> 29) - ((896 + 2 * half) << 23)
    scaled = rounded + (half << 23)
    settled = settle("rsqrt", reduced, scaled) - (half << 23)
    ordinary = is_finite(F32, a) & (sign(F32, a) == 0) & ~is_zero(F32, a)
    return torch.where(ordinary, settled, rounded)
