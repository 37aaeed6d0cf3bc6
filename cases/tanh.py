"""The hyperbolic tangent: the approximate instruction, through an exponential, and libdevice's; halves in pairs."""

import torch

from ptxdiff import Case, absolute, asm, plain, relative, since, ulp
from ptxdiff.references import exponential
from ptxdiff.references.formats import BF16, F16, F32, Format

from ._device.tanh import BY_EXPONENTIAL, in_libdevice, over_float32

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
