"""Sums that keep the rounding error: two-sum, Kahan's running sum, and the compensated dot product; and a product of
matrices by fused multiply-adds, which does not keep it.

Codes of one float format in and out (float32 unless `fmt` says otherwise); every step is an operation of
`ptxdiff.references.arithmetic`, rounded to nearest even and never contracted: with contraction the errors would be zero
or wrong. If a sum overflows, or an operand is NaN or infinite, the error is the NaN or infinity that the steps give.
The error of a product is exact unless it falls below the smallest subnormal.

Sources: D. Knuth, The Art of Computer Programming 2, 4.2.2 (two-sum); W. Kahan, "Further remarks on reducing
truncation errors", 1965; T. Ogita, S. Rump, S. Oishi, "Accurate sum and dot product", 2005 (dot2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.arithmetic import add, fma, mul, negate, sub
from ptxdiff.references.formats import F32, Format

if TYPE_CHECKING:
    from torch import Tensor


def two_sum(a: Tensor, b: Tensor, *, fmt: Format = F32) -> tuple[Tensor, Tensor]:
    """(s, e): the rounded sum and its error: s + e is exactly a + b, unless s overflows."""
    s = add(a, b, fmt=fmt)
    virtual = sub(s, a, fmt=fmt)
    left = sub(a, sub(s, virtual, fmt=fmt), fmt=fmt)
    return s, add(left, sub(b, virtual, fmt=fmt), fmt=fmt)


def fast_two_sum(a: Tensor, b: Tensor, *, fmt: Format = F32) -> tuple[Tensor, Tensor]:
    """(s, e) as in `two_sum`, in three operations; requires |a| >= |b|."""
    s = add(a, b, fmt=fmt)
    return s, sub(b, sub(s, a, fmt=fmt), fmt=fmt)


def two_product(a: Tensor, b: Tensor, *, fmt: Format = F32) -> tuple[Tensor, Tensor]:
    """(p, e): the rounded product and its error."""
    p = mul(a, b, fmt=fmt)
    return p, fma(a, b, negate(p, fmt=fmt), fmt=fmt)


def kahan(s: Tensor, c: Tensor, x: Tensor, *, fmt: Format = F32) -> tuple[Tensor, Tensor]:
    """One step of Kahan's sum: (s, c) with x added; c is the amount by which s is too large."""
    y = sub(x, c, fmt=fmt)
    t = add(s, y, fmt=fmt)
    return t, sub(sub(t, s, fmt=fmt), y, fmt=fmt)


def dot2(s: Tensor, c: Tensor, a: Tensor, b: Tensor, *, fmt: Format = F32) -> tuple[Tensor, Tensor]:
    """One step of the compensated dot product: (s, c) with a * b added; c accumulates the errors of products and
    sums."""
    p, low = two_product(a, b, fmt=fmt)
    total, lost = two_sum(s, p, fmt=fmt)
    return total, add(c, add(lost, low, fmt=fmt), fmt=fmt)


def fused_product(a: Tensor, b: Tensor, c: Tensor, *, fmt: Format = F32) -> Tensor:
    """`a b + c` for codes of m x k, k x n and m x n: each element is a chain of fused multiply-adds from c, in the
    order of k. NaN, infinities and the sign of zero are those of `fma`."""
    for k in range(a.shape[1]):
        c = fma(a[:, k : k + 1], b[k : k + 1], c, fmt=fmt)
    return c
