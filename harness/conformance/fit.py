"""Fit the coefficients of a special function unit's interpolator to a GPU's results.

A design describes how to measure a function through an instruction: the inputs of each segment, the unit in which the
interpolator adds, and the granularity of each coefficient. A segment is then a set of linear conditions on three
integers: every result must equal constant + slope * x + curve * square(x), truncated to the format. All results of a
segment are used, and every solution is found. If there is none, the GPU's unit has another design.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance.forms import snippets
from ptxdiff.emulator.numeric import hopper

Words = NDArray[np.uint32]
Integers = NDArray[np.int64]

STEP_BITS, SQUARE_CUT = hopper.STEP_BITS, hopper.SQUARE_CUT
_WINDOW = (24, 10)
"""How far from the least-squares solution curves and slopes are tried, in multiples of their granularity."""


@dataclass(frozen=True)
class Design:
    """How to measure a function of the unit through an instruction.

    `fraction`: the interpolator adds in units of 2**-fraction. `kept`: fraction bits of its output, which is then
    truncated to 24 bits. `constant`, `slope`, `curve`: coefficients are multiples of 2 to these powers of that unit.
    `inputs`: a segment's arguments, and the interpolator's steps for each. `exact`: whether the first input of the
    first segment is a special case.
    """

    form: str
    segments: int
    fraction: int
    kept: int
    constant: int
    slope: int
    curve: int
    inputs: Callable[[int], tuple[Words, Integers]]
    exact: bool = False


class Misfit(Exception):
    """The GPU's unit does not have this design; the message says where its results differ."""


@dataclass(frozen=True)
class Table:
    """Fitted coefficients, one number for each segment, and a number added to every constant, in the interpolator's
    unit.

    `results`: how many results they give. `unique`: whether no other coefficients of these widths give them.
    """

    constant: tuple[int, ...]
    slope: tuple[int, ...]
    curve: tuple[int, ...]
    rounding: int
    results: int
    unique: bool

    def same_as(self, name: str) -> bool:
        """Whether it equals the emulator's table of this function."""
        mine = [self.constant, self.slope, self.curve]
        had = [getattr(hopper, f"{name.upper()}_{word}") for word in ("CONSTANT", "SLOPE", "CURVE")]
        return all(tuple(h[: len(m)]) == m for h, m in zip(had, mine, strict=True))

    def text(self, name: str) -> str:
        """The table as Python source, in the layout of `ptxdiff.emulator.numeric.hopper`."""
        parts = []
        for word in ("constant", "slope", "curve"):
            numbers = ", ".join(map(str, getattr(self, word))) + ","
            body = textwrap.fill(numbers, 116, initial_indent="    ", subsequent_indent="    ")
            parts.append(f"{name.upper()}_{word.upper()} = (\n{body}\n)")
        return "\n".join(parts)


class Runner(Protocol):
    """The interface of a device for a fit."""

    def compiled(self, snippets: Any, checks: bool) -> dict[int, str]:
        """Compile snippets."""

    def run(self, snippet: Any, columns: Any) -> Any:
        """An instruction's results."""


def fit(design: Design, results: Callable[[int, Words], Words], segments: Iterable[int] | None = None) -> Table:
    """Fit a design's segments (all, or some).

    `results`: a function that gives the results for a segment's arguments. Raises Misfit.
    """
    square = truncated_squares(STEP_BITS, SQUARE_CUT)
    by_segment: list[list[tuple[int, int, int, int]]] = []
    count = 0
    numbers = list(range(design.segments) if segments is None else segments)
    for number in numbers:
        arguments, steps = design.inputs(number)
        given = results(number, arguments)
        if design.exact and number == 0:
            steps, given = steps[1:], given[1:]
        count += len(steps)
        solutions = _segment(design, steps, square, given)
        if not solutions:
            raise Misfit(
                f"{design.form}, segment {number}: no quadratic with a square of {STEP_BITS} bits cut at "
                f"2**{SQUARE_CUT} gives its {len(steps):,} results; {_otherwise(design, steps, given)}"
            )
        by_segment.append(solutions)
    rounding = _rounding(design, by_segment)
    rows = [_row(design, f, rounding) for f in by_segment]
    constant, slope, curve = (tuple(column) for column in zip(*rows, strict=True))
    unique = all(len(f) == 1 and f[0][3] - f[0][2] < 1 << design.constant for f in by_segment)
    return Table(constant, slope, curve, rounding, count, unique)


def truncated_squares(bits: int, cut: int) -> Integers:
    """The truncated squares of all numbers of `bits` bits
    (`ptxdiff.emulator.numeric.interpolator.truncated_square`)."""
    x = np.arange(1 << bits, dtype=np.int64)
    total = np.zeros_like(x)
    for i in range((cut + 1) >> 1, bits):
        row = (1 << (2 * i - cut)) + ((x & ((1 << i) - 1)) << (i + 1) >> cut)
        total += np.where(x >> i & 1, row, 0)
    return total


def interval(design: Design, results: Words) -> tuple[Integers, Integers]:
    """The least and the greatest sum that gives each positive float32 result, in the interpolator's unit."""
    value = results.view(np.float32).astype(np.float64)
    last = np.ldexp(1.0, np.maximum(np.frexp(value)[1] - 24, -design.kept) + design.fraction)
    low = np.ceil(np.ldexp(value, design.fraction))
    return low.astype(np.int64), (np.ceil(np.ldexp(value, design.fraction) + last) - 1).astype(np.int64)


def _margins(
    candidates: Integers, steps: Integers, square: Integers, low: Integers, high: Integers
) -> tuple[Integers, Integers]:
    """For each candidate (curve, slope): the least and greatest constants that give the results of these inputs."""
    sums = candidates[:, :1] * square + candidates[:, 1:] * steps
    return (low - sums).max(axis=1), (high - sums).min(axis=1)


def _otherwise(design: Design, steps: Integers, given: Words) -> str:
    """A description of other truncations of the square with which a quadratic gives a segment's results."""
    cuts = []
    for cut in range(SQUARE_CUT - 5, SQUARE_CUT + 6):
        # A unit that truncates fewer columns adds in smaller units; one that truncates more has zeros in ours.
        more = max(SQUARE_CUT - cut, 0)
        square = truncated_squares(STEP_BITS, cut) << max(cut - SQUARE_CUT, 0)
        finer = {name: getattr(design, name) + more for name in ("fraction", "constant", "slope")}
        if cut != SQUARE_CUT and _segment(replace(design, **finer), steps, square, given):
            cuts.append(f"2**{cut}")
    if cuts:
        return f"with the square cut at {' or '.join(cuts)} one does"
    return "nor does one with a square cut up to five columns before or behind that: widths, segments or form differ"


def _segment(design: Design, steps: Integers, squares: Integers, given: Words) -> list[tuple[int, int, int, int]]:
    """All (curve, slope, least constant, greatest constant) that give a segment's results.

    squares: the truncated squares of all numbers of steps.
    """
    low, high = interval(design, given)
    square = squares[steps]
    some = np.unique(np.linspace(0, len(steps) - 1, 4097).astype(np.int64))
    columns = np.stack([np.ones(len(some)), steps[some], square[some]], axis=1).astype(np.float64)
    scale = np.maximum(columns.max(axis=0), 1.0)
    solved = np.linalg.lstsq(columns / scale, (low[some] + high[some]) / 2.0, rcond=None)[0] / scale
    candidates = _around(design, float(solved[1]), float(solved[2]), float(square.max()) / max(float(steps.max()), 1.0))
    active = set(np.linspace(0, len(steps) - 1, 257).astype(np.int64).tolist())
    while len(candidates):
        # A few inputs exclude nearly all candidates; inputs that exclude the others are found one by one.
        chosen = np.array(sorted(active))
        least, greatest = _margins(candidates, steps[chosen], square[chosen], low[chosen], high[chosen])
        candidates = candidates[least <= greatest]
        against: set[int] = set()
        for curve, slope in candidates[:32]:
            sums = curve * square + slope * steps
            if (low - sums).max() > (high - sums).min():
                against.update((int((low - sums).argmax()), int((high - sums).argmin())))
        if not against:
            break
        active |= against
    solutions = []
    for candidate in candidates:
        least, greatest = _margins(candidate[None, :], steps, square, low, high)
        if least[0] <= greatest[0]:
            solutions.append((int(candidate[0]), int(candidate[1]), int(least[0]), int(greatest[0])))
    return solutions


def _around(design: Design, slope: float, curve: float, trade: float) -> Integers:
    """Curves and slopes near a solution, as multiples of their granularity. A larger curve needs a smaller slope."""
    nearby = []
    for q in range(-_WINDOW[0], _WINDOW[0] + 1):
        some_curve = (round(curve / (1 << design.curve)) + q) << design.curve
        middle = round((slope - (some_curve - curve) * trade) / (1 << design.slope))
        nearby += [(some_curve, (middle + s) << design.slope) for s in range(-_WINDOW[1], _WINDOW[1] + 1)]
    return np.array(nearby, np.int64)


def _rounding(design: Design, found: list[list[tuple[int, int, int, int]]]) -> int:
    """The remainder of every constant modulo its granularity, which is equal for all segments. Raises Misfit."""
    size = 1 << design.constant
    votes = np.zeros(size + 1, np.int64)
    for solutions in found:
        covered = np.zeros(size + 1, np.int64)
        for *_, least, greatest in solutions:
            first, width = least % size, min(greatest - least + 1, size)
            covered[first] += 1
            covered[min(first + width, size)] -= 1
            if first + width > size:
                covered[0] += 1
                covered[first + width - size] -= 1
        votes += np.diff(np.concatenate([[0], (np.cumsum(covered) > 0).astype(np.int64)]))
    serves = np.flatnonzero(np.cumsum(votes)[:size] == len(found))
    if not len(serves):
        raise Misfit(f"{design.form}: constants in steps of 2**{design.constant - design.fraction} have no common rest")
    return int(serves[0])


def _row(design: Design, solutions: list[tuple[int, int, int, int]], rounding: int) -> tuple[int, int, int]:
    """The first solution whose constant has this remainder, in multiples of the granularity."""
    for curve, slope, least, greatest in solutions:
        constant = -((rounding - least) >> design.constant)
        if (constant << design.constant) + rounding <= greatest:
            return constant, slope >> design.slope, curve >> design.curve
    raise Misfit(f"{design.form}: no constant with the rest {rounding}")


def on_device(name: str, device: Runner, segments: Iterable[int] | None = None) -> Table:
    """Measure a function's results and fit them. Raises Misfit, KeyError for a function that is not known."""
    design = DESIGNS[name]
    (snippet,) = snippets(design.form)
    refused = device.compiled([snippet], False)
    if refused:
        raise Misfit(f"{design.form}: {refused[0]}")
    return fit(design, lambda _, arguments: device.run(snippet, [arguments])[0], segments)


# Designs of the unit's functions --------------------------------------------------------------------------------


def _binades(count: int) -> Callable[[int], tuple[Words, Integers]]:
    """Segments of 2**17 numbers from 1 on, `count` of them for each binade."""

    def inputs(segment: int) -> tuple[Words, Integers]:
        bits = 23 - (count.bit_length() - 1)
        x = np.arange(1 << bits, dtype=np.uint32)
        first = 0x3F800000 + (segment // count << 23) + (segment % count << bits)
        return x + np.uint32(first), x.astype(np.int64) << (STEP_BITS - bits)

    return inputs


def _quarter(segment: int) -> tuple[Words, Integers]:
    """Arguments of sin.approx whose angle, in units of 2**-25 turns, lies in a segment of the first quarter."""
    turn = 0.15915493667125702
    wanted = (np.arange(1 << STEP_BITS) + (segment << STEP_BITS) + 0.5) * 2.0**-25
    x = (wanted / turn).astype(np.float32)
    turns = x.astype(np.float64) * turn
    angle = np.floor((turns.view(np.int64) >> 29 << 29).view(np.float64) * 2.0**25).astype(np.int64)
    kept = angle >> STEP_BITS == segment
    return x[kept].view(np.uint32), angle[kept] & ((1 << STEP_BITS) - 1)


_TANH_SEGMENTS = [
    (e, s) for e, n in zip(range(-8, 3), (1, 1, 1, 2, 2, 4, 4, 4, 8, 16, 8), strict=True) for s in range(n)
]


def _tanh(segment: int) -> tuple[Words, Integers]:
    """A segment's arguments; the upper fraction bits choose among the segments of its binade."""
    exponent, part = _TANH_SEGMENTS[segment]
    count = sum(e == exponent for e, _ in _TANH_SEGMENTS)
    spacing = 23 - STEP_BITS - (count.bit_length() - 1)
    steps = np.arange(1 << STEP_BITS, dtype=np.int64)
    codes = (exponent + 127 << 23) + ((steps + (part << STEP_BITS)) << spacing)
    return codes.astype(np.uint32), steps


DESIGNS = {
    "rcp": Design("rcp.approx.ftz.f32", 128, 40, 40, 14, 0, 1, _binades(128)),
    "rsqrt": Design("rsqrt.approx.ftz.f32", 128, 40, 40, 14, 0, 2, _binades(64), exact=True),
    "sqrt": Design("sqrt.approx.ftz.f32", 128, 40, 40, 15, 0, 1, _binades(64)),
    "ex2": Design("ex2.approx.ftz.f32", 64, 38, 38, 14, 0, 1, _binades(64)),
    "lg2": Design("lg2.approx.ftz.f32", 64, 38, 36, 12, 0, 1, _binades(64), exact=True),
    "sin": Design("sin.approx.ftz.f32", 64, 37, 37, 11, 0, 0, _quarter),
    "tanh": Design("tanh.approx.f32", len(_TANH_SEGMENTS), 39, 39, 15, 0, 0, _tanh),
}
"""The designs by name of the function."""
