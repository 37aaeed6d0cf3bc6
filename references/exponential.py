"""2^x, log2(x) and tanh(x), correctly rounded: the functions that `ex2.approx`, `lg2.approx` and `tanh.approx`
approximate.

Specials (PTX ISA 9): ex2(-inf) = +0, ex2(+-0) = 1, ex2(+inf) = +inf; lg2(+-0) = -inf, lg2 of negative numbers = NaN,
lg2(+inf) = +inf; tanh(+-0) = +-0, tanh(+-inf) = +-1; NaN gives the canonical NaN. Subnormal operands and results are
kept, unless `ftz=True` flushes both, or `ftz="results"` the results. All functions take and return int64 codes of `fmt`
(float32, float16 or bfloat16) and round to nearest even.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ptxdiff.references.correct_rounding import round_function, settle
from ptxdiff.references.formats import F32, Format, sign
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, operand

if TYPE_CHECKING:
    from torch import Tensor


def ex2(x: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """2 to the power x, rounded once. It overflows to infinity from 128 on, and underflows through subnormals to +0."""
    x = operand(fmt, x, ftz)
    rounded = round_function("ex2", torch.exp2, x, fmt, ftz)
    return settle("ex2", x, rounded) if fmt is F32 else rounded


def lg2(x: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """The logarithm to base 2, rounded once."""
    x = operand(fmt, x, ftz)
    rounded = round_function("lg2", torch.log2, x, fmt, ftz)
    return settle("lg2", x, rounded) if fmt is F32 else rounded


def tanh(x: Tensor, *, fmt: Format = F32, ftz: Ftz = False) -> Tensor:
    """The hyperbolic tangent, rounded once; an odd function."""
    x = operand(fmt, x, ftz)
    rounded = round_function("tanh", torch.tanh, x, fmt, ftz)
    if fmt is not F32:
        return rounded
    top: Tensor = sign(fmt, x) << fmt.sign_shift
    return settle("tanh", x ^ top, rounded ^ top) ^ top
