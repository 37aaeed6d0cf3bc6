"""The class of difference between two codes, element by element.

`RULES` is its only definition, for the plain judge and for sweeps (`ptxdiff.sweep.oracle`). The class is decided
before any bound applies, so that a special value never passes by tolerance.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import IntEnum
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.match import Match, NanPolicy
from ptxdiff.records import Bits
from ptxdiff.references.formats import (
    Format,
    distance,
    fraction,
    is_infinity,
    is_nan,
    is_zero,
    magnitude,
    ordinal,
    render,
    sign,
    to_float64,
)

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]


class Difference(IntEnum):
    """Why a code does not count as the expected one. SAME and UNCHECKED are not failures."""

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
    PADDING = 12

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
    Difference.PADDING: "padding bits",
}


def kinds_of(fmt: Format, expected: Codes, got: Codes, difference: Codes) -> dict[str, int]:
    """How many failing codes differ in which way, in words that say on which side the special value is."""
    found: dict[str, int] = {}
    for kind in np.unique(difference).tolist():
        at = difference == kind
        sides = _SIDES.get(Difference(kind)) if fmt.is_float else None
        if sides is None:
            found[Difference(kind).text] = int(at.sum())
            continue
        holds, ours, theirs = sides
        special = holds(fmt, got[at]), holds(fmt, expected[at])
        for whose, mask in ((ours, special[0] & ~special[1]), (theirs, special[1] & ~special[0])):
            if mask.any():
                found[whose] = int(mask.sum())
        if rest := int((special[0] == special[1]).sum()):
            found[Difference(kind).text] = rest
    return found


_SIDES: dict[Difference, tuple[Callable[[Format, Any], Any], str, str]] = {
    Difference.NAN: (is_nan, "NaN for a number", "a number for NaN"),
    Difference.INFINITY: (is_infinity, "infinity for a finite number", "a finite number for infinity"),
    Difference.FLUSH: (is_zero, "flush to zero", "a number for zero"),
}


class Pairs:
    """Pairs of codes under a policy, with the facts about them that `RULES` need, each computed at its first use.

    expected, got: int64 codes, numpy arrays or torch tensors. Only operators that both have are used, so that the plain
    judge, the judge of a sweep and the kernel derived from it use the same definition. decide: computes where a bound
    holds, from where float64 proves that it does and where float64 cannot decide. Without it, undecided pairs count as
    outside the bound.
    """

    def __init__(
        self,
        fmt: Format,
        match: Match,
        nan: NanPolicy,
        expected: Any,
        got: Any,
        decide: Callable[[Pairs, Any, Any], Any] | None = None,
    ) -> None:
        self.fmt, self.match, self.nan = fmt, match, nan
        self.expected, self.got, self._decide = expected, got, decide

    @cached_property
    def identical(self) -> Any:
        """Equal codes; under the policy "canonical" a NaN must be canonical, even if the reference gives another
        one."""
        same = self.expected == self.got
        refused = self.fmt.is_float and self.nan == "canonical"
        return same & (self.canonical | ~is_nan(self.fmt, self.got)) if refused else same

    @cached_property
    def canonical(self) -> Any:
        """Whether the result is the format's canonical NaN."""
        code = self.fmt.canonical_nan
        if code is None:
            return self.got != self.got
        return self.got == (code - (1 << 64) if code >> 63 else code)

    @cached_property
    def nans(self) -> tuple[Any, Any]:
        """Whether each code is a NaN."""
        return is_nan(self.fmt, self.expected), is_nan(self.fmt, self.got)

    @cached_property
    def infinities(self) -> tuple[Any, Any]:
        """Whether each code is an infinity."""
        return is_infinity(self.fmt, self.expected), is_infinity(self.fmt, self.got)

    @cached_property
    def zeros(self) -> tuple[Any, Any]:
        """Whether each code is a zero."""
        return is_zero(self.fmt, self.expected), is_zero(self.fmt, self.got)

    @cached_property
    def both_zero(self) -> Any:
        """Whether both codes are zeros, of either sign."""
        return self.zeros[0] & self.zeros[1]

    @cached_property
    def one_zero(self) -> Any:
        """Whether exactly one code is a zero."""
        return self.zeros[0] != self.zeros[1]

    @cached_property
    def neither_zero(self) -> Any:
        """Whether neither code is a zero."""
        return ~(self.zeros[0] | self.zeros[1])

    @cached_property
    def same_sign(self) -> Any:
        """Whether the sign bits are equal."""
        return sign(self.fmt, self.expected ^ self.got) == 0

    @cached_property
    def steps(self) -> Any:
        """Ulps between two floats of one sign, or of which one is zero; meaningless for other pairs."""
        return abs(magnitude(self.fmt, self.got) - magnitude(self.fmt, self.expected))

    @cached_property
    def same_sign_within(self) -> Any:
        """Whether two finite numbers that are not zero have one sign and lie within the bound."""
        fmt, steps = self.fmt, int(self.match.bound)
        # Codes of finite numbers of different signs lie at least this far apart, also around the end of the range. One
        # comparison then decides both questions; in the kernel of a sweep it saves two of 104 instructions.
        between = (1 << fmt.sign_shift) - magnitude(fmt, fmt.max_finite) if fmt.has_sign and not fmt.ignored_bits else 0
        if self.match.kind == "ulp" and fmt.code_bits <= 32 and steps < between:
            return (self.got - self.expected + steps) & fmt.code_mask <= 2 * steps
        return self.same_sign & self.within

    @cached_property
    def tiny(self) -> Any:
        """Whether both are smaller than the smallest normal number."""
        limit = magnitude(self.fmt, self.fmt.min_normal)
        return (magnitude(self.fmt, self.expected) < limit) & (magnitude(self.fmt, self.got) < limit)

    @property
    def bounded(self) -> bool:
        """Whether the policy has a bound."""
        return self.match.kind != "exact"

    @cached_property
    def within(self) -> Any:
        """Whether the bound holds. Infinity counts as the number that would follow the largest finite one."""
        if self.match.kind == "ulp":
            if not self.fmt.is_float:
                return distance(self.fmt, self.expected, self.got) <= int(self.match.bound)
            return (self.steps <= int(self.match.bound)) & (self.same_sign | ~self.neither_zero)
        holds, doubt = self._by_value
        return self._decide(self, holds, doubt) if self._decide else holds

    @property
    def doubt(self) -> Any:
        """Whether float64 cannot decide an absolute or relative bound."""
        return self._by_value[1] & ~self.identical if self.match.kind in ("absolute", "relative") else ~self._any

    @cached_property
    def _by_value(self) -> tuple[Any, Any]:
        """Where an absolute or relative bound certainly holds, and where float64 cannot decide because of its own
        rounding."""
        fmt, match = self.fmt, self.match
        if not fmt.is_float and fmt.code_bits == 64:
            return ~self._any, self._any
        expected, got = to_float64(fmt, self.expected), to_float64(fmt, self.got)
        error = abs(got - expected)
        limit = float(match.bound) * abs(expected) if match.kind == "relative" else float(match.bound)
        decided = abs(error - limit) > _ROUNDING * (error + limit)  # false if either is infinite or a NaN
        if not fmt.is_float:
            return (error <= limit) & decided, ~decided
        numbers = ~(self.nans[0] | self.nans[1])
        if not match.overflow:
            numbers = numbers & ~(self.infinities[0] | self.infinities[1])
        return (error <= limit) & decided, ~decided & numbers

    @property
    def _any(self) -> Any:
        return self.expected == self.expected


_ROUNDING = 1e-12

Rule = tuple[Difference, Callable[[Pairs], Any]]

# The class of two codes is that of the first rule whose condition holds. A condition is `False` instead of an array if
# the policy excludes it for all pairs.
RULES: tuple[Rule, ...] = (
    (Difference.SAME, lambda p: p.identical),
    (Difference.SAME, lambda p: p.match.zero_sign == "any" and p.both_zero),
    (Difference.ZERO_SIGN, lambda p: p.both_zero),
    (Difference.SAME, lambda p: p.nan == "any" and p.nans[0] & p.nans[1]),
    (Difference.SAME, lambda p: p.nan == "canonical" and p.nans[0] & p.canonical),
    (Difference.NAN_PAYLOAD, lambda p: p.nan != "any" and p.nans[0] & p.nans[1]),
    (Difference.NAN, lambda p: p.nans[0] | p.nans[1]),
    (
        Difference.SAME,
        lambda p: p.bounded and p.match.overflow and (p.infinities[0] != p.infinities[1]) & p.same_sign & p.within,
    ),
    (Difference.INFINITY, lambda p: p.infinities[0] | p.infinities[1]),
    (Difference.SAME, lambda p: p.match.kind == "absolute" and p.within),  # every finite pair except two zeros
    (Difference.SAME, lambda p: p.bounded and p.neither_zero & p.same_sign_within),
    (
        Difference.SAME,
        lambda p: (
            p.bounded and p.match.underflow and p.one_zero & p.within & (p.same_sign | (p.match.zero_sign == "any"))
        ),
    ),
    (Difference.ZERO_SIGN, lambda p: p.bounded and p.match.underflow and p.one_zero & p.within),
    (Difference.FLUSH, lambda p: p.one_zero & p.tiny),
    (Difference.SIGN, lambda p: p.neither_zero & ~p.same_sign),
    (Difference.ONE_ULP, lambda p: p.steps == 1),
    (Difference.LARGER, lambda p: ~p.identical),
)

INTEGER_RULES: tuple[Rule, ...] = (
    (Difference.SAME, lambda p: p.identical),
    (Difference.SAME, lambda p: p.bounded and p.within),
    (Difference.VALUE, lambda p: ~p.identical),
)


def _conditions(pairs: Pairs) -> Iterator[tuple[Difference, Callable[[], Any]]]:
    for difference, condition in RULES if pairs.fmt.is_float else INTEGER_RULES:
        yield difference, functools.partial(condition, pairs)


def agreeing(pairs: Pairs) -> Any:
    """Whether the rules give `SAME`, without evaluating rules that cannot change this, so that it can run in a
    kernel."""
    found: Any = False
    for difference, condition in reversed(list(_conditions(pairs))):
        if found is False and difference != Difference.SAME:
            continue
        held = condition()
        if held is not False:
            found = held if found is False else found | held if difference == Difference.SAME else found & ~held
    return found


def classes(pairs: Pairs, where: Callable[[Any, int, Any], Any]) -> Any:
    """The `Difference` of each pair, as int64. where: numpy's, or torch's."""
    found = pairs.expected * 0 + int(Difference.LARGER)
    for difference, condition in reversed(list(_conditions(pairs))):
        held = condition()
        if held is not False:
            found = where(held, int(difference), found)
    return found


def classify_differences(
    fmt: Format, match: Match, nan: NanPolicy, expected: Codes, got: Codes, inside: Callable[[], Mask] | None = None
) -> Codes:
    """The `Difference` of each pair of codes, as integers shaped like `expected`.

    inside: a function, called only if needed, that gives where the match's domain `on` holds; None without a domain.
    """
    result = np.full(expected.shape, int(Difference.SAME), dtype=np.int64)
    differs = ~Pairs(fmt, match, nan, expected, got).identical
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


def _classify(fmt: Format, match: Match, nan: NanPolicy, expected: Codes, got: Codes) -> Codes:
    with np.errstate(all="ignore"):
        found: Codes = classes(Pairs(fmt, match, nan, expected, got, _in_rationals), np.where)
    return found


def _in_rationals(pairs: Pairs, holds: Mask, doubt: Mask) -> Mask:
    """Whether a bound holds, decided exactly: with rationals for the few pairs that float64 cannot decide.

    A bound may be a power of two, and errors of narrow formats then lie on it by the million, in a few hundred
    different pairs; each different pair is decided once.
    """
    held = holds & ~doubt
    expected, row = np.unique(pairs.expected[doubt], return_inverse=True)
    got, column = np.unique(pairs.got[doubt], return_inverse=True)
    distinct, number = np.unique(row * len(got) + column, return_inverse=True)
    exactly = functools.partial(_within_exactly, pairs.fmt, pairs.match)
    within = [exactly(int(expected[k // len(got)]), int(got[k % len(got)])) for k in distinct.tolist()]
    held[doubt] = np.array(within, dtype=bool)[number]
    return held


def _within_exactly(fmt: Format, match: Match, expected: int, got: int) -> bool:
    a, b = _number(fmt, expected), _number(fmt, got)
    return abs(b - a) <= match.bound * (abs(a) if match.kind == "relative" else 1)


def _number(fmt: Format, code: int) -> Fraction:
    if not is_infinity(fmt, code):
        return fraction(fmt, code)
    top = fraction(fmt, fmt.max_finite)
    beyond = 2 * top - fraction(fmt, fmt.max_finite - fmt.min_positive)
    return -beyond if sign(fmt, code) else beyond


def signed_steps(fmt: Format, expected: Codes, got: Codes) -> Codes:
    """got - expected in ordinals, saturating at 64 bits; meaningless if either is NaN."""
    size: Codes = distance(fmt, expected, got)
    return np.where(ordinal(fmt, got) < ordinal(fmt, expected), -size, size)


def step_histogram(fmt: Format, expected: Codes, got: Codes) -> dict[str, int]:
    """Counts of signed distances: one bin for each up to 16, above by powers of two (`17..32`).

    NaN and infinities do not count.
    """
    counted = ~(is_nan(fmt, expected) | is_infinity(fmt, expected))
    if np.array_equal(expected, got):  # of most results, of millions of codes
        count = int(np.count_nonzero(counted))
        return {step_bin(0): count} if count else {}
    counted &= ~(is_nan(fmt, got) | is_infinity(fmt, got))
    return count_steps(signed_steps(fmt, expected[counted], got[counted]))


def count_steps(steps: Codes) -> dict[str, int]:
    """How many of these signed distances lie in each bin of `step_bin`; empty bins are omitted."""
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


@functools.lru_cache(1 << 14)
def bits(fmt: Format, code: int) -> Bits:
    """A code as records hold it.

    Writing a number in as few digits as distinguish it takes half a millisecond, and results share many inputs.
    """
    hexadecimal, _, value = render(fmt.single, code).partition(" ")
    return Bits(hexadecimal, value.strip("()"))
