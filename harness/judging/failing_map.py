"""Failing-input maps of cases with two small inputs: failures counted by the codes of both, packed for a record.

For elementwise cases with two inputs of at most 16 bits. Each 8-bit code has its own row or column; wider codes with
equal high bits share one, so that a map has at most 256 x 256 cells.
"""

from __future__ import annotations

import base64
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.judging.differences import bits
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.records import Area, Grid
from ptxdiff.references.formats import Format

Counts = NDArray[np.int64]

SIDE_BITS = 8
CODE_BITS = 16
PACKED = 4096
"""The most characters for a record's counts; four cells are merged into one until they fit."""
LEAST_SIDE = 16
KEPT_AREAS = 5
TICKS = 8


@dataclass(frozen=True)
class Axes:
    """The two inputs of a map: the first gives the row, the second the column."""

    names: tuple[str, str]
    formats: tuple[Format, Format]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        rows, columns = (1 << min(SIDE_BITS, f.code_bits) for f in self.formats)
        return rows, columns

    def cells(self, codes: Mapping[str, Any]) -> Any:
        """The flat number of each input's cell. codes: one-dimensional integer arrays of numpy or torch, by name."""
        row, column = (
            (codes[n] & ((1 << f.code_bits) - 1)) >> max(0, f.code_bits - SIDE_BITS)
            for n, f in zip(self.names, self.formats, strict=True)
        )
        return row * self.shape[1] + column


def axes_of(case: Case) -> Axes | None:
    """The axes of a case's map; None for a case that has none."""
    if not case.elementwise or len(case.inputs) != 2:
        return None
    first, second = (format_of(a) for a in case.inputs.values())
    if any(f.code_bits > CODE_BITS or f.codes_per_unit > 1 for f in (first, second)):
        return None
    row, column = case.inputs
    return Axes((row, column), (first, second))


def counted(axes: Axes, codes: Mapping[str, Any], failing: NDArray[np.bool_]) -> Counts:
    """Failing inputs by cell. codes: the inputs' codes by name; failing: one flag for each input, flat."""
    chosen = {n: codes[n].reshape(-1)[failing] for n in axes.names}
    rows, columns = axes.shape
    return np.bincount(axes.cells(chosen), minlength=rows * columns).reshape(rows, columns)


def packed(axes: Axes, counts: Counts) -> Grid:
    """The record of a map."""
    areas = _areas(counts, reach=0)
    if len(areas) > KEPT_AREAS:
        areas = _areas(counts, reach=1)  # so that a diagonal is one area
    runs = _words(counts)
    found = counts
    while len(runs) > PACKED and min(found.shape) > LEAST_SIDE:
        rows, columns = found.shape
        found = found.reshape(rows // 2, 2, columns // 2, 2).sum((1, 3))
        runs = _words(found)
    row, column = axes.formats
    return Grid(
        row=axes.names[0],
        column=axes.names[1],
        shape=found.shape,
        counts=runs,
        row_ticks=tuple(bits(row, code) for code in _tick_codes(row)),
        column_ticks=tuple(bits(column, code) for code in _tick_codes(column)),
        areas=tuple(
            Area(
                _ends(row, top, bottom, counts.shape[0]),
                _ends(column, left, right, counts.shape[1]),
                failing,
            )
            for failing, top, bottom, left, right in areas[:KEPT_AREAS]
        ),
        more=max(0, len(areas) - KEPT_AREAS),
    )


def _words(counts: Counts) -> str:
    little = np.minimum(counts, (1 << 32) - 1).astype("<u4")
    return base64.b64encode(zlib.compress(little.tobytes(), 9)).decode()


def _tick_codes(fmt: Format) -> list[int]:
    """The code at which each eighth of an axis begins, and the last one."""
    total = 1 << fmt.code_bits
    return [*(total * k // TICKS for k in range(TICKS)), total - 1]


def _ends(fmt: Format, first: int, last: int, size: int) -> tuple[Any, Any]:
    """The first and the last code of some rows or columns of `size`."""
    span = (1 << fmt.code_bits) // size
    return bits(fmt, first * span), bits(fmt, (last + 1) * span - 1)


def _areas(counts: Counts, reach: int) -> list[tuple[int, int, int, int, int]]:
    """Areas of failing cells that touch: failing inputs, first and last row, first and last column; most failures
    first.

    reach: 1 if cells that share only a corner touch too, else 0.
    """
    groups: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    runs = list(_runs(counts > 0))
    leader = list(range(len(runs)))

    def leading(k: int) -> int:
        while leader[k] != k:
            leader[k] = leader[leader[k]]
            k = leader[k]
        return k

    above: list[int] = []
    here: list[int] = []
    first = 0  # of the runs above, which begin and end further and further to the right, those before it touch no more
    for k, (row, left, right) in enumerate(runs):
        if here and runs[here[0]][0] != row:
            above, here, first = (here if runs[here[0]][0] == row - 1 else []), [], 0
        here.append(k)
        while first < len(above) and runs[above[first]][2] < left - reach:
            first += 1
        for at in range(first, len(above)):
            if runs[above[at]][1] > right + reach:
                break
            leader[leading(k)] = leading(above[at])
    for k, run in enumerate(runs):
        groups[leading(k)].append(run)
    found = []
    before = np.pad(np.cumsum(counts, axis=1), ((0, 0), (1, 0))).tolist()
    for members in groups.values():
        rows, lefts, rights = zip(*members, strict=True)
        failing = sum(before[r][b + 1] - before[r][a] for r, a, b in members)
        found.append((failing, min(rows), max(rows), min(lefts), max(rights)))
    return sorted(found, key=lambda area: (-area[0], area[1:]))


def _runs(mask: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
    """Row, first and last column of each unbroken run, in order."""
    edges = np.diff(np.pad(mask.astype(np.int8), ((0, 0), (1, 1))), axis=1)
    starts, ends = np.nonzero(edges == 1), np.nonzero(edges == -1)
    for row, left, right in zip(starts[0].tolist(), starts[1].tolist(), ends[1].tolist(), strict=True):
        yield row, left, right - 1
