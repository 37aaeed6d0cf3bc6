"""Clamps in plain Triton."""

import triton
import triton.language as tl


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
