"""Logarithms: the approximate instruction to base 2, ln by way of it, Triton's and libdevice's."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from harness import Case, Domain, absolute, asm, plain, relative, ulp
from references import exponential, faithful
from references.formats import F32

INNER = Domain("0.5 < x < 2", lambda values: (values["x"] > 0.5) & (values["x"] < 2))
LG2 = absolute(
    2.0**-22,
    on=INNER,
    outside=relative(2.0**-22, source="PTX ISA, lg2: relative 2^-22 elsewhere"),
    source="PTX ISA, lg2: .approx.f32, absolute 2^-22 in (0.5, 2)",
)
# The factor ln 2 shrinks the absolute error; its own rounding and the product's add a relative 2^-23.
LN = absolute(
    2.0**-22,
    on=INNER,
    outside=relative(2.0**-21.4, source="derived: 2^-22 and two roundings"),
    source="derived: the same",
)
LIBDEVICE = ulp(2, source="CUDA C++ Programming Guide, mathematical functions: logf and log2f 1 ulp, the reference 1")


@triton.jit
def natural(x):
    """tl.log."""
    return tl.log(x)


@triton.jit
def binary(x):
    """tl.log2."""
    return tl.log2(x)


@triton.jit
def natural_libdevice(x):
    """CUDA's logf."""
    return libdevice.log(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.log,
    pytorch=torch.log,
    variants={
        "lg2.approx": asm("lg2.approx.f32 $0, $1; mul.rn.f32 $0, $0, 0f3F317218;", match=LN),
        "triton": plain(natural, match=LN, ftz="allowed"),
        "libdevice": plain(natural_libdevice, match=LIBDEVICE, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, lg2; CUDA C++ Programming Guide, mathematical functions",
)

lg2 = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.lg2,
    pytorch=torch.log2,
    variants={
        "lg2.approx": asm("lg2.approx.f32 $0, $1;", match=LG2),
        "lg2.approx.ftz": asm("lg2.approx.ftz.f32 $0, $1;", match=LG2, ftz="required"),
        "triton": plain(binary, match=LG2, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, lg2",
)
