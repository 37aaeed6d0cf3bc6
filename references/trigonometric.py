"""sin(x) and cos(x) in radians, correctly rounded for every float32: the functions of `sin.approx` and `cos.approx`.

Specials (PTX ISA 9): sin(+-0) = +-0, cos(+-0) = 1, infinities and NaN give the canonical NaN. Subnormals are kept,
unless `ftz=True` flushes operand and result, or `ftz="results"` the result. int64 codes of `fmt` (float32, float16 or
bfloat16), rounded to nearest even. The ISA bounds the
approximations by an absolute error on a range around zero, not in ulp: near a multiple of pi the ulp distance is
unbounded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.correct_rounding import round_function, settle
from ptxdiff.references.formats import F32, Format, is_nan, sign
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, operand

if TYPE_CHECKING:
    from torch import Tensor


def sin(x: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """The sine, rounded once; an odd function."""
    x = operand(fmt, x, ftz)
    rounded = round_function("sin", torch.sin, x, fmt, ftz)
    if fmt is not F32:
        return rounded
    # The table lists positive operands; the sign of NaN results is not flipped.
    top: Tensor = sign(fmt, x) << fmt.sign_shift
    return torch.where(is_nan(F32, rounded), rounded, settle("sin", x ^ top, rounded ^ top) ^ top)


def cos(x: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """The cosine, rounded once; an even function."""
    x = operand(fmt, x, ftz)
    rounded = round_function("cos", torch.cos, x, fmt, ftz)
    return settle("cos", x & fmt.magnitude_mask, rounded) if fmt is F32 else rounded
