"""How far an approximate form is from the true value: the largest error over all inputs, in the ISA's own measure.

Computed from the form's definition, without a GPU. It speaks for hardware where the ledger confirms the definition.
True values are numpy's float64 functions, whose own error is below 2**-50 of the value.
"""

from __future__ import annotations

import math
import threading
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
from harness.ptx.numeric.bits import f64_bits, f64_value, scalar
from harness.ptx.numeric.vectorise import ArrayFunction, register_helpers, wrapping

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

    @property
    def least(self) -> int:
        """The exponent field of the smallest normal number as a float64."""
        return 1023 + 2 - (1 << self.exponent_bits - 1)

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


def _measures(form: str) -> tuple[Measure, ...]:
    found = bounds.measures(form)
    if found:
        return found
    return (Measure(True),) if form.endswith("f64") else (_ULPS,)


def _words(measure: Measure) -> str:
    if measure is _ULPS:
        return "ulp"
    return f"{'relative' if measure.relative else 'absolute'} {measure.words}".strip()


@scalar
def _error(x: float, true: float, got: float, kind: int, low: float, high: float, outside: int, least: int) -> float:
    """An error in ulps of float32 (kind 0), relative (1) or absolute (2); -1 where the measure does not apply.

    `least`: a float64's exponent field of the format's smallest normal number.
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


def _errors(found: Floats, x: Floats, true: Floats, got: Floats, measure: Measure, least: int) -> None:
    """`_error` over arrays, compiled."""
    if not _loops:
        with _lock:
            if not _loops:
                _loops.append(_compiled())
    kind = 0 if measure is _ULPS else (1 if measure.relative else 2)
    _loops[0](found, x, true, got, kind, measure.low, measure.high, int(measure.outside), least)


_loops: list[Any] = []
_lock = threading.Lock()


def _compiled() -> Any:
    numba = register_helpers()

    def loop(found, x, true, got, kind, low, high, outside, least):  # type: ignore[no-untyped-def]
        for i in range(found.size):
            found[i] = _error(x[i], true[i], got[i], kind, low, high, outside, least)

    floats = numba.types.Array(numba.float64, 1, "C")
    numbers = (numba.int64, numba.float64, numba.float64, numba.int64, numba.int64)
    with wrapping():
        return numba.njit(numba.void(*[floats] * 4, *numbers), nogil=True, error_model="numpy")(loop)


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
        errors, told = np.empty((2, len(codes)))
        for place, (mine, measure) in enumerate(zip(found, measures, strict=True)):
            _errors(errors, argument, true, got, measure, kind.least)
            top = int(np.argmax(errors))
            if errors[top] > mine.error:
                mine.error, mine.at = float(errors[top]), (f"{int(codes[top]):#0{kind.width // 4 + 2}x}",)
            told = np.where(told < 0, errors, told) if place else errors.copy()
        peak = max(peak, float(told.max()))
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
        errors = np.empty(len(true))
        _errors(errors, values[0], true, got, measures[0], kind.least)
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
