"""e^x: the approximate power of two of x * log2(e), corrected and not, Triton's and libdevice's."""

import torch

from ptxdiff import Case, Domain, asm, magnitude, plain, ulp
from ptxdiff.references import faithful
from ptxdiff.references.formats import F32

from ._device.exp import TWO_STEPS, in_libdevice, in_triton

# The product x * log2(e) has a relative error of 2^-24 from its rounding and 2^-26.2 from that of log2(e): 7.4e-8 |x|
# in the result, at most 1.24 ulp for each unit of x. ex2.approx adds 2 ulp, the reference half an ulp.
SCALED = ulp(
    4,
    on=magnitude("x", 0, 1),
    outside=ulp(132, overflow=True, underflow=True, source="derived: 1.24 |x| + 2.5, up to |x| = 104"),
    source="derived: 1.24 |x| + 2.5",
)

ORDINARY = Domain("|x| <= 87", lambda values: abs(values["x"]) <= 87)  # the correction of an infinity is NaN


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=faithful.exp,
    hard_cases=[(0xBD851592,), (0x42B00C13,), (0x42000416,)],  # where the bounds are nearest
    pytorch=torch.exp,
    variants={
        "ex2.approx": asm("mul.rn.f32 $0, $1, 0f3FB8AA3B; ex2.approx.f32 $0, $0;", match=SCALED),
        "ex2.approx.ftz": asm(
            "mul.rn.ftz.f32 $0, $1, 0f3FB8AA3B; ex2.approx.ftz.f32 $0, $0;", match=SCALED, ftz="allowed"
        ),
        "ex2.approx-corrected": asm(
            TWO_STEPS,
            match=ulp(4, on=ORDINARY, source="ex2.approx 2 ulp, its argument 0, the product and sum 1"),
        ),
        "triton": plain(in_triton, match=SCALED, ftz="allowed"),
        "libdevice": plain(
            in_libdevice,
            match=ulp(
                2, overflow=True, underflow=True, source="CUDA C++ Programming Guide, mathematical functions: expf"
            ),
            ftz="allowed",
        ),
    },
    family="fast math",
    source="PTX ISA, ex2 and mul; CUDA C++ Programming Guide, mathematical functions",
)
