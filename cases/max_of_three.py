"""The largest and the smallest of three float32: Blackwell's three-input max and min, two with two inputs, and
Triton."""

import triton
import triton.language as tl

from ptxdiff import ALL, Case, asm, plain, since
from ptxdiff.references import arithmetic
from ptxdiff.references.formats import F32

THREE = since("sm_100a")


@triton.jit
def in_triton(a, b, c):
    """A number wins over NaN."""
    return tl.maximum(tl.maximum(a, b), c), tl.minimum(tl.minimum(a, b), c)


@triton.jit
def nan_in_triton(a, b, c):
    """NaN stays."""
    most = tl.maximum(tl.maximum(a, b, tl.PropagateNan.ALL), c, tl.PropagateNan.ALL)
    return most, tl.minimum(tl.minimum(a, b, tl.PropagateNan.ALL), c, tl.PropagateNan.ALL)


def extremes(a, b, c, *, nan=False):
    """(largest, smallest); numbers win over NaN, three NaNs give the canonical NaN; -0 is below +0."""
    most = arithmetic.maximum(arithmetic.maximum(a, b, nan=nan), c, nan=nan)
    return most, arithmetic.minimum(arithmetic.minimum(a, b, nan=nan), c, nan=nan)


def extremes_nan(a, b, c):
    """.NaN: any NaN gives the canonical one."""
    return extremes(a, b, c, nan=True)


def of_three(reference, nan, in_triton, targets):
    """The case with or without .NaN."""
    return Case(
        inputs={"a": F32, "b": F32, "c": F32},
        outputs={"most": F32, "least": F32},
        reference=reference,
        variants={
            "three": asm(
                f"max{nan}.f32 $0, $2, $3, $4; min{nan}.f32 $1, $2, $3, $4;", targets=THREE, refused=ALL - THREE
            ),
            "two": asm(
                f"max{nan}.f32 $0, $2, $3; max{nan}.f32 $0, $0, $4; min{nan}.f32 $1, $2, $3; min{nan}.f32 $1, $1, $4;",
                targets=targets,
            ),
            "triton": plain(in_triton),
        },
        source="PTX ISA, max and min with three inputs",
        family="packed arithmetic",
    )


case = of_three(extremes, "", in_triton, ALL)
nan = of_three(extremes_nan, ".NaN", nan_in_triton, since("sm_80"))
