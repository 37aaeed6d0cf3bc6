"""Sine and cosine: the approximate instructions, and Triton's functions, in radians."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, absolute, asm, plain, ulp
from ptxdiff.references import trigonometric
from ptxdiff.references.formats import F32

# Outside these ranges the ISA states no bound, because the argument reduction loses precision.
NEAR = Domain("|x| <= 2 pi", lambda values: abs(values["x"]) <= 6.283185)
FAR = Domain("|x| <= 100 pi", lambda values: abs(values["x"]) <= 314.15926)
LIBDEVICE = ulp(3, source="CUDA C++ Programming Guide, mathematical functions: sinf and cosf 2 ulp; the reference half")


@triton.jit
def in_triton(x, SINE: tl.constexpr):
    """tl.sin and tl.cos are CUDA's sinf and cosf, which reduce every argument."""
    return tl.sin(x) if SINE else tl.cos(x)


def case_of(name, reference, pytorch, exponent):
    """The bound of cos is ISA 9.4's, 2^-20.4; up to 9.3 it was that of sin."""
    bound = absolute(2.0**exponent, on=NEAR, source=f"PTX ISA, {name}: .approx.f32")
    far = absolute(2.0**-14.7, on=FAR, source=f"PTX ISA, {name}: .approx.f32")
    sine = {"SINE": name == "sin"}
    return Case(
        inputs={"x": F32},
        outputs={"y": F32},
        reference=reference,
        # Where errors come nearest to the bounds, in both ranges, for sin and cos.
        hard_cases=[(0xC0527E09,), (0xC39B846E,), (0x409CCDB6,), (0x439C53B9,)],
        pytorch=pytorch,
        variants={
            "approx": asm(f"{name}.approx.f32 $0, $1;", packs=(1,), match=bound),
            "approx-far": asm(f"{name}.approx.f32 $0, $1;", packs=(1,), match=far),
            "approx.ftz": asm(f"{name}.approx.ftz.f32 $0, $1;", packs=(1,), match=bound, ftz="required"),
            "triton": plain(in_triton, constants=sine, match=LIBDEVICE, ftz="allowed"),
        },
        family="fast math",
        source=f"PTX ISA, {name}; CUDA C++ Programming Guide, mathematical functions",
    )


sin = case_of("sin", trigonometric.sin, torch.sin, -20.5)
cos = case_of("cos", trigonometric.cos, torch.cos, -20.4)
