"""How two codes differ, element by element: the classes that judging and messages speak of.

A class is decided before any bound is looked at, so that a special value never passes by tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from harness.model.match import Match, NanPolicy
from harness.records import Bits
from references.formats import (
    Format,
    distance,
    fraction,
    is_infinity,
    is_nan,
    is_zero,
    ordinal,
    render,
    sign,
    to_float64,
)

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Difference(IntEnum):
    """Why a code does not count as the expected one. SAME and UNCHECKED are no failures."""

    SAME = 0
    UNCHECKED = 1
    NAN = 2
    NAN_PAYLOAD = 3
    INFINITY = 4
    ZERO_SIGN = 5
    SIGN = 6
    FLUSH = 7
    ONE_ULP = 8
    LARGER = 9
    VALUE = 10
    POSITIONAL = 11

    @property
    def text(self) -> str:
        """The words of messages and records."""
        return _TEXTS[self]


_TEXTS = {
    Difference.SAME: "same",
    Difference.UNCHECKED: "unchecked",
    Difference.NAN: "NaN",
    Difference.NAN_PAYLOAD: "NaN payload",
    Difference.INFINITY: "infinity",
    Difference.ZERO_SIGN: "sign of zero",
    Difference.SIGN: "sign",
    Difference.FLUSH: "flush to zero",
    Difference.ONE_ULP: "1 ulp",
    Difference.LARGER: "larger than 1 ulp",
    Difference.VALUE: "value",
    Difference.POSITIONAL: "positional",
}


def classify_differences(
    fmt: Format, match: Match, nan: NanPolicy, expected: Codes, got: Codes, inside: Callable[[], Mask] | None = None
) -> Codes:
    """The `Difference` of each pair of codes, as integers shaped like `expected`.

    inside: gives, when it is needed, where the match's domain `on` holds; None without a domain.
    """
    result = np.full(expected.shape, int(Difference.SAME), dtype=np.int64)
    differs = expected != got
    if nan == "canonical" and fmt.is_float:  # a payload is refused, also where the reference itself returns it
        differs = differs | (is_nan(fmt, got) & ~_nan_agrees(fmt, nan, got))
    if not differs.any():
        return result
    result[differs] = _classify(fmt, match, nan, expected[differs], got[differs])
    if match.on is not None and inside is not None:
        outside = ~inside()[differs]
        beyond = (
            np.full(int(outside.sum()), int(Difference.UNCHECKED), dtype=np.int64)
            if match.outside is None
            else _classify(fmt, match.outside, nan, expected[differs][outside], got[differs][outside])
        )
        within = result[differs]
        within[outside] = beyond
        result[differs] = within
    return result


def _classify(fmt: Format, match: Match, nan: NanPolicy, e: Codes, g: Codes) -> Codes:
    if not fmt.is_float:
        within = _within(fmt, match, e, g)
        return np.where(within, int(Difference.SAME), int(Difference.VALUE))
    e_nan, g_nan = is_nan(fmt, e), is_nan(fmt, g)
    e_inf, g_inf = is_infinity(fmt, e), is_infinity(fmt, g)
    e_zero, g_zero = is_zero(fmt, e), is_zero(fmt, g)
    finite = ~(e_nan | g_nan | e_inf | g_inf)
    within = np.zeros(e.shape, dtype=bool)
    within[finite] = _within(fmt, match, e[finite], g[finite])
    steps = distance(fmt, e, g)
    same_sign = sign(fmt, e) == sign(fmt, g)
    overflow = (e_inf != g_inf) & ~(e_nan | g_nan) & same_sign & bool(match.overflow)
    allowed_overflow = np.zeros(e.shape, dtype=bool)
    allowed_overflow[overflow] = _within(fmt, match, e[overflow], g[overflow])
    covered = within & (match.kind == "absolute")  # every finite pair, but for two zeros of different signs
    may_vanish = within & bool(match.underflow)
    # In order: the first condition that holds decides.
    conditions: list[tuple[Mask, Difference]] = [
        (e_nan & g_nan & _nan_agrees(fmt, nan, g), Difference.SAME),
        (e_nan & g_nan, Difference.NAN_PAYLOAD),
        (e_nan | g_nan, Difference.NAN),
        (allowed_overflow, Difference.SAME),
        (e_inf | g_inf, Difference.INFINITY),
        (e_zero & g_zero & (match.zero_sign == "any"), Difference.SAME),
        (e_zero & g_zero, Difference.ZERO_SIGN),
        (covered, Difference.SAME),
        ((e_zero != g_zero) & may_vanish & (same_sign | (match.zero_sign == "any")), Difference.SAME),
        ((e_zero != g_zero) & may_vanish, Difference.ZERO_SIGN),
        ((e_zero != g_zero) & _tiny(fmt, e, g), Difference.FLUSH),
        (~same_sign & ~e_zero & ~g_zero, Difference.SIGN),
        ((e_zero == g_zero) & within, Difference.SAME),
        (steps == 1, Difference.ONE_ULP),
    ]
    return np.select([c for c, _ in conditions], [int(d) for _, d in conditions], default=int(Difference.LARGER))


def _nan_agrees(fmt: Format, nan: NanPolicy, got: Codes) -> Mask:
    if nan == "any":
        return np.ones(got.shape, dtype=bool)
    if nan == "canonical" and fmt.canonical_nan is not None:
        canonical = fmt.canonical_nan - (1 << 64) if fmt.canonical_nan >> 63 else fmt.canonical_nan
        agrees: Mask = got == canonical
        return agrees
    return np.zeros(got.shape, dtype=bool)  # payload: equal codes never come here


def _tiny(fmt: Format, e: Codes, g: Codes) -> Mask:
    """Whether the one of the pair that is not zero is subnormal."""
    limit = ordinal(fmt, fmt.min_normal)
    tiny: Mask = np.maximum(np.abs(ordinal(fmt, e)), np.abs(ordinal(fmt, g))) < limit
    return tiny


def _within(fmt: Format, match: Match, e: Codes, g: Codes) -> Mask:
    """Whether the bound holds, exactly. Infinity counts as the number that would follow the largest finite one."""
    if match.kind == "exact":
        return np.zeros(e.shape, dtype=bool)  # equal codes never come here
    if match.kind == "ulp":
        near: Mask = distance(fmt, e, g) <= int(match.bound)
        return near
    if not fmt.is_float and fmt.code_bits == 64:
        return np.array([_within_exactly(fmt, match, a, b) for a, b in zip(e, g, strict=True)], dtype=bool)
    with np.errstate(all="ignore"):
        ev, gv = to_float64(fmt, e), to_float64(fmt, g)
        error = np.abs(gv - ev)
        limit = float(match.bound) * (np.abs(ev) if match.kind == "relative" else 1.0)
        within: Mask = error <= limit
        # float64 decides all but what lies within its own rounding of the limit: those few are done in rationals.
        close = ~(np.abs(error - limit) > 1e-12 * np.maximum(error, limit)) | ~np.isfinite(error) | ~np.isfinite(limit)
    for k in np.flatnonzero(close):
        within[k] = _within_exactly(fmt, match, e[k], g[k])
    return within


def _within_exactly(fmt: Format, match: Match, e: np.int64, g: np.int64) -> bool:
    a, b = _number(fmt, int(e)), _number(fmt, int(g))
    return abs(b - a) <= match.bound * (abs(a) if match.kind == "relative" else 1)


def _number(fmt: Format, code: int) -> Fraction:
    if not is_infinity(fmt, code):
        return fraction(fmt, code)
    top = fraction(fmt, fmt.max_finite)
    beyond = 2 * top - fraction(fmt, fmt.max_finite - fmt.min_positive)
    return -beyond if sign(fmt, code) else beyond


def signed_steps(fmt: Format, expected: Codes, got: Codes) -> Codes:
    """got - expected on the ordered line, saturating at 64 bits; meaningless where either is NaN."""
    size: Codes = distance(fmt, expected, got)
    return np.where(ordinal(fmt, got) < ordinal(fmt, expected), -size, size)


def step_histogram(fmt: Format, expected: Codes, got: Codes) -> dict[str, int]:
    """Signed distances counted: singly up to 16, beyond by powers of two (`17..32`). NaN and infinities left out."""
    counted = ~(is_nan(fmt, expected) | is_nan(fmt, got))
    counted &= ~(is_infinity(fmt, expected) | is_infinity(fmt, got))
    return count_steps(signed_steps(fmt, expected[counted], got[counted]))


def count_steps(steps: Codes) -> dict[str, int]:
    """How many of these signed distances lie in each bin of `step_bin`; empty bins are left out."""
    counts = np.bincount(np.searchsorted(_BIN_ENDS, steps), minlength=len(_BIN_ENDS))
    return {step_bin(int(_BIN_ENDS[at])): int(counts[at]) for at in np.flatnonzero(counts)}


_BIN_ENDS = np.array(
    [-(1 << k) - 1 for k in range(62, 3, -1)] + [*range(-16, 17)] + [min(2 << k, (1 << 63) - 1) for k in range(4, 63)]
)
"""The greatest distance of each bin of `step_bin`, in order."""


def step_bin(steps: int) -> str:
    """The histogram bin of a signed distance."""
    size = abs(steps)
    if size <= 16:
        return str(steps)
    low = 1 << ((size - 1).bit_length() - 1)
    return f"{'-' if steps < 0 else ''}{low + 1}..{2 * low}"


def bits(fmt: Format, code: int) -> Bits:
    """A code as records hold it."""
    hexadecimal, _, value = render(fmt.single, code).partition(" ")
    return Bits(hexadecimal, value.strip("()"))
