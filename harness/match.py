"""Match policies: what counts as the same answer, and what never does.

A bound applies between two finite, nonzero numbers of one sign and to nothing else. NaN, infinities, the sign of
zero, and the crossings between the largest finite number and infinity and between the smallest subnormal and zero
follow rules of their own, so that a special value never passes by tolerance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

NanPolicy = Literal["any", "canonical", "payload"]
FtzPolicy = Literal["required", "allowed", "never"]

NAN_POLICIES = ("any", "canonical", "payload")
FTZ_POLICIES = ("required", "allowed", "never")


@dataclass(frozen=True)
class Domain:
    """A stated set of inputs.

    `text` is what reports print. `predicate` takes the inputs' values by name as numpy float64 arrays (exact for
    every format up to 64-bit floats; integers beyond 2^53 are rounded) and returns a boolean array.
    """

    text: str
    predicate: Callable[[Mapping[str, Any]], Any]

    def holds(self, values: Mapping[str, Any]) -> Any:
        """The predicate as a numpy boolean array; overflow and invalid operations on the way are no warnings."""
        import numpy as np

        with np.errstate(all="ignore"):
            return np.asarray(self.predicate(values), dtype=bool)

    def __and__(self, other: Domain) -> Domain:
        """The inputs that lie in both."""
        return Domain(f"{self.text} and {other.text}", lambda v: self.predicate(v) & other.predicate(v))


def magnitude(name: str, low: float, high: float) -> Domain:
    """The inputs with low <= |name| <= high, and zero, infinities and NaN: specials have rules, not ranges."""
    return Domain(
        f"{low:g} <= |{name}| <= {high:g} and specials",
        lambda v: _special(v[name]) | ((abs(v[name]) >= low) & (abs(v[name]) <= high)),
    )


def between(name: str, low: float, high: float) -> Domain:
    """The inputs with low <= name <= high, and infinities and NaN."""
    return Domain(
        f"{low:g} <= {name} <= {high:g} and specials",
        lambda v: _special(v[name]) | ((v[name] >= low) & (v[name] <= high)),
    )


def _special(values: Any) -> Any:
    """Zero, infinity or NaN: only of a finite number is v - v zero."""
    return (values == 0) | (values - values != 0)


@dataclass(frozen=True)
class Match:
    """How far a result may lie from the reference.

    kind: "exact" (equal codes), "ulp" (at most `bound` steps on the output format's ordered line), "absolute" or
    "relative" (at most `bound`, computed exactly in rationals near the limit).
    on: where the bound is promised; elsewhere `outside` applies, and where that is None a difference is counted as
    unchecked, never as passed.
    zero_sign: "strict", or "any" where the specification leaves the sign of a zero result open.
    overflow: whether a finite result within the bound of the largest finite number may become infinite, or back.
    underflow: whether a result within the bound of zero may become zero, or back.
    source: where the bound comes from.
    """

    kind: Literal["exact", "ulp", "absolute", "relative"] = "exact"
    bound: Fraction = Fraction(0)
    on: Domain | None = None
    outside: Match | None = None
    zero_sign: Literal["strict", "any"] = "strict"
    overflow: bool = False
    underflow: bool = False
    source: str = ""

    def __post_init__(self) -> None:
        if self.bound < 0:
            raise ValueError(f"a match bound is at least 0, got {self.bound}")
        if self.kind == "ulp" and self.bound.denominator != 1:
            raise ValueError(f"ulp() takes a whole number of steps, got {self.bound}")
        if self.outside is not None and self.on is None:
            raise ValueError("outside= says what holds beyond on=; give on= as well")

    def describe(self) -> str:
        """One phrase for tables and messages: `ulp(2) on 1 <= |b| <= 4`."""
        text = "exact" if self.kind == "exact" else f"{self.kind}({_number(self.bound)})"
        extras = [f"zero sign {self.zero_sign}"] if self.zero_sign != "strict" else []
        extras += ["overflow allowed"] * self.overflow + ["underflow allowed"] * self.underflow
        if extras:
            text += f" [{', '.join(extras)}]"
        if self.on is not None:
            beyond = self.outside.describe() if self.outside else "unchecked"
            text += f" on {self.on.text}, else {beyond}"
        return text


def _number(bound: Fraction) -> str:
    if bound.denominator == 1:
        return str(bound.numerator)
    if bound.numerator == 1 and bound.denominator & (bound.denominator - 1) == 0:
        return f"2^-{bound.denominator.bit_length() - 1}"
    return f"{float(bound):.6g}"


def exact(**options: Any) -> Match:
    """Equal bits (NaN by the NaN policy); options as the fields of `Match`."""
    return Match(**options)


def ulp(bound: int, **options: Any) -> Match:
    """At most `bound` representable numbers away; options as the fields of `Match`."""
    return Match("ulp", Fraction(bound), **options)


def absolute(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound; options as the fields of `Match`."""
    return Match("absolute", Fraction(bound), **options)


def relative(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound * |reference|; options as the fields of `Match`."""
    return Match("relative", Fraction(bound), **options)


def sourced(match: Match, source: str) -> Match:
    """The same policy with the place its bound comes from."""
    return replace(match, source=source)
