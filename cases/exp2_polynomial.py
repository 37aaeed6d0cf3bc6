"""2^x without the approximate unit: a polynomial for the fraction, the integer part added to the exponent field."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, Meets, asm, plain, ulp
from ptxdiff.references import arithmetic, exponential
from ptxdiff.references.formats import F32, encode


@triton.jit
def in_triton(x):
    """Degree 5 in plain Triton; tl.fma keeps a compiler from rounding twice."""
    bounded = tl.minimum(tl.maximum(x, -126.0), 127.4375)
    shifted = bounded + 12582912.0
    f = bounded - (shifted - 12582912.0)
    y = tl.fma(tl.full(f.shape, 0x3AAEC3FF, tl.uint32).to(tl.float32, bitcast=True), f, 0.009618128649890423)
    for coefficient in tl.static_range(4):
        y = tl.fma(y, f, (0.05550410971045494, 0.24022650718688965, 0.6931471824645996, 1.0)[coefficient])
    return (y.to(tl.uint32, bitcast=True) + (shifted.to(tl.uint32, bitcast=True) << 23)).to(tl.float32, bitcast=True)


# 2^f on [-0.5, 0.5]: Taylor's coefficients of e^(f ln 2) as float32, the highest first. The remainder of the series is
# largest at f = -0.5: 10827 ulp of the result after degree 3, 42.5 after degree 5. Rounding adds a few.
COEFFICIENTS = (0x3AAEC3FF, 0x3C1D955B, 0x3D635847, 0x3E75FDF0, 0x3F317218, 0x3F800000)


def text(degree):
    """The asm for a degree."""
    first, *rest = (f"0f{code:08X}" for code in COEFFICIENTS[-1 - degree :])
    steps = "\n".join(f"fma.rn.f32 y, y, f, {coefficient};" for coefficient in rest)
    return f"""
        {{
            .reg .f32 x, n, f, y;
            .reg .b32 e, p;
            max.f32 x, $1, 0fC2FC0000;
            min.f32 x, x, 0f42FEE000;
            add.rn.f32 n, x, 0f4B400000;
            mov.b32 e, n;
            sub.rn.f32 n, n, 0f4B400000;
            sub.rn.f32 f, x, n;
            mov.f32 y, {first};
            {steps}
            mov.b32 p, y;
            shl.b32 e, e, 23;
            add.u32 $0, p, e;
        }}
    """


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
    # Where the bounds are nearest, and where the last bit of the second coefficient decides.
    hard_cases=[(0xC08FFFEC,), (0xC08FF3D5,), (0x40D9D5A0,)],
    variants={
        "degree-3": asm(text(3), **degree(3, 10830)),
        "degree-5": asm(text(5), **degree(5, 46)),
        "triton-degree-5": plain(in_triton, **degree(5, 46)),
    },
    family="fast math",
    source="Taylor's series of e^(f ln 2); IEEE 754 encodings",
)
