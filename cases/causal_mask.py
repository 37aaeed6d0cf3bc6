"""Attention's causal mask: the score where column <= row, else -inf; selp, a guarded move, slct, logic and Triton."""

import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, asm, plain
from ptxdiff.references import comparison
from ptxdiff.references.formats import F32, I32

MINUS_INFINITY = 0xFF800000


@triton.jit
def in_triton(score, row, column):
    """A selection."""
    return tl.where(column <= row, score, float("-inf"))


def masked(score, row, column):
    """The score, NaN included, bits unchanged; or -inf."""
    visible = comparison.compare(column, row, "le", fmt=I32)
    return torch.where(visible, score, torch.full_like(score, MINUS_INFINITY))


def in_pytorch(score, row, column):
    """PyTorch's masked_fill."""
    return score.masked_fill(column > row, float("-inf"))


case = Case(
    inputs={"score": F32, "row": I32, "column": I32},
    outputs={"y": F32},
    reference=masked,
    nan="payload",
    pytorch=in_pytorch,
    where=Domain("row and column are positions", lambda v: (v["row"] >= 0) & (v["column"] >= 0)),
    hard_cases=[(0x3F800000, 5, 5), (0x3F800000, 0, 0x7FFFFFFF), (0x7FC12345, 0x7FFFFFFF, 0)],
    variants={
        "selp": asm("{ .reg .pred p; setp.le.s32 p, $3, $2; selp.f32 $0, $1, 0fFF800000, p; }"),
        "guarded": asm("{ .reg .pred p; mov.f32 $0, $1; setp.gt.s32 p, $3, $2; @p mov.f32 $0, 0fFF800000; }"),
        # The difference of two positions does not overflow.
        "slct": asm("{ .reg .b32 t; sub.s32 t, $2, $3; slct.f32.s32 $0, $1, 0fFF800000, t; }"),
        "sign-mask": asm("{ .reg .b32 t; sub.s32 t, $2, $3; shr.s32 t, t, 31; lop3.b32 $0, t, 0xFF800000, $1, 0xCA; }"),
        "triton": plain(in_triton),
    },
    source="PTX ISA, selp, slct and lop3",
    family="predicates",
)
