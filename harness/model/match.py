"""Match policies: which results count as equal to the reference's.

A bound in ulp or a relative one applies between two finite, nonzero numbers of one sign and to nothing else; an
absolute one between any two finite numbers, zeros included. NaN, infinities, the sign of a zero beside a zero, the
crossing between the largest finite number and infinity, and under the first two bounds that between the smallest
subnormal and zero follow rules of their own, so that a special value never passes by tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

NanPolicy = Literal["any", "canonical", "payload"]
FtzPolicy = Literal["required", "allowed", "never"]

NAN_POLICIES = ("any", "canonical", "payload")
FTZ_POLICIES = ("required", "allowed", "never")


class DomainError(ValueError):
    """A domain whose predicate cannot be evaluated; the message names the domain and what went wrong."""


@dataclass(frozen=True)
class Domain:
    """A stated set of inputs.

    `text` is what reports print. `predicate` takes the inputs' values by name as numpy float64 arrays (exact for
    every format up to 64-bit floats; integers beyond 2^53 are rounded) and returns a boolean array.
    """

    text: str
    predicate: Callable[[Mapping[str, Any]], Any]

    def holds(self, values: Mapping[str, Any]) -> Any:
        """The predicate as a numpy boolean array; overflow and invalid operations on the way are no warnings.

        The predicate cannot change what it is given: the mapping and its arrays are read-only. Raises DomainError where
        it raises, or gives another number of truth values than there are inputs.
        """
        import numpy as np

        given = MappingProxyType({n: read_only(v) for n, v in values.items()})
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(self.predicate(given))
            shape = np.broadcast_shapes(*(np.shape(v) for v in values.values()))
        except KeyError as e:
            raise DomainError(f"domain {self.text!r}: no input is called {e}; there are {', '.join(values)}") from e
        except Exception as e:
            raise DomainError(f"domain {self.text!r}: its predicate raised {type(e).__name__}: {e}") from e
        if found.dtype != np.bool_ or found.shape not in ((), shape):
            raise DomainError(
                f"domain {self.text!r}: its predicate gave {found.dtype} of shape {found.shape}; "
                f"a boolean for each of the {shape} inputs is needed"
            )
        return np.broadcast_to(found, shape)

    def __and__(self, other: Domain) -> Domain:
        """The inputs that lie in both. Raises ValueError for `generated`, which is no set of values."""
        if isinstance(self, Generated) or isinstance(other, Generated):
            raise ValueError("generated says where an input comes from, not where it lies: it stands alone in where=")
        return Domain(f"{self.text} and {other.text}", lambda v: self.predicate(v) & other.predicate(v))


@dataclass(frozen=True)
class Generated(Domain):
    """The domain of an input that nothing but `generate=` can make."""


generated = Generated("what generate= gives", lambda _: True)
"""In `where=` of a whole kernel: this input is `generate=`'s in every input set. For what has an order or is unique,
such as the slots of a cache or the offsets of rows, that edges and random bits would not keep."""


def read_only(array: Any) -> Any:
    """A numpy array that cannot be written to, on the same memory: what functions of a case are given."""
    import numpy as np

    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def finite(name: str) -> Domain:
    """The inputs whose `name` is a finite number: neither infinite nor NaN."""
    return Domain(f"{name} is finite", lambda v: v[name] - v[name] == 0)  # inf - inf is NaN


def magnitude(name: str, low: float, high: float) -> Domain:
    """The inputs with low <= |name| <= high, and zero, infinities and NaN: specials have rules, not ranges."""
    low, high = _range("magnitude", name, low, high)
    if high < 0:
        raise ValueError(f"magnitude({name!r}, {low:g}, {high:g}) holds nothing: a magnitude is at least 0")
    return Domain(
        f"{low:g} <= |{name}| <= {high:g} and specials",
        lambda v: _special(v[name]) | ((abs(v[name]) >= low) & (abs(v[name]) <= high)),
    )


def between(name: str, low: float, high: float) -> Domain:
    """The inputs with low <= name <= high, and infinities and NaN."""
    low, high = _range("between", name, low, high)
    return Domain(
        f"{low:g} <= {name} <= {high:g} and specials",
        lambda v: _special(v[name]) | ((v[name] >= low) & (v[name] <= high)),
    )


def _range(function: str, name: str, low: float, high: float) -> tuple[float, float]:
    """The bounds as float64. Raises ValueError where they are no range of finite numbers."""
    written = f"{function}({name!r}, {low!r:.40}, {high!r:.40})"
    try:
        if isinstance(low, str) or isinstance(high, str):
            raise TypeError
        low, high = float(low), float(high)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{written}: the bounds are finite numbers") from None
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"{written}: the bounds are finite numbers; the largest of a format is as far as it goes")
    if low > high:
        raise ValueError(f"{written} holds nothing: the lower bound comes first")
    return low, high


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
    overflow: whether a result within the bound of the first number beyond the largest finite one (where infinity
    stands on the ordered line) may become infinite, or back.
    underflow: whether a result within a bound in ulp, or a relative one, of zero may become the zero of its sign, or
    back. An absolute bound covers that by itself.
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
        for name, value, kind in (("on", self.on, Domain), ("outside", self.outside, Match)):
            if value is not None and not isinstance(value, kind):
                raise ValueError(f"{name}= takes a {kind.__name__}, got {value!r}")
        if self.outside is not None and self.on is None:
            raise ValueError("outside= says what holds beyond on=; give on= as well")
        if self.outside is not None and self.outside.on is not None:
            raise ValueError(
                f"outside= holds wherever {self.on.text if self.on else ''!r} does not, so it has no on= of its own "
                f"(here {self.outside.on.text!r}); leave that out, or judge the two ranges in two variants"
            )

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


def _bound(bound: float | Fraction) -> Fraction:
    try:
        return Fraction(bound)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"a match bound is a finite number of at least 0, got {bound!r}") from None


def exact(**options: Any) -> Match:
    """Equal bits (NaN by the NaN policy); options as the fields of `Match`."""
    return Match(**options)


def ulp(bound: int, **options: Any) -> Match:
    """At most `bound` representable numbers away; options as the fields of `Match`."""
    return Match("ulp", _bound(bound), **options)


def absolute(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound; options as the fields of `Match`."""
    return Match("absolute", _bound(bound), **options)


def relative(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound * |reference|; options as the fields of `Match`."""
    return Match("relative", _bound(bound), **options)
