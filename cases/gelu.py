"""GELU by the error function, as PyTorch does by default."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, absolute, plain
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

ORDINARY = Domain("|x| <= 8", lambda values: abs(values["x"]) <= 8)  # beyond, the result is x or within 2^-40 of 0


@triton.jit
def by_erf(x):
    """PyTorch's default."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


# Derived, for |x| <= 8: erf or tanh near -1 cancels, which leaves |x / 2| times their absolute error and the rounding
# of the sum: 4 * (2^-23 + 2^-24). By the sigmoid: |x| times its 2^-21.5. By tanh.approx: |x / 2| times 2^-11.
SMALL = absolute(2.0**-20, on=ORDINARY, source="derived beside it")

case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.gelu,
    pytorch=torch.nn.functional.gelu,
    ftz="allowed",
    variants={"erf": plain(by_erf, match=SMALL)},
    family="fast math",
    source="Hendrycks, Gimpel 2016, GELU; PyTorch, GELU",
)
