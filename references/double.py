"""IEEE 754 arithmetic on float64 in every rounding mode, in 64-bit integers throughout.

Torch has no wider float, so significands are multiplied, divided and compared as 64-bit and 128-bit integers and
rounded once by `ptxdiff.references.rounding.round_exact`. Functions take and return int64 codes (the bit patterns), one
per element, broadcast like torch operators. Subnormals are kept (float64 has no `.ftz` in PTX). NaN results are the NaN
that invalid operations generate; hardware keeps the payload of a NaN operand, so cases compare float64 NaNs as any NaN.

Sources: IEEE 754-2019 5.4.1 and 6.1 to 6.3; PTX ISA 9, add, sub, mul, fma, div, rcp, sqrt for .f64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.formats import F64, encode, is_infinity, is_nan, is_zero
from ptxdiff.references.integers import high_product
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import (
    MIN64,
    Rounding,
    bit_length,
    decompose,
    nan_code,
    round_exact,
    shift_right,
    unsigned_less,
)

if TYPE_CHECKING:
    from torch import Tensor

    Wide = tuple[Tensor, Tensor]  # 128 bits: high and low 64-bit patterns

INFINITY = 0x7FF0000000000000


def _normalised(codes: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(negative, significand of exactly 53 bits or 0, exponent)."""
    negative, significand, exponent = decompose(F64, codes)
    missing = torch.where(significand == 0, 0, 53 - bit_length(significand))
    return negative, significand << missing, exponent - missing


def _signed_infinity(negative: Tensor) -> Tensor:
    return torch.where(negative, INFINITY + MIN64, INFINITY)


def _signed_zero(negative: Tensor) -> Tensor:
    return torch.where(negative, MIN64, 0)


# ---- 128 bits -----------------------------------------------------------------------------------------------------


def _shift_left(value: Wide, count: Tensor) -> Wide:
    """Shift left by 0 to 127; bits beyond the top are lost."""
    high, low = value
    small = count.clamp(max=63)
    carried = torch.where(count == 0, 0, shift_right(low, (64 - small).clamp(max=63)))
    far = (count - 64).clamp(min=0)
    return (
        torch.where(count >= 64, low << far, (high << small) | carried),
        torch.where(count >= 64, 0, low << small),
    )


def _shift_right_sticky(value: Wide, count: Tensor) -> Wide:
    """Shift right by any count; if ones are shifted out, the lowest bit is set."""
    high, low = value
    near, far = count.clamp(max=63), (count - 64).clamp(0, 63)
    across = torch.where(near == 0, 0, high << (64 - near).clamp(max=63))
    lost_near = low & ((1 << near) - 1)
    lost_far = low | (high & ((1 << far) - 1))
    beyond = count >= 128
    new_low = torch.where(count >= 64, shift_right(high, far), across | shift_right(low, near))
    lost = torch.where(count >= 64, lost_far, lost_near)
    new_low = torch.where(beyond, 0, new_low)
    lost = torch.where(beyond, high | low, lost)
    new_high = torch.where(count >= 64, 0, shift_right(high, near))
    return new_high, new_low | (lost != 0).to(torch.int64)


def _add(a: Wide, b: Wide) -> Wide:
    low = a[1] + b[1]
    return a[0] + b[0] + unsigned_less(low, a[1]).to(torch.int64), low


def _subtract(a: Wide, b: Wide) -> Wide:
    return a[0] - b[0] - unsigned_less(a[1], b[1]).to(torch.int64), a[1] - b[1]


def _choose(condition: Tensor, a: Wide, b: Wide) -> Wide:
    return torch.where(condition, a[0], b[0]), torch.where(condition, a[1], b[1])


def _square(root: Tensor) -> Wide:
    return high_product(root, root), root * root


def _less(a: Wide, b: Wide) -> Tensor:
    return unsigned_less(a[0], b[0]) | ((a[0] == b[0]) & unsigned_less(a[1], b[1]))


def _round_wide(negative: Tensor, value: Wide, exponent: Tensor, rounding: Rounding) -> Tensor:
    """Round a 128-bit integer below 2^127 times 2^exponent, from its top 60 bits and a sticky bit for the rest."""
    high, low = value
    length = torch.where(high > 0, 64 + bit_length(high), torch.where(low < 0, 64, bit_length(low & ~MIN64)))
    lifted = _shift_left(value, 127 - length)
    # The top bit is now bit 126, that is bit 62 of the high half: keep 60 bits of it.
    significand = lifted[0] >> 3
    sticky = ((lifted[0] & 7) | lifted[1]) != 0
    return round_exact(
        F64, negative, significand, exponent - 127 + length + 67, sticky.to(torch.int64), rounding=rounding
    )


# ---- Operations ---------------------------------------------------------------------------------------------------


def fma(a: Tensor, b: Tensor, c: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`a * b + c`, rounded once. An exact zero sum of unlike signs is +0, or -0 with rm."""
    negative_a, x, exponent_a = _normalised(a)
    negative_b, y, exponent_b = _normalised(b)
    negative_c, z, exponent_c = _normalised(c)
    negative = negative_a ^ negative_b
    # Both terms as 128-bit integers with their top bit at 125 or 126: product below 2^106, addend 2^53.
    product = _shift_left((high_product(x, y), x * y), torch.full_like(x * z, 20))
    addend = (torch.zeros_like(x * y) + (z << 9), torch.zeros_like(x * y))
    exponent_product = exponent_a + exponent_b - 20
    exponent_addend = exponent_c - 73
    exponent_product = torch.where((x == 0) | (y == 0), exponent_addend, exponent_product)
    exponent_addend = torch.where(z == 0, exponent_product, exponent_addend)
    gap = exponent_product - exponent_addend
    product = _shift_right_sticky(product, (-gap).clamp(min=0))
    addend = _shift_right_sticky(addend, gap.clamp(min=0))
    swap = _less(product, addend)
    larger, smaller = _choose(swap, addend, product), _choose(swap, product, addend)
    like = negative == negative_c
    # If the smaller term has a sticky bit, the larger ends in zeros, so the difference is odd and next to the true one.
    total = _choose(like, _add(larger, smaller), _subtract(larger, smaller))
    exponent = torch.maximum(exponent_product, exponent_addend)
    negative_total = torch.where(swap, negative_c, negative)
    zero = (total[0] == 0) & (total[1] == 0)
    negative_total = torch.where(zero, (negative & negative_c) | (~like & (rounding == "rm")), negative_total)
    result = _round_wide(negative_total, total, exponent, rounding)
    return _specials_of_fma(a, b, c, negative, result)


def _specials_of_fma(a: Tensor, b: Tensor, c: Tensor, negative: Tensor, result: Tensor) -> Tensor:
    infinite = is_infinity(F64, a) | is_infinity(F64, b)
    result = torch.where(is_infinity(F64, c), c, result)
    result = torch.where(infinite, _signed_infinity(negative), result)
    clash = infinite & is_infinity(F64, c) & (negative != (c < 0))
    invalid = (is_infinity(F64, a) & is_zero(F64, b)) | (is_zero(F64, a) & is_infinity(F64, b))
    nan = is_nan(F64, a) | is_nan(F64, b) | is_nan(F64, c) | clash | invalid
    return torch.where(nan, nan_code(F64), result)


def add(a: Tensor, b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`a + b`: 1 * a + b, which rounds once and keeps the signs of zeros."""
    return fma(torch.full_like(a, encode(F64, 1.0)), a, b, rounding=rounding)


def sub(a: Tensor, b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`a - b`."""
    return add(a, b ^ MIN64, rounding=rounding)


def mul(a: Tensor, b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`a * b`, as a fused sum with a zero of the product's sign, which does not change the product or its sign."""
    return fma(a, b, (a ^ b) & MIN64, rounding=rounding)


def div(a: Tensor, b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`a / b` by long division: 60 bits of quotient, ten in each step, and a sticky bit for the remainder."""
    negative_a, x, exponent_a = _normalised(a)
    negative_b, y, exponent_b = _normalised(b)
    negative = negative_a ^ negative_b
    divisor = torch.where(y == 0, 1, y)
    quotient = torch.div(x, divisor, rounding_mode="trunc")
    rest = x - quotient * divisor
    for _ in range(6):
        digit = torch.div(rest << 10, divisor, rounding_mode="trunc")
        rest = (rest << 10) - digit * divisor
        quotient = (quotient << 10) | digit
    quotient = torch.where(y == 0, 0, quotient)
    exponent = exponent_a - exponent_b - 60
    # 60 or 61 bits: one goes to the sticky bit, so that the significand stays below 2^61.
    sticky = ((rest != 0) | (quotient & 1 == 1)).to(torch.int64)
    result = round_exact(F64, negative, quotient >> 1, exponent + 1, sticky, rounding=rounding)
    result = torch.where(is_infinity(F64, b), _signed_zero(negative), result)
    result = torch.where(is_infinity(F64, a) | is_zero(F64, b), _signed_infinity(negative), result)
    both_zero, both_infinite = is_zero(F64, a) & is_zero(F64, b), is_infinity(F64, a) & is_infinity(F64, b)
    nan = is_nan(F64, a) | is_nan(F64, b) | both_zero | both_infinite
    return torch.where(nan, nan_code(F64), result)


def sqrt(a: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """The square root: float64's root is the first guess, which integer squares then correct."""
    negative, x, exponent = _normalised(a)
    odd = (exponent & 1) == 1
    # Take the root of x * 2^(53 or 52), whose exponent is even: the root has 53 bits.
    x = torch.where(odd, x << 1, x)
    exponent = torch.where(odd, exponent - 1, exponent)
    root = torch.sqrt(x.to(torch.float64) * 2.0**52).to(torch.int64)
    target = (shift_right(x, 12), x << 52)
    for _ in range(2):  # the guess is wrong by at most one
        too_large = _less(target, _square(root))
        root = root - too_large.to(torch.int64)
        above = root + 1
        too_small = ~_less(target, _square(above))
        root = root + too_small.to(torch.int64)
    square = _square(root)
    exact = (square[0] == target[0]) & (square[1] == target[1])
    # Whether the true root lies above the midpoint: root^2 + root < target, in integers.
    beyond = _less(_add(square, (torch.zeros_like(root), root)), target)
    significand = (root << 2) | (beyond.to(torch.int64) << 1)
    sticky = (~exact).to(torch.int64)
    result = round_exact(
        F64, torch.zeros_like(negative), significand, (exponent - 52 >> 1) - 2, sticky, rounding=rounding
    )
    result = torch.where(is_infinity(F64, a) | is_zero(F64, a), a, result)
    return torch.where(is_nan(F64, a) | ((a < 0) & ~is_zero(F64, a)), nan_code(F64), result)


def reciprocal(b: Tensor, *, rounding: Rounding = "rn") -> Tensor:
    """`1 / b`."""
    return div(torch.full_like(b, encode(F64, 1.0)), b, rounding=rounding)
