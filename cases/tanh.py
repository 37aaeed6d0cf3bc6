"""The hyperbolic tangent: the approximate instruction, through an exponential, and libdevice's; halves in pairs."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, absolute, asm, plain, relative, since, ulp
from ptxdiff.references import exponential
from ptxdiff.references.formats import BF16, F16, F32, Format


@triton.jit
def in_libdevice(x):
    """CUDA's tanhf."""
    return libdevice.tanh(x)


@triton.jit
def over_float32(x):
    """CUDA's tanhf of the widened number, rounded back."""
    return libdevice.tanh(x.to(tl.float32)).to(x.dtype)


# tanh x = 1 - 2 / (e^2x + 1). The exponential's relative error r, at most 2^-23.4 |2x log2 e| + 2^-22, changes the
# result by r (1 - tanh^2) / 2; rounding of the sum, the quotient and the difference adds at most 2 * 2^-23.
BY_EXPONENTIAL = """
    {
        .reg .f32 e;
        mul.rn.f32 e, $1, 0f4038AA3B;      // 2 log2(e)
        ex2.approx.f32 e, e;
        add.rn.f32 e, e, 0f3F800000;
        rcp.approx.f32 e, e;
        fma.rn.f32 e, e, 0fC0000000, 0f3F800000;
        copysign.f32 $0, $1, e;            // of -0 the difference is +0
    }
"""


TURING = since("sm_75")


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.tanh,
    hard_cases=[(0xC0802E23,), (0xBF16C00F,)],  # where the bounds are nearest
    pytorch=torch.tanh,
    variants={
        "tanh.approx": asm(
            "tanh.approx.f32 $0, $1;",
            match=relative(2.0**-11, source="PTX ISA, tanh: .approx.f32, maximum relative error 2^-11"),
            packs=(1,),
            targets=TURING,
        ),
        "by-exponential": asm(BY_EXPONENTIAL, match=absolute(2.0**-21, source="derived beside the text")),
        "libdevice": plain(
            in_libdevice,
            match=ulp(3, source="CUDA C++ Programming Guide, mathematical functions: tanhf 2 ulp; the reference half"),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="PTX ISA, tanh; CUDA C++ Programming Guide, mathematical functions",
)


def halves(fmt: Format, kind: str, bound: float, first: str):
    """One and two per instruction."""
    match = absolute(bound, source="PTX ISA, tanh: .f16 maximum absolute error 2^-10.987, .bf16 2^-8")
    return Case(
        inputs={"x": fmt},
        outputs={"y": fmt},
        reference=lambda x: exponential.tanh(x, fmt=fmt),
        pytorch=torch.tanh,
        variants={
            "one": asm(f"tanh.approx.{kind} $0, $1;", match=match),
            "two": asm(f"tanh.approx.{kind}x2 $0, $1;", match=match),
            "libdevice": plain(over_float32, match=ulp(1, source="derived: tanhf is within 2 ulp"), ftz="allowed"),
        },
        targets=since(first),
        family="fast math",
        source="PTX ISA, tanh",
    )


f16, bf16 = halves(F16, "f16", 2.0**-10.987, "sm_75"), halves(BF16, "bf16", 2.0**-8, "sm_90")
