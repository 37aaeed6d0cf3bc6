"""The largest error of an approximate form over all inputs, relative to the true value, in the ISA's measure.

It is computed from the form's definition, without a GPU, and holds for hardware if the ledger confirms the definition.
True values come from numpy's float64 functions, whose relative error is below 2**-50; for float64 results from numpy's
longdouble functions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance import bounds
from ptxdiff.conformance.bounds import Measure
from ptxdiff.conformance.forms import bounds_of, snippets
from ptxdiff.conformance.inputs import Inputs
from ptxdiff.emulator.machine.parallel import for_each
from ptxdiff.emulator.numeric.bits import f64_bits, f64_value, scalar
from ptxdiff.emulator.numeric.vectorise import ArrayFunction, register_helpers, wrapping

Floats = NDArray[np.float64]

_PIECE = 1 << 18
_DRAWN = 1 << 26
"""How many inputs are tried of a form with more than 2**32, drawn as in a campaign."""

_TRUE: dict[str, Callable[..., Any]] = {
    "rcp": lambda x: 1.0 / x,
    "div": lambda x, y: x / y,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "lg2": np.log2,
    "ex2": np.exp2,
    "tanh": np.tanh,
}

_LONG = "rsqrt.approx.f64"
"""The form whose results use all bits of float64."""

_ULPS = Measure(False, "ulp")
"""The measure of errors in ulps."""


@dataclass
class Largest:
    """The largest error in one measure, and its input (bit patterns of the operands)."""

    words: str
    error: float = 0.0
    at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Errors:
    """The errors of one form.

    `profile`: for forms of one operand, the largest error for each sign and exponent of the argument, in the ISA's
    measure for such an argument, or absolute if there is none; 0 if no result is finite and nonzero. Empty for drawn
    inputs.
    """

    inputs: int
    largest: tuple[Largest, ...]
    profile: tuple[float, ...]

    def json(self) -> dict[str, Any]:
        """The fields for the ledger: the largest errors with seven digits, the profile with three."""
        largest = [{"measure": m.words, "error": float(f"{m.error:.7g}"), "at": list(m.at)} for m in self.largest]
        return {"inputs": self.inputs, "largest": largest, "profile": [float(f"{e:.3g}") for e in self.profile]}


def measurable(form: str) -> bool:
    """Whether errors of a form can be computed: it is approximate, and full float64 results need a wider longdouble."""
    bound = bounds_of()[form]
    return bound.form.approximate and (form != _LONG or np.finfo(np.longdouble).nmant >= 63)


def errors_of(form: str) -> Errors:
    """Compute the errors of a form, over all its inputs if there are at most 2**32.

    A packed form is measured on one of its halves. A float64 form gets every upper half, with the lower half zero.
    """
    bound = bounds_of()[form]
    run = bound.array_function()
    measures = measures_of(form)
    largest = [Largest(words_of(m)) for m in measures]
    kind = _Format.of(form)
    if len(bound.form.sources) == 2 or form == _LONG:
        _drawn(form, run, kind, measures[0], largest[0])
        return Errors(_DRAWN, tuple(largest), ())
    buckets = 1 << kind.exponent_bits + 1
    by_bucket: dict[int, tuple[list[Largest], float]] = {}

    def bucket(number: int) -> None:
        by_bucket[number] = _bucket(form, run, kind, measures, number)

    for_each(bucket, range(buckets))
    for measure in range(len(measures)):
        largest[measure] = max((by_bucket[n][0][measure] for n in range(buckets)), key=lambda m: m.error)
        largest[measure].words = words_of(measures[measure])
    return Errors(buckets << kind.fraction_bits, tuple(largest), tuple(by_bucket[n][1] for n in range(buckets)))


@dataclass(frozen=True)
class _Format:
    """The number format of a form: bits of a code, and exponent and fraction bits that are tried."""

    width: int
    exponent_bits: int
    fraction_bits: int
    shift: int

    @staticmethod
    def of(form: str) -> _Format:
        name = form.split(" ")[0].rsplit(".", 1)[1]
        return {
            "f32": _Format(32, 8, 23, 0),
            "f64": _Format(64, 11, 20, 32),
            "f16": _Format(16, 5, 10, 0),
            "f16x2": _Format(32, 5, 10, 0),
            "bf16": _Format(16, 8, 7, 0),
            "bf16x2": _Format(32, 8, 7, 0),
        }[name]

    @property
    def least(self) -> int:
        """The exponent field of the smallest normal number as a float64."""
        return 1023 + 2 - (1 << self.exponent_bits - 1)

    def values(self, codes: NDArray[Any]) -> Floats:
        """The values of bit patterns (for packed ones, of the lower half)."""
        if self.width == 64:
            return np.asarray(codes.view(np.float64))
        if (self.exponent_bits, self.fraction_bits) == (8, 23):
            with np.errstate(invalid="ignore"):  # signaling NaNs
                return codes.view(np.float32).astype(np.float64)
        low = codes.astype(np.uint16)
        if self.exponent_bits == 5:
            return low.view(np.float16).astype(np.float64)
        with np.errstate(invalid="ignore"):  # signaling NaNs
            return (low.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def measures_of(form: str) -> tuple[Measure, ...]:
    """The measures in which the ISA bounds the error of a form."""
    stated = bounds.measures(form)
    if stated:
        return stated
    return (Measure(True),) if form.endswith(".ftz.f64") else (_ULPS,)


def words_of(measure: Measure) -> str:
    """A measure in words, as the ledger and the documentation have it."""
    if measure is _ULPS:
        return "ulp"
    return f"{'relative' if measure.relative else 'absolute'} {measure.words}".strip()


@scalar
def _error(x: float, true: float, got: float, kind: int, low: float, high: float, outside: int, least: int) -> float:
    """An error in ulps of float32 (kind 0), relative (1) or absolute (2); -1 if the measure does not apply.

    `least`: the exponent field of the format's smallest normal number as a float64.
    """
    size = abs(x)
    inside = low < size < high or (low == 0.0 and size <= high)
    exponent = f64_bits(true) >> 52 & 0x7FF
    normal = exponent >= least
    apart = abs(got - true)
    scale = 1.0
    if kind == 0:
        scale = f64_value(2046 + 23 - max(exponent, least) << 52)
    if kind == 1:
        scale = 1.0 / abs(true)
    counts = (inside != (outside == 1)) and apart < math.inf
    flushed = kind != 2 and (got == 0.0 or true == 0.0)
    return -1.0 if not counts or flushed or (kind == 1 and not normal) else apart * scale


_loops: list[Any] = []
_lock = threading.Lock()


def _peak(
    x: Floats, true: Floats, got: Floats, measures: tuple[Measure, ...], least: int
) -> tuple[float, Floats, NDArray[np.int64]]:
    """The greatest error, in the first measure that applies to each input, and for each measure the greatest error and
    its index.

    It is one compiled call, because threads wait for each other between calls.
    """
    if not _loops:
        with _lock:
            if not _loops:
                _loops.append(_compiled())
    kinds = np.array([0 if m is _ULPS else (1 if m.relative else 2) for m in measures], np.int64)
    lows, highs = np.array([m.low for m in measures]), np.array([m.high for m in measures])
    outside = np.array([m.outside for m in measures], np.int64)
    best, at = np.zeros(len(measures)), np.zeros(len(measures), np.int64)
    return _loops[0](x, true, got, kinds, lows, highs, outside, least, best, at), best, at


def _compiled() -> Any:
    numba = register_helpers()

    def loop(x, true, got, kinds, lows, highs, outside, least, best, at):  # type: ignore[no-untyped-def]
        peak = 0.0
        for i in range(x.size):
            first_error = -1.0
            for m in range(kinds.size):
                error = _error(x[i], true[i], got[i], kinds[m], lows[m], highs[m], outside[m], least)
                if error > best[m]:
                    best[m] = error
                    at[m] = i
                if first_error < 0.0:
                    first_error = error
            peak = max(peak, first_error)
        return peak

    floats, integers = (numba.types.Array(kind, 1, "C") for kind in (numba.float64, numba.int64))
    kinds = (*[floats] * 3, integers, floats, floats, integers, numba.int64, floats, integers)
    with wrapping():
        return numba.njit(numba.float64(*kinds), nogil=True, error_model="numpy")(loop)


def _bucket(
    form: str, run: ArrayFunction, kind: _Format, measures: tuple[Measure, ...], number: int
) -> tuple[list[Largest], float]:
    """The largest errors for one sign and exponent, and the largest in the ISA's measure for each input."""
    largest = [Largest("") for _ in measures]
    if not any(m.relative or m is _ULPS for m in measures):
        measures = (*measures, Measure(False))
    peak = 0.0
    for codes in _codes(kind, number):
        argument = kind.values(codes)
        with np.errstate(all="ignore"):
            true = _TRUE[form.split(".")[0]](argument)
        got = kind.values(run.compiled(len(codes), codes))
        top, best, at = _peak(argument, true, got, measures, kind.least)
        peak = max(peak, top)
        for mine, error, index in zip(largest, best, at, strict=False):
            if error > mine.error:
                mine.error, mine.at = float(error), (f"{int(codes[index]):#0{kind.width // 4 + 2}x}",)
    return largest, peak


def _codes(kind: _Format, number: int) -> Iterator[NDArray[Any]]:
    """All patterns of one sign and exponent, in pieces."""
    size = 1 << kind.fraction_bits
    dtype = np.dtype(f"u{kind.width // 8}")
    places = (np.arange(min(size, _PIECE), dtype=np.uint64) << np.uint64(kind.shift)).astype(dtype)
    for start in range(0, size, _PIECE):
        yield places + dtype.type((number << kind.fraction_bits) + start << kind.shift)


def _drawn(form: str, run: ArrayFunction, kind: _Format, measure: Measure, largest: Largest) -> None:
    """The largest error of a form with two operands, or of full float64, on inputs drawn as in a campaign."""
    inputs = Inputs(snippets(form)[0])
    for start in range(0, _DRAWN, _PIECE):
        columns = inputs.drawn(start, _PIECE)
        values = [kind.values(c) for c in columns]
        got = kind.values(run.compiled(_PIECE, *columns))
        with np.errstate(all="ignore"):
            if form == _LONG:
                errors = _long_errors(values[0], got)
                index = int(np.argmax(errors))
                error = float(errors[index])
            else:
                true = _TRUE["div"](*values)
                kept = np.abs(true) >= 2.0**-126
                if form.startswith("div.approx"):
                    kept &= (np.abs(values[1]) >= 2.0**-126) & (np.abs(values[1]) <= 2.0**126)
                error, _, at = _peak(values[0], true, np.where(kept, got, np.inf), (measure,), kind.least)
                index = int(at[0])
        if error > largest.error:
            largest.error = error
            largest.at = tuple(f"{int(c[index]):#0{kind.width // 4 + 2}x}" for c in columns)


def _long_errors(x: Floats, got: Floats) -> Floats:
    """Errors of reciprocal square roots in ulps of float64; -1 unless both numbers are finite and nonzero."""
    true = 1.0 / np.sqrt(x.astype(np.longdouble))
    unit = np.ldexp(np.longdouble(1.0), np.frexp(true)[1] - 53)
    apart = np.asarray(np.abs(got - true) / unit, np.float64)
    return np.where(np.isfinite(apart) & (got != 0.0), apart, -1.0)


def described(form: str, errors: Any) -> list[str]:
    """The largest errors in words, from the ledger's fields, and which of them exceed the ISA's bound."""
    what = "upper halves" if form.endswith(".ftz.f64") else "inputs"
    count = f"{'all ' * bool(errors['profile'])}{errors['inputs']:,} {what}"
    lines = []
    promised = (*bounds.promises(form), *[math.inf] * len(errors["largest"]))
    for item, promise in zip(errors["largest"], promised, strict=False):
        error, (kind, _, where) = item["error"], item["measure"].partition(" ")
        # Rounded up, because it is a bound.
        power = f"{kind} 2^{math.ceil(math.log2(error) * 1000) / 1000:.3f}" if error else "0"
        size = f"{error:.4g} ulp" if kind == "ulp" else power
        beyond = ", more than the ISA promises" if error > promise else ""
        lines.append(f"{size}{' ' + where if where else ''} at {', '.join(item['at'])} of {count}{beyond}")
    return lines
