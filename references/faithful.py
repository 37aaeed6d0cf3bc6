"""e^x, ln x, erf, atan2 and activations that use them, evaluated in float64 and rounded once: faithful rounding.

All functions take and return int64 codes of float32 and use formulas without cancellation. So the float64 result has an
error of a few float64 ulps, and the code is the nearest float32, unless the true value lies within 2^-26 ulp of the
midpoint between two: then it may be either. Compare with a bound of at least 1 ulp. Subnormal results are kept;
`ftz=True` flushes operands and results, `ftz="results"` only results.

| function | specials, besides NaN, which gives the canonical NaN |
|---|---|
| `exp` | -inf: +0, +inf: +inf |
| `log` | +-0: -inf, negative: NaN, +inf: +inf |
| `erf` | +-0: +-0, +-inf: +-1 |
| `atan2` | IEEE 754-2019 9.2.1: zeros and infinities by their signs, +-0 over -0 is +-pi |
| `sigmoid` | -inf: +0, +inf: 1 |
| `silu`, `gelu`, `gelu_tanh` | +-0: +-0, +inf: +inf, -inf: NaN, the product -inf * 0 of their definition |
| `softplus` | -inf: +0, +inf: +inf |

`gelu` is x * Phi(x), `gelu_tanh` its approximation 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) (Hendrycks, Gimpel
2016). Sources: IEEE 754-2019 9.2; PyTorch's definitions of the activations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from ptxdiff.references.correct_rounding import round_function
from ptxdiff.references.formats import F32, to_float64
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, operand, round_float64

if TYPE_CHECKING:
    from torch import Tensor


def _rounded(name: str, function: Callable[[Tensor], Tensor], x: Tensor, ftz: Ftz) -> Tensor:
    return round_function(name, function, operand(F32, x, ftz), F32, ftz)


def exp(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """e to the power x."""
    return _rounded("exp", torch.exp, x, ftz)


def log(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """The natural logarithm."""
    return _rounded("log", torch.log, x, ftz)


def erf(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """The error function."""
    return _rounded("erf", torch.erf, x, ftz)


def sigmoid(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """1 / (1 + e^-x)."""
    return _rounded("sigmoid", lambda v: 1 / (1 + torch.exp(-v)), x, ftz)


def silu(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """x / (1 + e^-x), also called swish."""
    return _rounded("silu", lambda v: v / (1 + torch.exp(-v)), x, ftz)


def gelu(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """x times the standard normal distribution function of x; erfc keeps the precision of the lower tail."""
    return _rounded("gelu", lambda v: v * (0.5 * torch.special.erfc(v * -math.sqrt(0.5))), x, ftz)


def gelu_tanh(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """The approximation with tanh, by 0.5 (1 + tanh(u)) = 1 / (1 + e^-2u), which does not cancel."""

    def function(v: Tensor) -> Tensor:
        u = math.sqrt(2 / math.pi) * (v + 0.044715 * v * v * v)
        return v / (1 + torch.exp(-2 * u))

    return _rounded("gelu_tanh", function, x, ftz)


def softplus(x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """ln(1 + e^x)."""
    return _rounded("softplus", lambda v: v.clamp(min=0) + torch.log1p(torch.exp(-v.abs())), x, ftz)


def atan2(y: Tensor, x: Tensor, *, ftz: Ftz = False) -> Tensor:
    """The angle of the point (x, y), from -pi to pi; y comes first."""
    values = (to_float64(F32, operand(F32, code, ftz)) for code in (y, x))
    return round_float64(F32, torch.atan2(*values), ftz=bool(ftz))
