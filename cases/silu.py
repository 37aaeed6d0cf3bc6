"""x / (1 + e^-x), also called swish: the quotient in three ways, and x times the approximate tanh's sigmoid."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, absolute, asm, plain, relative, since
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

# div.full is accurate for every e up to 2^126; above, it gives 0 and the true result is below 2^-119.
QUOTIENT = """
    {
        .reg .f32 e;
        mul.rn.f32 e, $1, 0fBFB8AA3B;      // -log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        div.full.f32 $0, $1, e;
    }
"""

# x / 2 * (1 + tanh(x / 2)): h + h * t. For -0 the sum is +0.
TANH = """
    {
        .reg .f32 h, t;
        mul.rn.f32 h, $1, 0f3F000000;
        tanh.approx.f32 t, h;
        fma.rn.f32 $0, h, t, h;
    }
"""


@triton.jit
def in_triton(x):
    """As model code writes it."""
    return x * tl.sigmoid(x)


NEGATIVE = Domain("x <= 0", lambda values: values["x"] <= 0)

# As for sigmoid, times x: for x > 0 relative errors, 2^-22.3 of the sigmoid, 2^-23 of the division and 2^-24 of the
# product; for x < 0 absolute errors, as e^-x grows without bound: |x|^2 s (1 - s) < 0.5 and |x| s < 0.28.
BOUND = absolute(
    2.0**-21, on=NEGATIVE, outside=relative(2.0**-21, source="derived beside it"), source="derived beside it"
)


ORDINARY = Domain("|x| <= 16", lambda values: abs(values["x"]) <= 16)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.silu,
    hard_cases=[(0xC000060A,), (0x3E663CDC,), (0x410B35F0,)],  # where the bounds are nearest
    pytorch=torch.nn.functional.silu,
    ftz="allowed",
    variants={
        "quotient": asm(QUOTIENT, match=BOUND),
        "tanh": asm(
            TANH,
            match=absolute(
                2.0**-7.9, on=ORDINARY, zero_sign="any", source="derived: |x / 2| times tanh's relative 2^-11"
            ),
            targets=since("sm_75"),
        ),
        "triton": plain(in_triton, match=BOUND),
    },
    family="fast math",
    source="PTX ISA, ex2, div and tanh; PyTorch, SiLU",
)
