"""How far an approximate form is from the true value: the largest error over all inputs, in the ISA's own measure.

Computed from the form's definition, without a GPU. It speaks for hardware where the ledger confirms the definition.
True values are numpy's float64 functions, whose own error is below 2**-50 of the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from harness.conformance import bounds
from harness.conformance.bounds import Measure
from harness.conformance.forms import bounds_of, snippets
from harness.conformance.inputs import Inputs
from harness.ptx.machine.parallel import for_each
from harness.ptx.numeric.vectorise import ArrayFunction

Floats = NDArray[np.float64]

_PIECE = 1 << 16
_PAIRS = 1 << 26
"""Inputs of a form of two operands, drawn as a campaign draws them."""

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

_ULPS = Measure(False, "ulp")
"""Stands for errors in units in the last place."""


@dataclass
class Largest:
    """The largest error in one measure, and the input that has it (bit patterns of the operands)."""

    words: str
    error: float = 0.0
    at: tuple[str, ...] = ()


@dataclass(frozen=True)
class Errors:
    """What is known of a form's errors.

    `profile`: for forms of one operand, the largest error of each sign and exponent of the argument, in the measure
    that the ISA has for it; 0 where no result is finite and nonzero.
    """

    inputs: int
    largest: tuple[Largest, ...]
    profile: tuple[float, ...]

    def json(self) -> dict[str, Any]:
        """As the ledger keeps it: errors with four digits."""
        found = [{"measure": m.words, "error": _short(m.error), "at": list(m.at)} for m in self.largest]
        return {"inputs": self.inputs, "largest": found, "profile": [_short(e) for e in self.profile]}


def _short(error: float) -> float:
    return float(f"{error:.4g}")


def measurable(form: str) -> bool:
    """Whether errors of a form can be computed: approximate, and not float64 in full (its true value has more bits)."""
    bound = bounds_of()[form]
    return bound.form.approximate and form != "rsqrt.approx.f64"


def errors_of(form: str) -> Errors:
    """Compute the errors of a form, over all its inputs where they are 2**32 or fewer.

    A packed form is that of one of its halves. A float64 form gets every upper half, with zeros below.
    """
    bound = bounds_of()[form]
    run = bound.array_function()
    measures = _measures(form)
    largest = [Largest(_words(m)) for m in measures]
    kind = _Format.of(form)
    if len(bound.form.sources) == 2:
        _pairs(form, run, kind, measures, largest)
        return Errors(_PAIRS, tuple(largest), ())
    buckets = 1 << kind.exponent_bits + 1
    found: dict[int, tuple[list[Largest], float]] = {}

    def bucket(number: int) -> None:
        found[number] = _bucket(form, run, kind, measures, number)

    for_each(bucket, range(buckets))
    for place in range(len(measures)):
        largest[place] = max((found[n][0][place] for n in range(buckets)), key=lambda m: m.error)
        largest[place].words = _words(measures[place])
    return Errors(buckets << kind.fraction_bits, tuple(largest), tuple(found[n][1] for n in range(buckets)))


@dataclass(frozen=True)
class _Format:
    """The number format of a form: bits of a code, of exponent and of fraction that are tried, as float64."""

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

    def values(self, codes: NDArray[Any]) -> Floats:
        """The numbers of bit patterns (of packed ones, of the lower half)."""
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

    def ulps(self, apart: Floats, true: Floats) -> Floats:
        """Errors in units in the last place of the true value."""
        least = 2 - (1 << self.exponent_bits - 1)
        bits = 20 if self.width == 64 else self.fraction_bits
        exponent = np.maximum(np.frexp(true)[1] - 1, least)
        return np.asarray(np.ldexp(apart, bits - exponent))


def _measures(form: str) -> tuple[Measure, ...]:
    found = bounds.measures(form)
    if found:
        return found
    return (Measure(True),) if form.endswith("f64") else (_ULPS,)


def _words(measure: Measure) -> str:
    if measure is _ULPS:
        return "ulp"
    return f"{'relative' if measure.relative else 'absolute'} {measure.words}".strip()


def _apart(form: str, kind: _Format, measure: Measure, argument: Floats, true: Floats, got: Floats) -> Floats:
    """Errors in a measure, -1 where it says nothing: outside its range, infinite, or flushed."""
    apart = np.abs(got - true)
    if measure is _ULPS:
        errors = kind.ulps(apart, true)
        kept = (got != 0) & (true != 0)
    elif measure.relative:
        errors = apart / np.abs(true)
        kept = (np.abs(true) >= measure.normal) & (got != 0)
    else:
        errors, kept = apart, np.ones(len(apart), np.bool_)
    size = np.abs(argument)
    inside = (size > measure.low) & (size < measure.high) if measure.low else size <= measure.high
    kept &= (inside != measure.outside) & np.isfinite(true) & np.isfinite(got)
    return np.where(kept, errors, -1.0)


def _bucket(
    form: str, run: ArrayFunction, kind: _Format, measures: tuple[Measure, ...], number: int
) -> tuple[list[Largest], float]:
    """The largest errors of one sign and exponent, and the largest in the measure that the ISA has for each input."""
    found = [Largest("") for _ in measures]
    peak = 0.0
    for codes in _codes(kind, number):
        argument = kind.values(codes)
        with np.errstate(all="ignore"):
            true = _TRUE[form.split(".")[0]](argument)
            got = kind.values(run.compiled(len(codes), codes))
            sides = [_apart(form, kind, m, argument, true, got) for m in measures]
        if len(sides[0]) == 0:
            continue
        for mine, errors in zip(found, sides, strict=True):
            place = int(np.argmax(errors))
            if errors[place] > mine.error:
                mine.error, mine.at = float(errors[place]), (f"{int(codes[place]):#0{kind.width // 4 + 2}x}",)
        first = sides[0]
        for other in sides[1:]:
            first = np.where(first < 0, other, first)
        peak = max(peak, float(first.max()))
    return found, peak


def _codes(kind: _Format, number: int) -> Iterator[NDArray[Any]]:
    """All patterns of one sign and exponent, in pieces."""
    size = 1 << kind.fraction_bits
    dtype = np.dtype(f"u{kind.width // 8}")
    for start in range(0, size, _PIECE):
        places = np.arange(start, min(start + _PIECE, size), dtype=np.uint64)
        yield ((places + np.uint64(number << kind.fraction_bits)) << np.uint64(kind.shift)).astype(dtype)


def _pairs(form: str, run: ArrayFunction, kind: _Format, measures: tuple[Measure, ...], largest: list[Largest]) -> None:
    """Errors of a form of two operands, on inputs as a campaign draws them."""
    inputs = Inputs(snippets(form)[0])
    limited = form.startswith("div.approx")
    for start in range(0, _PAIRS, 1 << 20):
        columns = inputs.drawn(start, 1 << 20)
        values = [kind.values(c) for c in columns]
        with np.errstate(all="ignore"):
            true = _TRUE[form.split(".")[0]](*values)
            got = kind.values(run.compiled(len(true), *columns))
            errors = _apart(form, kind, measures[0], values[0], true, got)
        if limited:
            size = np.abs(values[1])
            errors = np.where((size >= 2.0**-126) & (size <= 2.0**126), errors, -1.0)
        errors = np.where(np.abs(true) >= 2.0**-126, errors, -1.0)
        place = int(np.argmax(errors))
        if errors[place] > largest[0].error:
            largest[0].error = float(errors[place])
            largest[0].at = tuple(f"{int(c[place]):#010x}" for c in columns)


def described(errors: Any) -> list[str]:
    """The largest errors in words, from what the ledger keeps."""
    count = f"{errors['inputs']:,} inputs"
    lines = []
    for item in errors["largest"]:
        error, measure = item["error"], item["measure"]
        size = (
            f"{error:.4g} ulp"
            if measure == "ulp"
            else f"{measure.split(' ')[0]} 2^{math.log2(error):.2f}"
            if error
            else "0"
        )
        where = measure.partition(" ")[2]
        lines.append(f"{size}{' ' + where if where else ''} at {', '.join(item['at'])} of {count}")
    return lines
