"""The error function: Triton's, which is libdevice's, and a formula of Abramowitz and Stegun on approximate units."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, absolute, asm, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

# 7.1.26: with t = 1 / (1 + p |x|), erf |x| = 1 - (a1 t + ... + a5 t^5) e^(-x^2), with an error of at most 1.5e-7.
# float32 adds the rounding of t and of each step, below 2^-22 together, and of the difference; e^(-x^2) adds 2^-22.
FORMULA = """
    {
        .reg .f32 a, t, y, e;
        abs.f32 a, $1;
        fma.rn.f32 t, a, 0f3EA7BA05, 0f3F800000;   // p = 0.3275911
        rcp.approx.ftz.f32 t, t;
        mov.f32 y, 0f3F87DC22;                     // a5 = 1.061405429
        fma.rn.f32 y, y, t, 0fBFBA00E3;            // a4 = -1.453152027
        fma.rn.f32 y, y, t, 0f3FB5F0E3;            // a3 = 1.421413741
        fma.rn.f32 y, y, t, 0fBE91A98E;            // a2 = -0.284496736
        fma.rn.f32 y, y, t, 0f3E827906;            // a1 = 0.254829592
        mul.rn.f32 y, y, t;
        mul.rn.f32 e, a, a;
        mul.rn.f32 e, e, 0fBFB8AA3B;               // -log2(e)
        ex2.approx.f32 e, e;
        neg.f32 y, y;
        fma.rn.f32 y, y, e, 0f3F800000;
        copysign.f32 $0, $1, y;
    }
"""


@triton.jit
def in_triton(x):
    """tl.erf."""
    return tl.erf(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.erf,
    hard_cases=[(0xBD2F42B9,)],  # where the bounds are nearest
    pytorch=torch.erf,
    variants={
        "abramowitz-stegun": asm(
            FORMULA, match=absolute(2.0**-20, source="Abramowitz, Stegun 7.1.26: 1.5e-7, and the rounding beside it")
        ),
        "triton": plain(
            in_triton,
            match=ulp(3, source="CUDA C++ Programming Guide, mathematical functions: erff 2 ulp; the reference half"),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="Abramowitz, Stegun, Handbook of Mathematical Functions, 7.1.26; PTX ISA, ex2, rcp, copysign",
)
