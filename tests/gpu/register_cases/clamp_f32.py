"""c = clamp(a*b + 1, 0, 6), d = c*c on float32; cases/f16x2_fma_clamp.py does it on two float16 an instruction."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, plain
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32, encode


@triton.jit
def in_triton(a, b):
    """One fma, and a clamp."""
    c = tl.clamp(tl.fma(a, b, 1.0), 0.0, 6.0)
    return c, c * c


def clamped(a, b):
    """The results for NaN are those of minimum and maximum: tl.clamp leaves them open."""
    fixed = [torch.full_like(a, encode(F32, v)) for v in (1.0, 0.0, 6.0)]
    c = arithmetic.minimum(arithmetic.maximum(arithmetic.fma(a, b, fixed[0]), fixed[1]), fixed[2])
    return c, arithmetic.mul(c, c)


case = Case(
    inputs={"a": F32, "b": F32},
    outputs={"c": F32, "d": F32},
    reference=clamped,
    variants={"triton": plain(in_triton)},
)
