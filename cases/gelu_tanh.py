"""GELU by its tanh formula, in three spellings: tanh.approx, CUDA's tanhf, and the sigmoid."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, Domain, absolute, asm, plain, since
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32


@triton.jit
def by_tanh(x):
    """PyTorch's approximate="tanh", with CUDA's tanhf."""
    return 0.5 * x * (1.0 + libdevice.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


@triton.jit
def by_sigmoid(x):
    """The same formula: 0.5 (1 + tanh u) = sigmoid(2 u)."""
    return x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))


ORDINARY = Domain("|x| <= 8", lambda values: abs(values["x"]) <= 8)  # beyond, the result is x or within 2^-40 of 0

# u = sqrt(2/pi) (x + 0.044715 x^3); x / 2 (1 + tanh u) = h + h t, +0 for -0
TANH = """
    {
        .reg .f32 s, u, h;
        mul.rn.f32 s, $1, $1;
        fma.rn.f32 s, s, 0f3D122279, 0f3F4C422A;   // sqrt(2/pi) * 0.044715, sqrt(2/pi)
        mul.rn.f32 u, $1, s;
        tanh.approx.f32 u, u;
        mul.rn.f32 h, $1, 0f3F000000;
        fma.rn.f32 $0, h, u, h;
    }
"""


# Derived, for |x| <= 8: erf or tanh near -1 cancels, which leaves |x / 2| times their absolute error and the rounding
# of the sum: 4 * (2^-23 + 2^-24). By the sigmoid: |x| times its 2^-21.5. By tanh.approx: |x / 2| times 2^-11.
SMALL = absolute(2.0**-20, on=ORDINARY, source="derived beside it")
SIGMOID = absolute(2.0**-18.5, on=ORDINARY, source="derived beside it")

case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.gelu_tanh,
    hard_cases=[(0xBFB3AF16,)],  # where the bounds are nearest
    pytorch=lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    ftz="allowed",
    variants={
        "tanh.approx": asm(
            TANH,
            match=absolute(2.0**-8.9, on=ORDINARY, zero_sign="any", source="derived beside it"),
            targets=since("sm_75"),
        ),
        "libdevice-tanh": plain(by_tanh, match=SMALL),
        "sigmoid": plain(by_sigmoid, match=SIGMOID),
    },
    family="fast math",
    source="PTX ISA, tanh; PyTorch, GELU with approximate='tanh'",
)
