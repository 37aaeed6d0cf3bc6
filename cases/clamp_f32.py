"""x clamped to [lo, hi], float32: comparisons that let NaN pass, min and max that replace it, and Triton's clamp."""

import numpy as np
import torch
import triton
import triton.language as tl

from ptxdiff import Case, Domain, asm, plain, since
from ptxdiff.references import arithmetic, comparison
from ptxdiff.references.formats import F32


@triton.jit
def in_triton(x, lo, hi):
    """tl.clamp that propagates NaN; otherwise its result for NaN is undefined."""
    return tl.clamp(x, lo, hi, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def by_comparison(x, lo, hi):
    """Numbers below lo become lo, numbers above hi become hi; NaN is neither."""
    return tl.where(x < lo, lo, tl.where(x > hi, hi, x))


SELECTED = (
    "{ .reg .pred p, q; setp.lt.f32 p, $1, $2; setp.gt.f32 q, $1, $3; selp.f32 $0, $3, $1, q; selp.f32 $0, $2, $0, p; }"
)
GUARDED = (
    "{ .reg .pred p; mov.b32 $0, $1; setp.lt.f32 p, $1, $2; @p mov.b32 $0, $2; "
    "setp.gt.f32 p, $1, $3; @p mov.b32 $0, $3; }"
)


def compared(x, lo, hi):
    """lo below lo, hi above hi, else x: NaN stays, and a zero keeps its sign even if a bound is zero."""
    below, above = comparison.compare(x, lo, "lt"), comparison.compare(x, hi, "gt")
    return torch.where(below, lo, torch.where(above, hi, x))


def replaced(x, lo, hi):
    """min(max(x, lo), hi): a number wins over NaN, so NaN gives lo; -0 is smaller than +0."""
    return arithmetic.minimum(arithmetic.maximum(x, lo), hi)


def kept(x, lo, hi):
    """The same with .NaN, which keeps NaN."""
    return arithmetic.minimum(arithmetic.maximum(x, lo, nan=True), hi, nan=True)


def ordered(values):
    """Bounds that are numbers, the lower one first."""
    return (values["lo"] <= values["hi"]) & ~np.isnan(values["lo"]) & ~np.isnan(values["hi"])


shared = {
    "inputs": {"x": F32, "lo": F32, "hi": F32},
    "outputs": {"y": F32},
    "where": Domain("lo <= hi", ordered),
    "family": "predicates",
}

case = Case(
    **shared,
    reference=compared,
    variants={"setp-selp": asm(SELECTED), "guarded": asm(GUARDED), "triton": plain(by_comparison)},
    source="PTX ISA, setp and selp",
)

minmax = Case(
    **shared,
    reference=replaced,
    variants={
        "max-min": asm("max.f32 $0, $1, $2; min.f32 $0, $0, $3;"),
        "max-min.NaN": asm("max.NaN.f32 $0, $1, $2; min.NaN.f32 $0, $0, $3;", reference=kept, targets=since("sm_80")),
        "triton.NaN": plain(in_triton, reference=kept),
    },
    source="PTX ISA, max and min",
)
