"""Whether lo <= x <= hi: two comparisons combined in every way, float32; one unsigned comparison, int32; and Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, I32, U32


@triton.jit
def in_triton(x, lo, hi):
    """Both comparisons."""
    return ((x >= lo) & (x <= hi)).to(tl.uint32)


def inside(x, lo, hi):
    """1 or 0; 0 if any operand is NaN."""
    holds = comparison.compare(x, lo, "ge") & comparison.compare(x, hi, "le")
    return holds.to(torch.int64)


def inside_integers(x, lo, hi):
    """1 or 0 of int32."""
    holds = comparison.compare(x, lo, "ge", fmt=I32) & comparison.compare(x, hi, "le", fmt=I32)
    return holds.to(torch.int64)


COMBINED = "{{ .reg .pred p; setp.ge.{0} p, $1, $2; setp.le.and.{0} p, $1, $3, p; selp.u32 $0, 1, 0, p; }}"
LOGIC = "{{ .reg .pred p, q; setp.ge.{0} p, $1, $2; setp.le.{0} q, $1, $3; and.pred p, p, q; selp.u32 $0, 1, 0, p; }}"

case = Case(
    inputs={"x": F32, "lo": F32, "hi": F32},
    outputs={"y": U32},
    reference=inside,
    variants={
        "setp.and": asm(COMBINED.format("f32")),
        "and.pred": asm(LOGIC.format("f32")),
        # Neither below nor above, with unordered comparisons, which are true for NaN.
        "not-outside": asm(
            "{ .reg .pred p; setp.ltu.f32 p, $1, $2; setp.gtu.or.f32 p, $1, $3, p; selp.u32 $0, 0, 1, p; }"
        ),
        "guarded-setp": asm("{ .reg .pred p; setp.ge.f32 p, $1, $2; @p setp.le.f32 p, $1, $3; selp.u32 $0, 1, 0, p; }"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, setp with a predicate operand",
    family="predicates",
)

integer = Case(
    inputs={"x": I32, "lo": I32, "hi": I32},
    outputs={"y": U32},
    where=Domain("lo <= hi", lambda v: v["lo"] <= v["hi"]),
    reference=inside_integers,
    variants={
        "setp.and": asm(COMBINED.format("s32")),
        "one-comparison": asm(
            "{ .reg .pred p; .reg .b32 t, width; sub.s32 t, $1, $2; sub.s32 width, $3, $2; "
            "setp.ls.u32 p, t, width; selp.u32 $0, 1, 0, p; }"
        ),
        "triton": plain(in_triton),
    },
    source="PTX ISA, setp: .ls",
    family="predicates",
)
