"""Wrong roundings of an operation: at ties, near the ends of the range, or twice instead of once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, F64, Format, encode, fraction, is_finite, is_zero, magnitude, to_float64
from ptxdiff.references.rounding import odd_sum, round_float64

Codes = np.ndarray
Wrong = Callable[[list[Codes]], Codes]


def rounded(fmt: Format, operation: str, rounding: str, columns: list[Codes]) -> Codes:
    """An operation of `ptxdiff.references.arithmetic`, on numpy codes."""
    return getattr(arithmetic, operation)(*map(torch.from_numpy, columns), fmt=fmt, rounding=rounding).numpy()


def exact(fmt: Format, operation: str, columns: list[Codes]) -> Codes:
    """The result as float64, exact or rounded to odd. A quotient is rounded to nearest, and `_tie` decides ties
    exactly."""
    a, *rest = (to_float64(fmt, torch.from_numpy(c)) for c in columns)
    return {
        "mul": lambda: a * rest[0],
        "add": lambda: odd_sum(a, rest[0]),
        "fma": lambda: odd_sum(a * rest[0], rest[1]),
        "div": lambda: a / rest[0],
    }[operation]().numpy()


def _tie(fmt: Format, operation: str, columns: list[Codes]) -> tuple[Codes, Codes, Codes]:
    """A mask of exact results halfway between two finite codes (or at the limit of overflow), and both codes."""
    value = exact(fmt, operation, columns)
    down = rounded(fmt, operation, "rz", columns)
    up = np.where(is_finite(fmt, down), down + fmt.min_positive, down)
    low, high = to_float64(fmt, down), to_float64(fmt, up)
    top = fraction(fmt, fmt.max_finite)
    limit = float(top + (top - fraction(fmt, fmt.max_finite - fmt.min_positive)) / 2)
    middle = np.where(magnitude(fmt, down) == fmt.max_finite, np.copysign(limit, low), (low + high) / 2)
    tie = (value == middle) & is_finite(fmt, down)
    if operation == "div":
        a, b = (to_float64(fmt, c) for c in columns)
        tie &= middle * b == a
    return tie, down, up


def wrong_roundings(fmt: Format, operation: str) -> Iterator[tuple[str, Wrong]]:
    """The names of wrong ways to round the operation, and their functions of code columns."""
    for rounding in ("rz", "rm", "rp"):
        yield f"rounded {rounding}", lambda c, r=rounding: rounded(fmt, operation, r, c)
    for where in ("normal", "subnormal", "overflowing"):
        for which in ("away", "toward zero", "to odd"):
            yield f"{where} ties {which}", lambda c, w=where, h=which: _ties(fmt, operation, c, w, h)
    yield "overflow as soon as the largest number is exceeded", lambda c: _early(fmt, operation, c)
    yield "overflow a step late", lambda c: _late(fmt, operation, c)
    yield "subnormal results rounded twice", lambda c: _twice(fmt, operation, c)
    yield "subnormal operands flushed", lambda c: rounded(fmt, operation, "rn", [_flushed(fmt, x) for x in c])
    if operation == "fma":
        yield "the product rounded first", lambda c: rounded(fmt, "add", "rn", [rounded(fmt, "mul", "rn", c[:2]), c[2]])
        yield "by way of a wider format", lambda c: _wider(fmt, c)
        yield "an addend far below the product ignored", lambda c: _ignored(fmt, c)
        for bits in (fmt.precision + 2, 3 * fmt.precision // 2, 2 * fmt.precision - 2, 2 * fmt.precision - 1):
            yield f"the product cut to {bits} bits", lambda c, n=bits: _product_cut(fmt, c, n)
    if operation in ("add", "fma"):
        yield "exact cancellation gives -0", lambda c: _negative_zero(fmt, operation, c)
        for depth in (fmt.precision // 2, fmt.precision - 1, 3 * fmt.precision // 2):
            for low in (True, False):
                yield (
                    f"results {depth} binades below the {'last' if low else 'first'} operand wrong by one",
                    lambda c, d=depth, k=-1 if low else 0: _cancelled(fmt, operation, c, d, k),
                )
    if operation == "div":
        yield (
            "by the rounded reciprocal",
            lambda c: rounded(
                fmt, "mul", "rn", [c[0], rounded(fmt, "div", "rn", [np.full_like(c[1], encode(fmt, 1.0)), c[1]])]
            ),
        )


def _ties(fmt: Format, operation: str, columns: list[Codes], where: str, which: str) -> Codes:
    right = rounded(fmt, operation, "rn", columns)
    tie, down, up = _tie(fmt, operation, columns)
    size = magnitude(fmt, down)
    subnormal, last = size < fmt.min_normal, size == fmt.max_finite
    tie &= {"normal": ~subnormal & ~last, "subnormal": subnormal, "overflowing": last}[where]
    odd = np.where((down >> fmt.ignored_bits) & 1 == 1, down, up)
    return np.where(tie, {"away": up, "toward zero": down, "to odd": odd}[which], right)


def _early(fmt: Format, operation: str, columns: list[Codes]) -> Codes:
    right = rounded(fmt, operation, "rn", columns)
    beyond = np.abs(exact(fmt, operation, columns)) > float(fraction(fmt, fmt.max_finite))
    return np.where(beyond & (magnitude(fmt, right) == fmt.max_finite), right + fmt.min_positive, right)


def _late(fmt: Format, operation: str, columns: list[Codes]) -> Codes:
    right = rounded(fmt, operation, "rn", columns)
    limit = 2.0 * 2.0 ** (fmt.bias)
    late = np.abs(exact(fmt, operation, columns)) < limit
    return np.where(late & (magnitude(fmt, right) == fmt.infinity_code), right - fmt.min_positive, right)


def _twice(fmt: Format, operation: str, columns: list[Codes]) -> Codes:
    """Round to the format's precision as if there were no subnormals, then to the place of the subnormal."""
    right = rounded(fmt, operation, "rn", columns)
    bits = torch.from_numpy(exact(fmt, operation, columns)).view(torch.int64)
    shift = F64.mantissa_bits - fmt.mantissa_bits
    once = (bits + ((1 << (shift - 1)) - 1) + ((bits >> shift) & 1)) & -(1 << shift)
    again = round_float64(fmt, once.view(torch.float64)).numpy()
    return np.where(is_finite(fmt, right) & (magnitude(fmt, right) <= fmt.min_normal), again, right)


def _flushed(fmt: Format, codes: Codes) -> Codes:
    return np.where(magnitude(fmt, codes) < fmt.min_normal, codes & ~fmt.magnitude_mask, codes)


def _wider(fmt: Format, columns: list[Codes]) -> Codes:
    wide = torch.float32 if fmt is F16 else torch.float64
    a, b, c = (to_float64(fmt, torch.from_numpy(x)).to(wide) for x in columns)
    return round_float64(fmt, (a * b + c).to(torch.float64)).numpy()


def _cancelled(fmt: Format, operation: str, columns: list[Codes], depth: int, operand: int) -> Codes:
    right = rounded(fmt, operation, "rn", columns)
    product = rounded(fmt, "mul", "rn", columns[:2]) if operation == "fma" and operand == 0 else columns[operand]
    deep = (magnitude(fmt, product) >> fmt.mantissa_bits) - (magnitude(fmt, right) >> fmt.mantissa_bits) >= depth
    deep &= is_finite(fmt, right) & ~is_zero(fmt, right) & is_finite(fmt, product)
    return np.where(deep, right ^ fmt.min_positive, right)


def _product_cut(fmt: Format, columns: list[Codes], bits: int) -> Codes:
    """The product truncated to some bits, then the sum rounded once."""
    a, b, c = (to_float64(fmt, torch.from_numpy(x)) for x in columns)
    cut = ((a * b).view(torch.int64) & -(1 << (F64.precision - bits))).view(torch.float64)
    right = rounded(fmt, "fma", "rn", columns)
    wrong = round_float64(fmt, odd_sum(cut, c)).numpy()
    return np.where(is_finite(fmt, right) & ~is_zero(fmt, right), wrong, right)


def _ignored(fmt: Format, columns: list[Codes]) -> Codes:
    right = rounded(fmt, "fma", "rn", columns)
    product = rounded(fmt, "mul", "rn", columns[:2])
    far = (magnitude(fmt, product) >> fmt.mantissa_bits) - (magnitude(fmt, columns[2]) >> fmt.mantissa_bits)
    # If the addend is zero, the sign of a zero product may matter, so that nothing is ignored.
    far = (far > fmt.precision + 2) & is_finite(fmt, product) & ~is_zero(fmt, columns[2])
    return np.where(far, product, right)


def _negative_zero(fmt: Format, operation: str, columns: list[Codes]) -> Codes:
    right = rounded(fmt, operation, "rn", columns)
    normal = magnitude(fmt, columns[-1]) >= fmt.min_normal
    return np.where((right == 0) & normal, 1 << fmt.sign_shift, right)
