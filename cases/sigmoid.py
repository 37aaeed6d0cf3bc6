"""1 / (1 + e^-x): by an exponential, by the approximate tanh, with a rounded quotient, and Triton's."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, absolute, asm, plain, since
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32


@triton.jit
def in_triton(x):
    """tl.sigmoid."""
    return tl.sigmoid(x)


@triton.jit
def rounded(x):
    """The quotient correctly rounded."""
    return tl.div_rn(tl.full(x.shape, 1.0, tl.float32), 1.0 + tl.exp(-x))


# Derived: e = ex2(-x log2 e) has a relative error of 2^-23.6 |x| + 2^-22, which changes the result by that times s (1 -
# s), and |x| s (1 - s) is below 0.23. The rounding of 1 + e and the reciprocal add 1.5 ulp of 1 at most.
BY_EXPONENTIAL = absolute(2.0**-21.5, source="derived: 2^-23.6 * 0.23 + 2^-22 / 4 + 2^-24 + 2^-23 + reference")

EXPONENTIAL = """
    {
        .reg .f32 e;
        mul.rn.f32 e, $1, 0fBFB8AA3B;      // -log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        rcp.approx.ftz.f32 $0, e;
    }
"""

TANH = """
    {
        .reg .f32 t;
        mul.rn.f32 t, $1, 0f3F000000;
        tanh.approx.f32 t, t;
        fma.rn.f32 $0, t, 0f3F000000, 0f3F000000;
    }
"""


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.sigmoid,
    hard_cases=[(0x41002DF3,), (0xC01BFFF8,)],  # where the bounds are nearest
    pytorch=torch.sigmoid,
    ftz="allowed",
    variants={
        "exponential": asm(EXPONENTIAL, match=BY_EXPONENTIAL),
        "tanh": asm(
            TANH,
            match=absolute(2.0**-11.9, source="derived: half of tanh's relative 2^-11, and the sum's rounding"),
            targets=since("sm_75"),
        ),
        "triton": plain(in_triton, match=BY_EXPONENTIAL),
        "div_rn": plain(rounded, match=BY_EXPONENTIAL),
    },
    family="fast math",
    source="PTX ISA, ex2, rcp and tanh; PyTorch, sigmoid",
)
