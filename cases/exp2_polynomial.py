"""2^x without the approximate unit: a polynomial for the fraction, the integer part added to the exponent field."""

import torch

from ptxdiff import Case, Domain, Meets, asm, plain, ulp
from ptxdiff.references import arithmetic, exponential
from ptxdiff.references.formats import F32, encode

from ._device.exp2_polynomial import COEFFICIENTS, in_triton, text

MAGIC = 0x4B400000  # 1.5 * 2^23: adding it rounds to an integer in the low bits of the sum
RANGE = Domain("-126 <= x <= 127", lambda values: (values["x"] >= -126) & (values["x"] <= 127))


def horner(degree):
    """The same operations, each rounded, which defines the bits: int64 codes of float32."""

    def power(x):
        def constant(code):
            return torch.full_like(x, code)

        # Clamp to the range of the exponent field; NaN becomes the lower end.
        bounded = arithmetic.minimum(
            arithmetic.maximum(x, constant(encode(F32, -126.0))), constant(encode(F32, 127.4375))
        )
        shifted = arithmetic.add(bounded, constant(MAGIC))
        f = arithmetic.sub(bounded, arithmetic.sub(shifted, constant(MAGIC)))
        first, *rest = COEFFICIENTS[-1 - degree :]
        y = constant(first)
        for coefficient in rest:
            y = arithmetic.fma(y, f, constant(coefficient))
        return (y + ((shifted & 0x1FF) << 23)) & 0xFFFFFFFF

    return power


def degree(n, bound):
    """A variant that must give exactly these bits, and be within a bound of 2^x on the range."""
    return {"reference": horner(n), "meets": Meets(RANGE, ulp(bound, source="rest of the series"))}


case = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=exponential.ex2,
    hard_cases=[(0xC08FFFEC,), (0xC08FF3D5,)],  # where the bounds are nearest
    variants={
        "degree-3": asm(text(3), **degree(3, 10830)),
        "degree-5": asm(text(5), **degree(5, 46)),
        "triton-degree-5": plain(in_triton, **degree(5, 46)),
    },
    family="fast math",
    source="Taylor's series of e^(f ln 2); IEEE 754 encodings",
)
