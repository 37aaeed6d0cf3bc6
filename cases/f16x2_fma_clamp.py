"""c = clamp(a*b + 1, 0, 6), d = c*c on float16: two elements per instruction, and plain Triton."""

import numpy as np
import triton
import triton.language as tl

from ptxdiff import Case, Domain, asm, either, exact, plain, since
from ptxdiff.references import fma_clamp
from ptxdiff.references.formats import F16


@triton.jit
def in_triton(a, b):
    """a * b + 1.0 may be fused or not: the compiler's setting decides, so there is a variant for each."""
    y = tl.clamp(a * b + 1.0, 0.0, 6.0).to(tl.float16)  # some releases of Triton clamp in float32
    return y, y * y


CLAMPED = """
            {
                .reg .b32 one, zero, six;
                mov.b32 one, 0x3C003C00;   // 1.0, twice
                mov.b32 zero, 0x00000000;
                mov.b32 six, 0x46004600;   // 6.0, twice
                fma.rn.f16x2 $0, $2, $3, one;
                max.f16x2 $0, $0, zero;
                min.f16x2 $0, $0, six;
                mul.rn.f16x2 $1, $0, $0;
            }
            """


def in_pytorch(a, b):
    """Both outputs in PyTorch."""
    c = (a * b + 1.0).clamp(0.0, 6.0)
    return c, c * c


def a_product(values):
    """Whether a * b is a number."""
    return ~np.isnan(values["a"] * values["b"])


# tl.clamp's result for NaN is undefined unless it propagates NaN, so no bound applies there.
UNLESS_NAN = exact(on=Domain("a * b is a number", a_product))

case = Case(
    inputs={"a": F16, "b": F16},
    outputs={"c": F16, "d": F16},
    reference=fma_clamp.fused,
    pytorch=in_pytorch,
    # d is the smallest subnormal with one rounding, four of it with two. Elsewhere one of both readings is 0.
    hard_cases=[(0xBC11, 0x3BDE), (0xBC1C, 0x3BC9), (0x3C25, 0xBBB8)],
    variants={
        # max without .NaN returns the operand that is a number: NaN clamps to 0, exactly and on every target.
        "f16x2": asm(
            CLAMPED,
            constraints="=r,=r,r,r",
            pack=2,
            targets=since("sm_80"),
            note="max and min on f16x2 came with sm_80",
        ),
        # For sm_80 Triton 3.9 leaves a mul and an add that ptxas may fuse or not; for others it writes one fma.
        "triton-fusion-on": plain(
            in_triton,
            fusion=True,
            reference=either(fma_clamp.fused, fma_clamp.two_roundings),
            match=UNLESS_NAN,
            note="fusion on: a * b + 1 may become one fma, rounded once",
        ),
        "triton-two-roundings": plain(
            in_triton,
            fusion=False,
            reference=fma_clamp.two_roundings,
            match=UNLESS_NAN,
            note="fusion off: the product is rounded before 1 is added",
        ),
    },
    source="PTX ISA, half precision fma, max, min, mul",
    family="packed arithmetic",
)
