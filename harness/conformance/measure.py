"""Measure one snippet: the inputs tried, the differences and their distances, and some differing inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.conformance import bounds
from ptxdiff.conformance.fetch import Executor
from ptxdiff.conformance.forms import FormSnippet, Port
from ptxdiff.conformance.inputs import Columns, Inputs, shape_of
from ptxdiff.emulator import PtxError, emulate

OFFENDERS = 3
"""The most inputs with a wrong result that are kept for a snippet."""
LAUNCH = 1 << 28
"""Inputs of one launch."""
HOST = 1 << 21
"""Inputs of one array for the emulator."""


@dataclass(frozen=True)
class WrongInput:
    """An input with the emulator's results and the hardware's, as hexadecimal patterns of the registers."""

    variant: str
    inputs: tuple[str, ...]
    expected: tuple[str, ...]
    got: tuple[str, ...]


@dataclass
class Tally:
    """The measurements of a snippet so far.

    `edges`: combinations of edge values tried. `hosted`, `reached`: how many numbered inputs were tried, from number 0
    on, through the emulator and on the device. `total`: how many numbered inputs exist, if all can be tried.
    `distance`: the greatest distance of an approximate form in ulp, at `worst`. `errors`: the greatest errors in the
    measures of `bounds`, over inputs that went through the emulator. `before`: how many other inputs earlier runs on
    this device tried without a mismatch. `refused`: the assembler's message. `failure`: why it could not be measured.
    """

    form: str
    variant: str
    edges: int = 0
    hosted: int = 0
    reached: int = 0
    total: int = 0
    mismatches: int = 0
    offenders: list[WrongInput] = field(default_factory=list)
    distance: int = 0
    worst: WrongInput | None = None
    errors: tuple[float, ...] = ()
    before: int = 0
    refused: str = ""
    failure: str = ""

    @property
    def exhausted(self) -> bool:
        """Whether every input was tried."""
        return 0 < self.total == max(self.hosted, self.reached)

    @property
    def inputs(self) -> int:
        """How many inputs were tried; an input that was tried twice counts once where that is known."""
        return self.total if self.exhausted else self.edges + max(self.hosted, self.reached) + self.before

    @property
    def emulated(self) -> int:
        """How many of these went through the emulator as users call it."""
        return min(self.edges + self.hosted, self.total or self.edges + self.hosted)


def on_edges(device: Executor, snippet: FormSnippet, tally: Tally, most: int) -> None:
    """Compare `ptxdiff.emulate` with the device on up to `most` combinations of edge values."""
    columns = Inputs(snippet).edges(most)
    step = -(-len(columns[0]) // most)
    columns = [c[::step] for c in columns]
    tally.edges += len(columns[0])
    _on_host(device, snippet, tally, columns)


def on_host(device: Executor, snippet: FormSnippet, tally: Tally, count: int) -> None:
    """Compare `ptxdiff.emulate` with the device, up to input number `count`; continues after an earlier call."""
    inputs = Inputs(snippet)
    tally.total = inputs.count if inputs.exhaustive else 0
    stop = min(count, inputs.count)
    while tally.hosted < stop and not tally.failure:
        some = min(stop - tally.hosted, HOST)
        _on_host(device, snippet, tally, inputs.drawn(tally.hosted, some))
        tally.hosted += some


def _on_host(device: Executor, snippet: FormSnippet, tally: Tally, columns: Columns) -> None:
    expected = run_emulated(snippet, columns, device.identity.target)
    if isinstance(expected, str):
        tally.failure = expected
        return
    got = device.run(snippet, columns)
    apart = apart_of(snippet, expected, got)
    wrong = np.flatnonzero(apart < 0)
    tally.mismatches += len(wrong)
    for index in wrong[: OFFENDERS - len(tally.offenders)]:
        tally.offenders.append(_offender(snippet, int(index), columns, expected, got))
    peak = int(np.argmax(apart))
    if apart[peak] > tally.distance:
        tally.distance = int(apart[peak])
        tally.worst = _offender(snippet, peak, columns, expected, got)
    if bounds.measures(snippet.form):
        largest = bounds.errors(
            snippet.form, *(values_of(c[0], p[0]) for c, p in _sides(snippet, columns, expected, got))
        )
        tally.errors = tuple(map(max, largest, tally.errors or largest))


def _sides(
    snippet: FormSnippet, columns: Columns, expected: Columns, got: Columns
) -> list[tuple[Columns, Sequence[Port]]]:
    return [(columns, snippet.inputs), (expected, snippet.outputs), (got, snippet.outputs)]


def values_of(registers: NDArray[Any], port: Port) -> NDArray[np.float64]:
    """The numbers in float registers, those of a packed register consecutively; NaN for numbers that are not finite."""
    codes, width, ebits, mbits = shape_of(port.type, port.bits)
    places = [registers.astype(np.int64) >> (position * width) for position in range(codes)]
    code = np.concatenate(places) & ((1 << width) - 1)
    exponent, fraction = (code >> mbits) & ((1 << ebits) - 1), code & ((1 << mbits) - 1)
    significand = np.where(exponent == 0, fraction, fraction + (1 << mbits)).astype(np.float64)
    bias = (1 << (ebits - 1)) - 1
    size = np.ldexp(significand, np.maximum(exponent, 1) - bias - mbits)
    size = np.where(exponent == (1 << ebits) - 1, np.nan, size)
    return np.where(code >> (ebits + mbits) & 1, -size, size)


def on_device(device: Executor, snippet: FormSnippet, tally: Tally, count: int) -> None:
    """Compare on the device, up to input number `count`; continues after an earlier call."""
    inputs = Inputs(snippet)
    tally.total = inputs.count if inputs.exhaustive else 0
    stop = min(count, inputs.count)
    while tally.reached < stop:
        start, some = tally.reached, min(stop - tally.reached, LAUNCH)
        report = device.check(snippet, start, some)
        tally.reached += some
        tally.mismatches += report.mismatches
        _explain(device, snippet, tally, inputs, report)


def _explain(device: Executor, snippet: FormSnippet, tally: Tally, inputs: Inputs, report: Any) -> None:
    """Find inputs and results for indices, with the emulator."""
    wanted = list(report.indices[: OFFENDERS - len(tally.offenders)])
    farther = report.distance > tally.distance
    indices = wanted + [report.at] * farther
    if not indices:
        return
    columns = inputs.at(np.array(indices, np.int64))
    expected = run_emulated(snippet, columns, device.identity.target)
    if isinstance(expected, str):
        tally.failure = expected
        return
    got = device.run(snippet, columns)
    apart = apart_of(snippet, expected, got)
    if farther:
        tally.distance = report.distance
        tally.worst = _offender(snippet, len(wanted), columns, expected, got)
    for index in range(len(wanted)):
        tally.offenders.append(_offender(snippet, index, columns, expected, got))
    if any(apart[index] >= 0 for index in range(len(wanted))) or (farther and apart[-1] != report.distance):
        tally.failure = "the definition gives something else on the device than in the emulator"


def run_emulated(snippet: FormSnippet, columns: Columns, target: str) -> Columns | str:
    """The emulator's results, or its message if it refuses."""
    dtypes = [f"uint{p.bits}" for p in snippet.outputs]
    try:
        return list(emulate(snippet.text, snippet.constraints, columns, dtypes, target=target, limit=None))
    except PtxError as e:
        return f"emulate: {str(e).splitlines()[0]}"


def apart_of(snippet: FormSnippet, expected: Columns, got: Columns) -> NDArray[np.float64]:
    """For each input: 0 if all results agree, the greatest distance in ulp, or -1."""
    worst = np.zeros(len(expected[0]))
    wrong = np.zeros(len(expected[0]), np.bool_)
    for port, e, g in zip(snippet.outputs, expected, got, strict=True):
        if not snippet.bound.form.approximate:
            wrong |= e != g
            continue
        apart = distances(e, g, shape_of(port.type, port.bits))
        wrong |= apart < 0
        worst = np.maximum(worst, apart)
    return np.where(wrong, -1.0, worst)


def distances(expected: NDArray[Any], got: NDArray[Any], shape: tuple[int, int, int, int]) -> NDArray[np.float64]:
    """`ptxdiff.conformance.kernels` over arrays of registers, also for 64 bits (then rounded to float64)."""
    codes, width, ebits, mbits = shape
    worst = np.zeros(len(expected))
    for position in range(codes):
        a, b = (
            (x.astype(np.uint64) >> np.uint64(position * width)) & np.uint64((1 << width) - 1) for x in (expected, got)
        )
        if ebits == 0:
            worst = np.where(a == b, worst, -1.0)
            continue
        size = np.uint64((1 << (ebits + mbits)) - 1)
        top = np.uint64(((1 << ebits) - 1) << mbits)
        m, n = a & size, b & size
        same = (a ^ b) >> np.uint64(ebits + mbits) == 0
        line = np.where(same, np.maximum(m, n) - np.minimum(m, n), m + n).astype(np.float64)
        special = ((m >= top) | (n >= top) | (m == 0) | (n == 0)) & (a != b)
        line = np.where(a == b, 0.0, np.where(special, -1.0, line))
        worst = np.where((worst < 0) | (line < 0), -1.0, np.maximum(worst, line))
    return worst


def _offender(snippet: FormSnippet, place: int, columns: Columns, expected: Columns, got: Columns) -> WrongInput:
    def words(arrays: Sequence[NDArray[Any]], ports: Sequence[Any]) -> tuple[str, ...]:
        return tuple(f"0x{int(a[place]):0{p.bits // 4}x}" for a, p in zip(arrays, ports, strict=True))

    return WrongInput(
        snippet.variant, words(columns, snippet.inputs), words(expected, snippet.outputs), words(got, snippet.outputs)
    )
