"""A running maximum and its position: setp with two selp, guarded moves, set with lop3, and Triton; also in a loop."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, I32


@triton.jit
def in_triton(best, place, x, here):
    """Two selections with one comparison."""
    larger = x > best
    return tl.where(larger, x, best), tl.where(larger, here, place)


def later_if_larger(best, place, x, here):
    """(x, here) if x > best, else (best, place): equal numbers, including zeros of both signs, and NaN change
    nothing."""
    larger = comparison.compare(x, best, "gt")
    return torch.where(larger, x, best), torch.where(larger, here, place)


case = Case(
    inputs={"best": F32, "place": I32, "x": F32, "here": I32},
    outputs={"m": F32, "i": I32},
    reference=later_if_larger,
    nan="payload",
    carry={"m": "best", "i": "place"},
    variants={
        "setp-selp": asm("{ .reg .pred p; setp.gt.f32 p, $4, $2; selp.f32 $0, $4, $2, p; selp.b32 $1, $5, $3, p; }"),
        "guarded": asm(
            "{ .reg .pred p; setp.gt.f32 p, $4, $2; mov.f32 $0, $2; mov.b32 $1, $3; @p mov.f32 $0, $4; "
            "@p mov.b32 $1, $5; }"
        ),
        # Select with the comparison instead of max, which gives +0 for -0 and +0: this keeps the first.
        "set-lop3": asm(
            "{ .reg .b32 t; set.gt.u32.f32 t, $4, $2; lop3.b32 $0, t, $4, $2, 0xCA; lop3.b32 $1, t, $5, $3, 0xCA; }"
        ),
        "triton": plain(in_triton),
    },
    source="PTX ISA, setp, selp and set",
    family="predicates",
)
