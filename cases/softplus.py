"""ln(1 + e^x): by the approximate exponential and logarithm, by libdevice's log1p, and without overflow."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, Domain, absolute, asm, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32


@triton.jit
def in_triton(x):
    """max(x, 0) + ln(1 + e^-|x|): nothing overflows, and no threshold is needed."""
    kept = tl.where(x != x, x, tl.maximum(x, 0.0))
    return kept + tl.log(1.0 + tl.exp(-tl.abs(x)))


@triton.jit
def with_log1p(x):
    """The same with log1p, which keeps the digits of a small e^x."""
    kept = tl.where(x != x, x, tl.maximum(x, 0.0))
    return kept + libdevice.log1p(tl.exp(-tl.abs(x)))


SMALL = Domain("x <= 20", lambda values: values["x"] <= 20)
LARGE = ulp(1, source="beyond 20, e^-x is below a tenth of x's last place")
# Derived: for x <= 20, e^x has a relative error of 2^-23.6 |x| + 2^-22, which bounds the absolute error of the
# logarithm; lg2.approx adds a relative 2^-22 of up to 29, in base 2, and the sum in its argument 2^-24.
FAST = absolute(2.0**-17, on=SMALL, outside=LARGE, source="derived beside it")

# PyTorch's threshold: x itself beyond 20.
TEXT = """
    {
        .reg .f32 e;
        .reg .pred large;
        mul.rn.f32 e, $1, 0f3FB8AA3B;      // log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        lg2.approx.f32 e, e;
        mul.rn.f32 e, e, 0f3F317218;       // ln 2
        setp.gt.f32 large, $1, 0f41A00000;
        selp.f32 $0, $1, e, large;
    }
"""


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.softplus,
    hard_cases=[(0x41398D4B,), (0x52800000,)],  # where the bounds are nearest
    pytorch=torch.nn.functional.softplus,
    ftz="allowed",
    variants={
        "ex2-lg2": asm(TEXT, match=FAST),
        "triton": plain(in_triton, match=absolute(2.0**-17, on=SMALL, outside=LARGE, source="as of the asm")),
        "log1p": plain(with_log1p, match=absolute(2.0**-18, on=SMALL, outside=LARGE, source="as of the asm")),
    },
    family="fast math",
    source="PTX ISA, ex2 and lg2; PyTorch, Softplus",
)
