"""Reciprocal and quotient: the approximate instruction, the rounded one, and Triton's division."""

import torch

from ptxdiff import Case, Meets, asm, exact, magnitude, plain, ulp
from ptxdiff.references import reciprocal
from ptxdiff.references.formats import F32

from ._device.rcp import divide, one_over, times_approximate_reciprocal
from ._host.policies import PRODUCT, full_range, times_rounded_reciprocal

case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=reciprocal.correctly_rounded,
    hard_cases=[(0x138005A9,)],  # where the bounds are nearest
    pytorch=torch.reciprocal,
    variants={
        "rcp.approx.ftz": asm(
            "rcp.approx.ftz.f32 $0, $1;", match=ulp(1, source="PTX ISA, rcp: .approx.f32"), ftz="required"
        ),
        "rcp.rn": asm("rcp.rn.f32 $0, $1;"),
        "triton": plain(one_over, match=full_range("x")),
    },
    family="fast math",
    source="PTX ISA, rcp; IEEE 754 division",
)


quotient = Case(
    inputs={"a": F32, "b": F32},
    outputs={"c": F32},
    reference=reciprocal.quotient,
    pytorch=torch.div,
    variants={
        "triton": plain(divide, match=full_range("b")),
        "rcp.approx.ftz": plain(times_approximate_reciprocal, **PRODUCT),
        "rcp.approx.ftz-asm": asm(
            "rcp.approx.ftz.f32 $0, $2; mul.rn.f32 $0, $1, $0;", constraints="=&r,r,r", pack=1, **PRODUCT
        ),
        "rcp.rn": asm(
            "rcp.rn.f32 $0, $2; mul.rn.f32 $0, $1, $0;",
            constraints="=&r,r,r",
            pack=1,
            reference=times_rounded_reciprocal,
            match=exact(),
            meets=Meets(
                magnitude("b", 2.0**-126, 2.0**125) & magnitude("a", 2.0**-100, 2.0**100),
                ulp(2, overflow=True, underflow=True, source="derived: two roundings, a relative 2^-24 each"),
            ),
        ),
        "div.rn": asm("div.rn.f32 $0, $1, $2;"),
    },
    family="fast math",
    source="PTX ISA, div and rcp; IEEE 754 division",
)
