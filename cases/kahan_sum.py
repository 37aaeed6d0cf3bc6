"""Kahan's running sum, float32, one step and a loop of them: rounded operations, a negated correction, and Triton."""

import triton

from ptxdiff import Case, asm, plain
from ptxdiff.references import sums
from ptxdiff.references.formats import F32


@triton.jit
def in_triton(s, c, x):
    """No compiler cancels these: Triton has no fast-math for sums."""
    y = x - c
    t = s + y
    return t, (t - s) - y


case = Case(
    inputs={"s": F32, "c": F32, "x": F32},
    outputs={"t": F32, "d": F32},
    reference=sums.kahan,
    carry={"t": "s", "d": "c"},
    variants={
        "sub.rn": asm(
            "{ .reg .f32 y; sub.rn.f32 y, $4, $3; add.rn.f32 $0, $2, y; sub.rn.f32 $1, $0, $2; sub.rn.f32 $1, $1, y; }"
        ),
        "neg": asm(
            "{ .reg .f32 y, n; neg.f32 n, $3; add.rn.f32 y, $4, n; add.rn.f32 $0, $2, y; neg.f32 n, $2; "
            "add.rn.f32 $1, $0, n; neg.f32 n, y; add.rn.f32 $1, $1, n; }"
        ),
        "triton": plain(in_triton),
    },
    source="W. Kahan, Further remarks on reducing truncation errors, 1965",
    family="packed arithmetic",
)
