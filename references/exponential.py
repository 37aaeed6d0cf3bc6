"""2^x, log2(x) and tanh(x), correctly rounded: what `ex2.approx`, `lg2.approx` and `tanh.approx` approximate.

Specials (PTX ISA 9): ex2(-inf) = +0, ex2(+-0) = 1, ex2(+inf) = +inf; lg2(+-0) = -inf, lg2 of anything negative NaN,
lg2(+inf) = +inf; tanh(+-0) = +-0, tanh(+-inf) = +-1; NaN gives the canonical NaN. Subnormal operands and results are
kept: `.ftz` is applied by the caller with `references.rounding.flush_subnormals`. All functions take and return int64
codes of `fmt` (float32, float16 or bfloat16) and round to nearest even.
"""

from __future__ import annotations

import torch
from torch import Tensor

from references.correct_rounding import round_function, settle
from references.formats import F32, Format, sign


def ex2(x: Tensor, *, fmt: Format = F32) -> Tensor:
    """2 to the power x, rounded once: overflows to infinity from 128 on, underflows through subnormals to +0."""
    rounded = round_function("ex2", torch.exp2, x, fmt)
    return settle("ex2", x, rounded) if fmt is F32 else rounded


def lg2(x: Tensor, *, fmt: Format = F32) -> Tensor:
    """The logarithm to base 2, rounded once."""
    rounded = round_function("lg2", torch.log2, x, fmt)
    return settle("lg2", x, rounded) if fmt is F32 else rounded


def tanh(x: Tensor, *, fmt: Format = F32) -> Tensor:
    """The hyperbolic tangent, rounded once; odd."""
    rounded = round_function("tanh", torch.tanh, x, fmt)
    if fmt is not F32:
        return rounded
    top: Tensor = sign(fmt, x) << fmt.sign_shift
    return settle("tanh", x ^ top, rounded ^ top) ^ top
