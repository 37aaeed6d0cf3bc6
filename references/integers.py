"""Integer arithmetic of PTX on int64 code tensors: 8 to 64 bits, signed or unsigned by format.

Codes are zero-extended bit patterns (64 bits: two's complement) in and out; results wrap to the format's width unless
the function's name says saturating. The ISA does not define division by zero, nor do these functions.

Source: PTX ISA 9, integer arithmetic and extended-precision instructions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ptxdiff.references.formats import I32, U32, Format, sign
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import MIN64, shift_right, unsigned_less

if TYPE_CHECKING:
    from torch import Tensor


def wrap(fmt: Format, value: Tensor) -> Tensor:
    """The low bits of an integer, as a code."""
    return value & fmt.code_mask if fmt.code_bits < 64 else value


def number(fmt: Format, codes: Tensor) -> Tensor:
    """The integer value of a code, as int64; unsigned 64-bit codes are returned as patterns."""
    return codes | -(sign(fmt, codes) << fmt.sign_shift) if fmt.has_sign else codes


def less(fmt: Format, a: Tensor, b: Tensor) -> Tensor:
    """Whether `a < b` in the format's order."""
    return number(fmt, a) < number(fmt, b) if fmt.has_sign else unsigned_less(a, b)


def add(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`add`: the sum, wrapping."""
    return wrap(fmt, a + b)


def sub(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`sub`: the difference, wrapping."""
    return wrap(fmt, a - b)


def clamp(fmt: Format, value: Tensor) -> Tensor:
    """`.sat` for signed formats below 64 bits: an int64 clamped to the format's range, as a code."""
    return wrap(fmt, value.clamp(-(1 << fmt.sign_shift), fmt.max_finite))


def add_saturating(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`add.sat.s32`: clamps to the smallest or largest value instead of wrapping."""
    return clamp(fmt, number(fmt, a) + number(fmt, b))


def sub_saturating(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`sub.sat.s32`."""
    return clamp(fmt, number(fmt, a) - number(fmt, b))


def high_product(a: Tensor, b: Tensor) -> Tensor:
    """The high 64 bits of the 128-bit product of unsigned 64-bit patterns, by 32-bit halves."""
    low_mask = (1 << 32) - 1
    a_low, a_high = a & low_mask, shift_right(a, 32)
    b_low, b_high = b & low_mask, shift_right(b, 32)
    # Each partial product is below 2^64 - 2^33, so adding two 32-bit numbers to it stays a 64-bit pattern.
    middle = a_high * b_low + shift_right(a_low * b_low, 32)
    other = a_low * b_high + (middle & low_mask)
    return a_high * b_high + shift_right(middle, 32) + shift_right(other, 32)


def mul(a: Tensor, b: Tensor, *, fmt: Format = I32, half: Literal["lo", "hi"] = "lo") -> Tensor:
    """`mul.lo` or `mul.hi`: the low or high half of the double-width product."""
    if half == "lo":
        return wrap(fmt, a * b)
    if fmt.code_bits < 64:
        product = number(fmt, a) * number(fmt, b)
        return wrap(fmt, shift_right(product, fmt.code_bits))
    high = high_product(a, b)
    if fmt.has_sign:
        # A negative operand, read as unsigned, is 2^64 too large, so the product has 2^64 times the other operand too
        # much.
        high = high - torch.where(a < 0, b, 0) - torch.where(b < 0, a, 0)
    return high


def mul_wide(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`mul.wide`: the whole product, a code of twice the width; 16 and 32 bits."""
    product = number(fmt, a) * number(fmt, b)
    return product if fmt.code_bits == 32 else product & ((1 << 2 * fmt.code_bits) - 1)


def mad(
    a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = I32, half: Literal["lo", "hi"] = "lo", sat: bool = False
) -> Tensor:
    """`mad.lo`, `mad.hi` (with `sat`: `mad.hi.sat.s32`): half of the product plus c."""
    product = mul(a, b, fmt=fmt, half=half)
    return add_saturating(product, c, fmt=fmt) if sat else add(product, c, fmt=fmt)


def _product24(a: Tensor, b: Tensor, fmt: Format) -> Tensor:
    low24 = [code & 0xFFFFFF for code in (a, b)]
    if fmt.has_sign:
        low24 = [(code ^ 0x800000) - 0x800000 for code in low24]
    return low24[0] * low24[1]


def mul24(a: Tensor, b: Tensor, *, fmt: Format = I32, half: Literal["lo", "hi"] = "lo") -> Tensor:
    """`mul24`: bits 31..0 or 47..16 of the product of the operands' low 24 bits."""
    return wrap(fmt, _product24(a, b, fmt) >> (0 if half == "lo" else 16))


def mad24(
    a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = I32, half: Literal["lo", "hi"] = "lo", sat: bool = False
) -> Tensor:
    """`mad24`: `mul24` plus c; with `sat`, `mad24.hi.sat.s32`."""
    product = mul24(a, b, fmt=fmt, half=half)
    return add_saturating(product, c, fmt=fmt) if sat else add(product, c, fmt=fmt)


def div(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`div`: the quotient rounded toward zero. b = 0 is undefined; the smallest signed value by -1 wraps."""
    divisor = torch.where(b == 0, 1, b)
    if fmt.has_sign:
        x, y = number(fmt, a), number(fmt, divisor)
        y = torch.where((x == MIN64) & (y == -1), 1, y)  # wraps to itself; int64 division would trap
        return wrap(fmt, torch.div(x, y, rounding_mode="trunc"))
    return _divide_unsigned(a, divisor) if fmt.code_bits == 64 else torch.div(a, divisor, rounding_mode="trunc")


def _divide_unsigned(a: Tensor, b: Tensor) -> Tensor:
    """Unsigned 64-bit division: halve, divide as signed, and correct by at most one."""
    quotient = torch.div(shift_right(a, 1), torch.where(b < 0, 1, b), rounding_mode="trunc") << 1
    rest = a - quotient * b
    quotient = quotient + (~unsigned_less(rest, b)).to(torch.int64)
    return torch.where(b < 0, (~unsigned_less(a, b)).to(torch.int64), quotient)


def rem(a: Tensor, b: Tensor, *, fmt: Format = I32) -> Tensor:
    """`rem`: a - b * div(a, b), with the sign of a. b = 0 is undefined."""
    return wrap(fmt, a - div(a, b, fmt=fmt) * b)


def absolute(a: Tensor, *, fmt: Format = I32) -> Tensor:
    """`abs`; the smallest value wraps to itself."""
    return wrap(fmt, torch.where(sign(fmt, a) == 1, -a, a))


def negate(a: Tensor, *, fmt: Format = I32) -> Tensor:
    """`neg`, wrapping."""
    return wrap(fmt, -a)


def minimum(a: Tensor, b: Tensor, *, fmt: Format = I32, relu: bool = False) -> Tensor:
    """`min`; with `relu`, negative results become 0."""
    return _relu(fmt, torch.where(less(fmt, a, b), a, b), relu)


def maximum(a: Tensor, b: Tensor, *, fmt: Format = I32, relu: bool = False) -> Tensor:
    """`max`; with `relu`, negative results become 0."""
    return _relu(fmt, torch.where(less(fmt, b, a), a, b), relu)


def _relu(fmt: Format, codes: Tensor, relu: bool) -> Tensor:
    return torch.where(sign(fmt, codes) == 1, 0, codes) if relu else codes


def sad(a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = I32) -> Tensor:
    """`sad`: c plus the absolute difference of a and b, in the format's order, wrapping."""
    return wrap(fmt, c + torch.where(less(fmt, a, b), b - a, a - b))


# ---- Extended precision: the carry flag in and out, 0 or 1 --------------------------------------------------------


def add_carry(a: Tensor, b: Tensor, carry: Tensor | int = 0, *, fmt: Format = U32) -> tuple[Tensor, Tensor]:
    """`add.cc` and `addc.cc`: (sum, carry out) of a + b + carry."""
    total = wrap(fmt, a + b + carry)
    part = wrap(fmt, a + b)
    return total, (unsigned_less(part, a) | unsigned_less(total, part)).to(torch.int64)


def sub_borrow(a: Tensor, b: Tensor, borrow: Tensor | int = 0, *, fmt: Format = U32) -> tuple[Tensor, Tensor]:
    """`sub.cc` and `subc.cc`: (difference, borrow out) of a - (b + borrow)."""
    part = wrap(fmt, a - b)
    total = wrap(fmt, part - borrow)
    return total, (unsigned_less(a, b) | unsigned_less(part, total)).to(torch.int64)


# ---- Dot products -------------------------------------------------------------------------------------------------


def _lanes(codes: Tensor, width: int, count: int, signed: bool) -> list[Tensor]:
    lanes = [(codes >> (width * place)) & ((1 << width) - 1) for place in range(count)]
    top = 1 << (width - 1)
    return [(lane ^ top) - top for lane in lanes] if signed else lanes


def dp4a(a: Tensor, b: Tensor, c: Tensor, *, a_signed: bool = True, b_signed: bool = True) -> Tensor:
    """`dp4a`: c plus the products of four bytes each of a and b; 32 bits, wrapping."""
    pairs = zip(_lanes(a, 8, 4, a_signed), _lanes(b, 8, 4, b_signed), strict=True)
    return wrap(U32, c + sum((x * y for x, y in pairs), torch.zeros_like(c)))


def dp2a(
    a: Tensor, b: Tensor, c: Tensor, *, half: Literal["lo", "hi"] = "lo", a_signed: bool = True, b_signed: bool = True
) -> Tensor:
    """`dp2a`: c plus the products of the two halves of a and the two low or high bytes of b; 32 bits, wrapping."""
    bytes_of_b = _lanes(b, 8, 4, b_signed)[0 if half == "lo" else 2 :][:2]
    pairs = zip(_lanes(a, 16, 2, a_signed), bytes_of_b, strict=True)
    return wrap(U32, c + sum((x * y for x, y in pairs), torch.zeros_like(c)))
