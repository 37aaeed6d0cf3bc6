"""Operations on fields of words: averages and saturating sums of bytes, interleaved bits, 128-bit arithmetic.

Codes are zero-extended bit patterns (64 bits: two's complement) in and out, as in `ptxdiff.references.integers`.

Sources: G. M. Morton, "A computer oriented geodetic data base", 1966 (interleaved bits); B. E. Bayer, "An optimum
method for two-level rendition of continuous-tone pictures", 1973 (dither matrix); PTX ISA 9, extended-precision integer
arithmetic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references import bits, integers
from ptxdiff.references.formats import U8, U64, Format
from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor


def add_clamped(a: Tensor, b: Tensor, *, fmt: Format = U8) -> Tensor:
    """The sum of unsigned numbers of up to 32 bits, clamped to the largest number."""
    return (a + b).clamp(max=fmt.code_mask)


def average(a: Tensor, b: Tensor) -> Tensor:
    """(a + b) / 2 of unsigned numbers of up to 32 bits, with ties rounded up."""
    return (a + b + 1) >> 1


def absolute_difference(a: Tensor, b: Tensor) -> Tensor:
    """|a - b| of unsigned numbers of up to 32 bits."""
    return (a - b).abs()


def interleave(x: Tensor, y: Tensor) -> Tensor:
    """The 32 bits of a Morton code: bit k of the 16-bit `x` at position 2k, bit k of `y` at 2k + 1."""
    return sum((((x >> k) & 1) << 2 * k | ((y >> k) & 1) << 2 * k + 1 for k in range(16)), torch.zeros_like(x))


def deinterleave(code: Tensor) -> tuple[Tensor, Tensor]:
    """(x, y) of a 32-bit Morton code: the bits at even positions, and those at odd positions."""
    zero = torch.zeros_like(code)
    even = sum((((code >> 2 * k) & 1) << k for k in range(16)), zero)
    odd = sum((((code >> 2 * k + 1) & 1) << k for k in range(16)), zero)
    return even, odd


def bayer8(x: Tensor, y: Tensor) -> Tensor:
    """The entry (0..63) of Bayer's 8 x 8 matrix in row y and column x, both mod 8.

    The matrix is M(2n) = [[4M(n), 4M(n) + 2], [4M(n) + 3, 4M(n) + 1]], M(1) = 0: the lowest bits of x and y choose
    the highest two bits of the entry.
    """
    entry = torch.zeros_like(x)
    for k in range(3):
        right, down = (x >> k) & 1, (y >> k) & 1
        entry = entry * 4 + (right ^ down) * 2 + down
    return entry


def add128(a_low: Tensor, a_high: Tensor, b_low: Tensor, b_high: Tensor) -> tuple[Tensor, Tensor]:
    """(low, high) 64 bits of the sum of two 128-bit numbers, wrapping."""
    low, carry = integers.add_carry(a_low, b_low, fmt=U64)
    return low, integers.add_carry(a_high, b_high, carry, fmt=U64)[0]


def sub128(a_low: Tensor, a_high: Tensor, b_low: Tensor, b_high: Tensor) -> tuple[Tensor, Tensor]:
    """(low, high) 64 bits of the difference of two 128-bit numbers, wrapping."""
    low, borrow = integers.sub_borrow(a_low, b_low, fmt=U64)
    return low, integers.sub_borrow(a_high, b_high, borrow, fmt=U64)[0]


def mul128(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(low, high) 64 bits of the product of two unsigned 64-bit numbers."""
    return a * b, integers.high_product(a, b)


def byte_swap(a: Tensor) -> Tensor:
    """The four bytes of a word in reverse order."""
    return (a & 255) << 24 | (a >> 8 & 255) << 16 | (a >> 16 & 255) << 8 | a >> 24


def rotate_left(a: Tensor, amount: Tensor) -> Tensor:
    """A 32-bit word rotated by amount mod 32."""
    return bits.shf(a, a, amount, left=True)


def sort_key(codes: Tensor, *, fmt: Format) -> Tensor:
    """An unsigned key in the order of IEEE 754's totalOrder: -NaN, -inf .. -0, +0 .. +inf, NaN."""
    top = torch.ones_like(codes) << fmt.sign_shift
    negative = (codes & top) != 0
    return torch.where(negative, ~codes & fmt.code_mask, codes | top)
