"""The natural logarithm: by the approximate binary one, Triton's, and libdevice's."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from ptxdiff import Case, Domain, absolute, asm, plain, relative, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

INNER = Domain("0.5 < x < 2", lambda values: (values["x"] > 0.5) & (values["x"] < 2))
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
def natural_libdevice(x):
    """CUDA's logf."""
    return libdevice.log(x)


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.log,
    hard_cases=[(0x3F0166FF,), (0x3EFFEF7D,)],  # where the bounds are nearest
    pytorch=torch.log,
    variants={
        "lg2.approx": asm("lg2.approx.f32 $0, $1; mul.rn.f32 $0, $0, 0f3F317218;", match=LN),
        "triton": plain(natural, match=LN, ftz="allowed"),
        "libdevice": plain(natural_libdevice, match=LIBDEVICE, ftz="allowed"),
    },
    family="fast math",
    source="PTX ISA, lg2; CUDA C++ Programming Guide, mathematical functions",
)
