"""The example of Triton's documentation: c is the uint8 `a` as int32, d the maximum of `a` as float32 and
`b`.

Converting 0..255 to float32 is exact. d follows PTX's `max.f32`: a NaN in b gives the converted a (never
NaN), and +0 is larger than -0, so b = -0 with a = 0 gives +0. A subnormal b is kept (no `.ftz`); it is smaller than any
a > 0 and, if negative, smaller than 0.

Sources: PTX ISA 9, cvt and max.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references import arithmetic
from ptxdiff.references.conversion import convert
from ptxdiff.references.formats import F32, I32, U8

if TYPE_CHECKING:
    from torch import Tensor


def convert_and_max(a: Tensor, b: Tensor, *, nan: bool = False) -> tuple[Tensor, Tensor]:
    """(c, d): int32 codes and float32 codes, for uint8 codes `a` and float32 codes `b`. `nan` is `max.NaN`."""
    as_float = convert(a, source=U8, target=F32)
    return convert(a, source=U8, target=I32), arithmetic.maximum(as_float, b, nan=nan)
