"""Match policies: which results are accepted as equal to the reference's.

A bound in ulp or a relative bound applies only between two finite, nonzero numbers of one sign; an absolute bound
applies between any two finite numbers, including zeros. Other rules decide NaN, infinities, zeros that differ in sign,
and overflow to infinity; under the first two bounds also underflow to zero. So a special value never passes by
tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

from ptxdiff.references.formats import Format

NanPolicy = Literal["any", "canonical", "payload"]
FtzPolicy = Literal["required", "allowed", "never"]

NAN_POLICIES = ("any", "canonical", "payload")
FTZ_POLICIES = ("required", "allowed", "never")


class DomainError(ValueError):
    """The predicate of a domain cannot be evaluated; the message names the domain and the error."""


@dataclass(frozen=True)
class Domain:
    """A set of inputs with a description.

    `text`: the description in reports. `predicate`: takes the inputs' values by name as numpy float64 arrays (exact for
    every format up to 64-bit floats; integers beyond 2^53 are rounded) and returns a boolean array.
    """

    text: str
    predicate: Callable[[Mapping[str, Any]], Any]

    def holds(self, values: Mapping[str, Any]) -> Any:
        """The predicate as a numpy boolean array; overflow and invalid operations in it give no warnings.

        The mapping and its arrays are read-only, so the predicate cannot change them. Raises DomainError if the
        predicate raises, or returns another number of booleans than there are inputs.
        """
        import numpy as np

        given = MappingProxyType({n: read_only(v) for n, v in values.items()})
        try:
            with np.errstate(all="ignore"):
                mask = np.asarray(self.predicate(given))
            shape = np.broadcast_shapes(*(np.shape(v) for v in values.values()))
        except KeyError as e:
            raise DomainError(f"domain {self.text!r}: no input is called {e}; there are {', '.join(values)}") from e
        except Exception as e:
            raise DomainError(
                f"domain {self.text!r}: its predicate raised {type(e).__name__}: {e}; "
                "it gets each input's numbers by name, as a numpy array of float64"
            ) from e
        if mask.dtype != np.bool_ or mask.shape not in ((), shape):
            raise DomainError(
                f"domain {self.text!r}: its predicate gave {mask.dtype} of shape {mask.shape}; "
                f"a boolean for each of the {shape} inputs is needed"
            )
        return np.broadcast_to(mask, shape)

    def __and__(self, other: Domain) -> Domain:
        """The inputs in both domains. Raises ValueError for `generated`, which is no set of values."""
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
    """A read-only numpy array on the same memory, for functions of a case."""
    import numpy as np

    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def finite(name: str) -> Domain:
    """The inputs whose `name` is a finite number: neither infinite nor NaN."""
    return Domain(f"{name} is finite", lambda v: v[name] - v[name] == 0)  # inf - inf is NaN


def magnitude(name: str, low: float, high: float) -> Domain:
    """The inputs with low <= |name| <= high, and zero, infinities and NaN, which always belong because they have their
    own rules."""
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
    """The bounds as float64. Raises ValueError unless they are a range of finite numbers."""
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
    """Whether values are zero, infinite or NaN. (v - v is zero only for finite v.)"""
    return (values == 0) | (values - values != 0)


@dataclass(frozen=True)
class Match:
    """How far a result may lie from the reference.

    kind: "exact" (equal codes), "ulp" (ordinals in the output format differ by at most `bound`), "absolute" or
    "relative" (at most `bound`, computed exactly in rationals near the limit). on: the domain of the bound. Elsewhere
    `outside` applies; if it is None, a difference there counts as unchecked, never as passed. zero_sign: "strict", or
    "any" if the specification does not define the sign of a zero result. overflow: whether a result may be infinite
    instead of finite, or the reverse, if the finite number is within the bound of the number that would follow the
    largest finite one. underflow: whether a result may be the zero of its sign instead of a nonzero number, or the
    reverse, if the number is within the ulp or relative bound of zero. An absolute bound includes that. through: for an
    exact match, the approximate step before the last, exact one; the domain of its bound becomes `on`. source: the
    source of the bound.
    """

    kind: Literal["exact", "ulp", "absolute", "relative"] = "exact"
    bound: Fraction = Fraction(0)
    on: Domain | None = None
    outside: Match | None = None
    zero_sign: Literal["strict", "any"] = "strict"
    overflow: bool = False
    underflow: bool = False
    source: str = ""
    through: Approximate | None = None

    def __post_init__(self) -> None:
        if self.through is not None:
            self._check_through(self.through)
            object.__setattr__(self, "on", self.through.bound.on)
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

    def _check_through(self, step: Approximate) -> None:
        if not isinstance(step, Approximate):
            raise ValueError(f"through= takes approximate(step, format, bound, then=...), got {step!r}")
        if self.kind != "exact":
            raise ValueError(
                f"through= belongs to exact(): what follows the approximate step is exact, and the bound of that step, "
                f"here {self.kind}({_number(self.bound)}), is the third argument of approximate()"
            )
        if self.outside is not None or (self.on is not None and self.on is not step.bound.on):
            raise ValueError(
                "exact(through=...) has no on= or outside= of its own; give on= to the bound of the approximate step, "
                "and judge what lies outside in another variant, or exclude it with where="
            )

    def describe(self) -> str:
        """One phrase for tables and messages: `ulp(2) on 1 <= |b| <= 4`."""
        text = "exact" if self.kind == "exact" else f"{self.kind}({_number(self.bound)})"
        text += f" through {self.through.describe()}" if self.through else ""
        extras = [f"zero sign {self.zero_sign}"] if self.zero_sign != "strict" else []
        extras += ["overflow allowed"] * self.overflow + ["underflow allowed"] * self.underflow
        if extras:
            text += f" [{', '.join(extras)}]"
        if self.on is not None:
            beyond = self.outside.describe() if self.outside else "unchecked"
            text += f" on {self.on.text}, else {beyond}"
        return text


@dataclass(frozen=True)
class Approximate:
    """An approximate step, and the exact one that makes results of its value; see `approximate`."""

    step: Callable[..., Any]
    fmt: Format
    bound: Match
    then: Callable[..., Any]
    ftz: FtzPolicy = "never"

    def __post_init__(self) -> None:
        for name, function in (("the approximate step", self.step), ("then=", self.then)):
            if not callable(function):
                raise ValueError(f"approximate(): {name} is a function of codes, got {function!r}")
        fmt, bound = self.fmt, self.bound
        if not (isinstance(fmt, Format) and fmt.is_float and fmt.has_sign and fmt.codes_per_unit == 1):
            raise ValueError(f"approximate(): the intermediate value has a signed float format, such as F32; got {fmt}")
        if not isinstance(bound, Match) or bound.kind not in ("ulp", "relative") or not bound.bound:
            given = bound.describe() if isinstance(bound, Match) else repr(bound)
            raise ValueError(
                f"approximate(): the bound of the approximate step is ulp(n) or relative(b) and greater than zero, "
                f"because the values within it are tried one by one; got {given}"
            )
        if bound.outside is not None or bound.zero_sign != "strict":
            raise ValueError(
                "approximate(): the bound of the approximate step takes on=, overflow=, underflow= and source=; judge "
                "what lies outside on= in another variant, or exclude it with where="
            )
        if self.ftz not in FTZ_POLICIES:
            raise ValueError(f"approximate(): ftz={self.ftz!r}; one of {', '.join(FTZ_POLICIES)}")

    def describe(self) -> str:
        """One phrase: `ulp(2) of div (f32), then to_int8`; the domain of the bound is that of the match."""
        flushes = f", ftz {self.ftz}" if self.ftz != "never" else ""
        bound = replace(self.bound, on=None).describe()
        return f"{bound} of {_name(self.step)} ({self.fmt.name}{flushes}), then {_name(self.then)}"


def _name(function: Callable[..., Any]) -> str:
    """The name of a function, or of the one that a partial calls."""
    function = getattr(function, "func", function)
    return str(getattr(function, "__name__", None) or type(function).__name__)


def approximate(
    step: Callable[..., Any],
    fmt: Format,
    bound: Match,
    *,
    then: Callable[..., Any],
    ftz: FtzPolicy = "never",
) -> Approximate:
    """The approximate step of code whose last step is exact, for `exact(through=...)`.

    step: the correct result of the approximate step, as a reference gives it: a function of the inputs' int64 codes to
    codes of `fmt`. bound: how far the approximate value may lie from it, `ulp(n)` or `relative(b)` with its source;
    its domain `on=`, `overflow=` and `underflow=` mean what they mean for results. then: the exact last step, a
    function of the intermediate codes, and of the inputs' codes if it takes more than one argument, to the codes of
    the output, or of all outputs that name this object. ftz: whether subnormal intermediate values are flushed.

    A result is accepted if `then` gives it for an intermediate value within the bound. Raises ValueError for a bound of
    another kind: absolute bounds leave too many values near zero.
    """
    return Approximate(step, fmt, bound, then, ftz)


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
    """Equal bits (NaN by the NaN policy); options are the fields of `Match`."""
    return Match(**options)


def ulp(bound: int, **options: Any) -> Match:
    """At most `bound` ulps away; options are the fields of `Match`."""
    return Match("ulp", _bound(bound), **options)


def absolute(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound; options are the fields of `Match`."""
    return Match("absolute", _bound(bound), **options)


def relative(bound: float | Fraction, **options: Any) -> Match:
    """|result - reference| <= bound * |reference|; options are the fields of `Match`."""
    return Match("relative", _bound(bound), **options)
