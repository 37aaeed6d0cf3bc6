"""The judge's rules on torch tensors: which results agree with the reference, and how others differ.

`agrees` is what a whole sweep is filtered by: few operations, fit for fusing into one kernel with the reference.
`classify` gives the class of difference of the few that it flags. Both restate `harness.judging.differences` for
tensors that stay on a device; tests hold them to it, and every sweep has what they flag, and a sample of what they
pass, judged again by the original.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from harness.judging.differences import Difference
from harness.model.match import Match, NanPolicy
from references.formats import (
    Format,
    distance,
    is_finite,
    is_infinity,
    is_nan,
    is_zero,
    magnitude,
    ordinal,
    sign,
    to_float64,
)

# float64 decides an absolute or relative bound but within its own rounding; what is nearer than this is flagged, and
# decided in rationals by the plain judge.
_DOUBT = 1e-12


def agrees(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """Where codes satisfy a policy, its domain left aside. Never true where the plain judge says no."""
    same: Tensor = expected == got
    if not fmt.is_float:
        return same if match.kind == "exact" else same | _within(fmt, match, expected, got)
    if fmt.code_bits <= 32:  # a GPU computes with 32 bits; what follows needs no more
        expected, got = expected.to(torch.int32), got.to(torch.int32)
    if nan == "any":
        same = same | (is_nan(fmt, expected) & is_nan(fmt, got))
    elif nan == "canonical":  # a payload is refused, also where the reference itself returns it
        canonical = got == _canonical(fmt)
        same = (same & (canonical | ~is_nan(fmt, got))) | (is_nan(fmt, expected) & canonical)
    e_zero, g_zero = (is_zero(fmt, expected), is_zero(fmt, got)) if _looks_at_zero(match) else (same, same)
    if match.zero_sign == "any":
        same = same | (e_zero & g_zero)
    if match.kind == "exact":
        return same
    within = _within(fmt, match, expected, got)
    alike = sign(fmt, expected ^ got) == 0
    finite = is_finite(fmt, expected) & is_finite(fmt, got)
    if match.kind == "absolute":
        same = same | (finite & within & ~(e_zero & g_zero))
    else:
        same = same | (finite & within & alike & ~e_zero & ~g_zero)
        if match.underflow:
            vanishing = finite & within & (e_zero != g_zero)
            same = same | (vanishing if match.zero_sign == "any" else vanishing & alike)
    if match.overflow:
        numbers = ~is_nan(fmt, expected) & ~is_nan(fmt, got)
        same = same | (numbers & alike & within & (is_infinity(fmt, expected) != is_infinity(fmt, got)))
    return same


def _looks_at_zero(match: Match) -> bool:
    return match.kind != "exact" or match.zero_sign == "any"


def _canonical(fmt: Format) -> int:
    code = fmt.canonical_nan or 0
    return code - (1 << 64) if code >> 63 else code


def _within(fmt: Format, match: Match, expected: Tensor, got: Tensor, doubt: float = -_DOUBT) -> Tensor:
    """Whether the bound holds; with a positive `doubt`, also where it might."""
    if match.kind == "exact":
        return expected != expected
    if match.kind == "ulp":
        near: Tensor = _steps(fmt, expected, got) <= int(match.bound)
        return near
    if fmt.code_bits == 64 and not fmt.is_float:
        return torch.full_like(expected, doubt > 0, dtype=torch.bool)
    # Infinity counts as the number that would follow the largest finite one, which float64 need not hold: in doubt.
    ev, gv = to_float64(fmt, expected.to(torch.int64)), to_float64(fmt, got.to(torch.int64))
    error = (gv - ev).abs()
    limit = float(match.bound) * (ev.abs() if match.kind == "relative" else torch.ones_like(ev))
    decided = torch.isfinite(error) & torch.isfinite(limit)
    held: Tensor = error <= limit * (1 + doubt)
    return (held & decided) | (~decided if doubt > 0 else torch.zeros_like(decided))


def _steps(fmt: Format, expected: Tensor, got: Tensor) -> Tensor:
    """`distance`, for floats of at most 32 bits that have one sign or of which one is zero; then 32 bits hold it."""
    if fmt.is_float and fmt.code_bits <= 32:
        apart: Tensor = magnitude(fmt, got) - magnitude(fmt, expected)
        return apart.abs()
    whole: Tensor = distance(fmt, expected, got)
    return whole


def classify(fmt: Format, match: Match, nan: NanPolicy, expected: Tensor, got: Tensor) -> Tensor:
    """The `Difference` of each pair, uint8, the domain left aside: `harness.judging.differences` on a device.

    Where a bound is too close for float64 to decide, the class is that of a failure; `doubtful` tells.
    """
    if not fmt.is_float:
        return torch.where(agrees(fmt, match, nan, expected, got), 0, int(Difference.VALUE)).to(torch.uint8)
    e_nan, g_nan = is_nan(fmt, expected), is_nan(fmt, got)
    e_inf, g_inf = is_infinity(fmt, expected), is_infinity(fmt, got)
    e_zero, g_zero = is_zero(fmt, expected), is_zero(fmt, got)
    alike = sign(fmt, expected) == sign(fmt, got)
    tiny = torch.maximum(ordinal(fmt, expected).abs(), ordinal(fmt, got).abs()) < ordinal(fmt, fmt.min_normal)
    # In order: the first condition that holds decides.
    conditions: list[tuple[Any, Difference]] = [
        (agrees(fmt, match, nan, expected, got), Difference.SAME),
        (e_nan & g_nan, Difference.NAN_PAYLOAD),
        (e_nan | g_nan, Difference.NAN),
        (e_inf | g_inf, Difference.INFINITY),
        (e_zero & g_zero, Difference.ZERO_SIGN),
        ((e_zero != g_zero) & _may_vanish(fmt, match, expected, got), Difference.ZERO_SIGN),
        ((e_zero != g_zero) & tiny, Difference.FLUSH),
        (~alike & ~e_zero & ~g_zero, Difference.SIGN),
        (distance(fmt, expected, got) == 1, Difference.ONE_ULP),
    ]
    found = torch.full_like(expected, int(Difference.LARGER), dtype=torch.uint8)
    for condition, difference in reversed(conditions):
        found = torch.where(condition, int(difference), found)
    return found.to(torch.uint8)


def _may_vanish(fmt: Format, match: Match, expected: Tensor, got: Tensor) -> Tensor:
    """Where a policy lets a result become zero, or back, but for its sign."""
    if not match.underflow:
        return expected != expected
    return _within(fmt, match, expected, got)


def doubtful(fmt: Format, match: Match, expected: Tensor, got: Tensor) -> Tensor:
    """Where float64 cannot decide an absolute or relative bound, so that the plain judge has to."""
    if match.kind not in ("absolute", "relative"):
        return expected != expected
    return _within(fmt, match, expected, got, _DOUBT) & ~_within(fmt, match, expected, got) & (expected != got)
