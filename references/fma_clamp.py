"""c = clamp(a * b + 1, 0, 6) and d = c * c in float16: fused or with two roundings, and the handling of NaN.

Variants differ in these rules, each a keyword here:

- `fused`: `fma.rn.f16x2` rounds a * b + 1 once. `mul` and `add` round twice and give other results: use `fused=False`.
If neither instruction has a rounding modifier, ptxas may fuse them, and both results are legal.
- `nan`: PTX `max` and `min` without `.NaN` return the operand that is not NaN, so clamp(NaN) = min(max(NaN,
  0), 6) = 0; with min first it is 6 (`order`). With `.NaN` the result is the canonical NaN (0x7fff). Triton's
  `tl.clamp` leaves the result for NaN undefined unless propagate_nan is ALL.
- -0: a * b + 1 = -0 cannot occur (an exact zero sum rounds to +0), so the clamp never gets it.

d is the rounded product of the rounded, clamped c. It cannot overflow: c <= 6.

Sources: PTX ISA 9, half precision fma, max, min, mul; IEEE 754-2019.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F16, Format, encode
from ptxdiff.references.lazily import torch

if TYPE_CHECKING:
    from torch import Tensor

Order = Literal["max first", "min first"]


def fma_clamp(
    a: Tensor, b: Tensor, *, fmt: Format = F16, fused: bool = True, nan: bool = False, order: Order = "max first"
) -> tuple[Tensor, Tensor]:
    """(c, d) for code tensors a and b; int64 codes of `fmt`."""
    one, zero, six = (torch.full_like(a, encode(fmt, number)) for number in (1.0, 0.0, 6.0))
    product_plus_one = arithmetic.fma(a, b, one, fmt=fmt)
    if not fused:
        product_plus_one = arithmetic.add(arithmetic.mul(a, b, fmt=fmt), one, fmt=fmt)
    if order == "max first":
        c = arithmetic.minimum(arithmetic.maximum(product_plus_one, zero, fmt=fmt, nan=nan), six, fmt=fmt, nan=nan)
    else:
        c = arithmetic.maximum(arithmetic.minimum(product_plus_one, six, fmt=fmt, nan=nan), zero, fmt=fmt, nan=nan)
    return c, arithmetic.mul(c, c, fmt=fmt)


def fused(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """One rounding for a * b + 1; NaN clamps to 0."""
    return fma_clamp(a, b)


def two_roundings(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a * b rounded, then + 1 rounded; NaN clamps to 0."""
    return fma_clamp(a, b, fused=False)
