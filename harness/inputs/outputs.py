"""Inputs chosen by the reference's results: every binade of the results, and both sides of every threshold.

Each result has a label: its class and binade, or its code if it is an end of a class, a code of a narrow format, or a
plateau (one code for a whole range of inputs, such as a limit of saturation). The reference is evaluated along lines:
one input moves over all of its binades and the others are constant. Between neighbours with different labels the line
is subdivided until two adjacent codes have different labels. This also finds where a sum cancels, because along an
addend the result passes through all of its binades to zero. The inputs depend only on the case and the seed, not on a
backend or policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import between_integers, edge_units, ends, in_slots, repeated, spread
from ptxdiff.model.arguments import codes_of, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.reference import ReferenceFault, apply_reference
from ptxdiff.references.formats import Format, encode, from_ordinal, magnitude, sign

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Inside = Callable[[Mapping[str, NDArray[np.generic]]], Mask]

# By effort: lines along each input, places on one line, thresholds between the same two labels (random ones, and as
# many nearest to zero), and inputs of each label. A case with one input has one line with more places.
_LINES = {"quick": 24, "full": 96, "exhaustive": 96}
_PLACES = {"quick": 512, "full": 2048, "exhaustive": 2048}
_ALONE = 8
_THRESHOLDS = {"quick": 1, "full": 8, "exhaustive": 8}
_INPUTS = {"quick": 4, "full": 32, "exhaustive": 32}

_PARTS = 8
_MOST_INTERVALS = 1 << 13
_OUTSIDE = -1


@dataclass(frozen=True)
class _Intervals:
    """Intervals of lines: for each row the codes at the lower end, the moving input, its first and last place, and the
    labels."""

    columns: list[Codes]
    moving: Codes
    low: Codes
    high: Codes
    before: Codes
    after: Codes

    def at(self, chosen: NDArray[np.int64] | NDArray[np.bool_]) -> _Intervals:
        return _Intervals(
            [c[chosen] for c in self.columns], self.moving[chosen], self.low[chosen], self.high[chosen],
            self.before[chosen], self.after[chosen],
        )  # fmt: skip


@np.errstate(all="ignore")
def output_inputs(
    case: Case, formats: Mapping[str, Format], effort: str, rng: np.random.Generator, inside: Inside
) -> list[Codes]:
    """Storage units of every input. If the reference raises, inputs on which it does, so that the judge reports them.

    inside: which rows of storage units lie within `where=`; the reference is called only with these.
    """
    if not formats:
        return []
    lines = _Search(case, formats, rng, inside, _THRESHOLDS[effort], _INPUTS[effort])
    try:
        columns = lines.found(_LINES[effort], _PLACES[effort])
    except ReferenceFault:
        columns = lines.last
    return [in_slots(f, c) for f, c in zip(formats.values(), columns, strict=True)]


class _Search:
    """One search: the case with its formats, and the labels of its reference's results."""

    def __init__(
        self,
        case: Case,
        formats: Mapping[str, Format],
        rng: np.random.Generator,
        inside: Inside,
        thresholds: int,
        inputs: int,
    ) -> None:
        self.case, self.formats, self.rng, self.inside = case, formats, rng, inside
        self.thresholds, self.inputs = thresholds, inputs
        self.singles = [f.single for f in formats.values()]
        self.outputs = [format_of(a).single for a in case.outputs.values()]
        self.plateaus: list[Codes] = [np.zeros(0, dtype=np.int64)] * len(self.outputs)
        self.widths = [1] * len(self.outputs)  # codes of each output for one input, set at the first evaluation
        self.last: list[Codes] = [np.zeros(0, dtype=np.int64) for _ in self.singles]

    def found(self, lines: int, places: int) -> list[Codes]:
        """The inputs' codes, one column for each input."""
        grids = [self._line_places(k, lines, places) for k in range(len(self.singles))]
        columns = [np.concatenate([g[0][k] for g in grids]) for k in range(len(self.singles))]
        moving = np.concatenate([np.full(len(g[1]), k) for k, g in enumerate(grids)])
        along = np.concatenate([g[1] for g in grids])
        first = np.concatenate([g[2] for g in grids])
        answers = self._answers(columns)
        self._find_plateaus(answers, first)
        labels = self._labels(answers)
        pairs = np.flatnonzero(~first[1:])
        intervals = _Intervals(
            [c[pairs] for c in columns], moving[pairs], along[pairs], along[pairs + 1], labels[pairs], labels[pairs + 1]
        )
        edges = self._subdivided(self._selected(intervals, 4 * self.thresholds))
        chosen = self._selected(edges, self.thresholds)
        # Two codes on each side of a threshold expose both a comparison shifted by one code and a wrong selected value.
        sides = [self._moved(chosen, codes) for codes in (chosen.low, chosen.high, *self._beyond(chosen))]
        sides.append(self._filled(edges, columns, labels))
        if len(self.singles) == 1:
            sides.append([_code(self.singles[0], between_integers(self.singles[0], self.inputs // 2, self.rng))])
        return [np.concatenate([s[k] for s in sides]) for k in range(len(self.singles))]

    # ---- Lines -----------------------------------------------------------------------------------------------

    def _line_places(self, moved: int, lines: int, places: int) -> tuple[list[Codes], Codes, NDArray[np.bool_]]:
        """Codes of all inputs along some lines, the places of the moving input, and the rows at which a line begins."""
        alone = len(self.singles) == 1
        along = spread(self.singles[moved], places * (_ALONE if alone else 1), self.rng)
        count = 1 if alone else lines
        columns = [np.repeat(self._anchors(f, count), len(along)) for f in self.singles]
        columns[moved] = np.tile(_code(self.singles[moved], along), count)
        begins = np.zeros(count * len(along), dtype=bool)
        begins[:: len(along)] = True
        return columns, np.tile(along, count), begins

    def _anchors(self, fmt: Format, count: int) -> Codes:
        """Codes for the constant inputs: plain values, then edges, all binades, and binades near one."""
        choice = self.rng.integers(0, 3, count)
        codes = _code(fmt, self.rng.choice(spread(fmt, 4096, self.rng), count))
        if fmt.is_float and fmt.code_bits > 8:
            shift = fmt.mantissa_bits + fmt.ignored_bits
            span = max(2, fmt.bias // 4)
            field = self.rng.integers(fmt.bias - span, fmt.bias + span, count) << shift
            near = codes & ~(((1 << fmt.exponent_bits) - 1) << shift) | field
            codes = np.where(choice == 2, near, codes)
        codes = np.where(choice == 0, self.rng.choice(edge_units(fmt), count), codes)
        plain = np.array([0, encode(fmt, 1), fmt.max_finite, fmt.min_normal], dtype=np.uint64).view(np.int64)
        chosen = self.rng.permutation(plain)[:count]
        return np.concatenate([chosen, codes[len(chosen) :]])

    # ---- Labels ----------------------------------------------------------------------------------------------

    def _answers(self, columns: list[Codes]) -> list[Codes]:
        """The reference's codes by output, a row for each input; rows that `where=` excludes hold `_OUTSIDE`."""
        self.last = columns
        units = {n: repeated(f, c) for (n, f), c in zip(self.formats.items(), columns, strict=True)}
        count = len(columns[0])
        inside = self.inside(units)
        if not inside.any():
            return [np.full((count, width), _OUTSIDE, dtype=np.int64) for width in self.widths]
        kept = {n: u[inside] for n, u in units.items()}
        self.last = [c[inside] for c in columns]
        expected = apply_reference(self.case, self.case.reference, codes_of(self.case.inputs, kept))
        answers = []
        for name in self.case.outputs:
            given = expected[name]
            if given.size == 0 or given.size % int(inside.sum()):
                raise ReferenceFault(f"{name}: {given.size} codes for {int(inside.sum())} inputs")
            rows = given.reshape(int(inside.sum()), -1)
            whole = np.full((count, rows.shape[1]), _OUTSIDE, dtype=np.int64)
            whole[inside] = rows
            answers.append(whole)
        self.widths = [a.shape[1] for a in answers]
        return answers

    def _find_plateaus(self, answers: list[Codes], first: NDArray[np.bool_]) -> None:
        """Find plateaus: codes that three neighbouring places of a line share."""
        same_line = ~first[1:-1] & ~first[2:] if len(first) > 2 else np.zeros(0, dtype=bool)
        for k, rows in enumerate(answers):
            level = (rows[:-2] == rows[1:-1]) & (rows[1:-1] == rows[2:]) & same_line[:, None]
            self.plateaus[k] = np.unique(rows[1:-1][level])[:4096]

    def _labels(self, answers: list[Codes]) -> Codes:
        """A row of labels for each input, one for each code of its results."""
        labels = []
        for fmt, rows, plateaus in zip(self.outputs, answers, self.plateaus, strict=True):
            labels_of_codes = label(fmt, rows)
            if len(plateaus):
                plateau = np.searchsorted(plateaus, rows).clip(max=len(plateaus) - 1)
                labels_of_codes = np.where(plateaus[plateau] == rows, (1 << 20) + plateau, labels_of_codes)
            labels.append(labels_of_codes)
        return np.concatenate(labels, axis=1)

    # ---- Thresholds ------------------------------------------------------------------------------------------

    def _selected(self, found: _Intervals, most: int) -> _Intervals:
        """The intervals whose ends differ, at most `most` random ones between the same two labels, and as many nearest
        to zero, because a periodic function has the same two labels everywhere.
        """
        found = found.at((found.before != found.after).any(axis=1))
        found = found.at(self.rng.permutation(len(found.low)))
        nearest = np.argsort(np.abs(found.low), kind="stable")
        keep = np.zeros(len(found.low), dtype=bool)
        for slot in range(found.before.shape[1]):
            u, v = found.before[:, slot], found.after[:, slot]
            key = np.where(u != v, (np.minimum(u, v) << 24) ^ np.maximum(u, v), -1)
            keep |= (_rank(key) < most) & (u != v)
            keep[nearest] |= (_rank(key[nearest]) < most) & (u != v)[nearest]
        return found.at(np.flatnonzero(keep)[:_MOST_INTERVALS])

    def _subdivided(self, found: _Intervals) -> _Intervals:
        """Subdivide intervals down to adjacent codes, keeping parts whose ends have different labels."""
        done: list[_Intervals] = []
        while len(found.low):
            adjacent = found.high - found.low <= 1
            done.append(found.at(adjacent))
            found = self._selected(self._parts(found.at(~adjacent)), 4 * self.thresholds)
        empty = found
        return _joined(done or [empty])

    def _parts(self, found: _Intervals) -> _Intervals:
        if not len(found.low):
            return found
        step = np.maximum(1, (found.high - found.low) // _PARTS)
        inner = [np.minimum(found.low + k * step, found.high) for k in range(1, _PARTS)]
        count = len(found.low)
        rows = np.tile(np.arange(count), len(inner))
        answers = self._answers(self._moved(found.at(rows), np.concatenate(inner)))
        labels = self._labels(answers).reshape(len(inner), count, -1)
        places = [found.low, *inner, found.high]
        at = [found.before, *labels, found.after]
        parts = [
            replace(found, low=places[k], high=places[k + 1], before=at[k], after=at[k + 1])
            for k in range(_PARTS)
        ]  # fmt: skip
        return _joined(parts)

    def _moved(self, found: _Intervals, place: Codes) -> list[Codes]:
        """The codes of all inputs, with the moving input at a place."""
        return [
            np.where(found.moving == k, _code(fmt, place), column)
            for k, (fmt, column) in enumerate(zip(self.singles, found.columns, strict=True))
        ]

    def _beyond(self, found: _Intervals) -> tuple[Codes, Codes]:
        """The places before the lower and after the upper ends, clamped to the lines."""
        first, last = (np.array(e, dtype=np.int64)[found.moving] for e in zip(*map(ends, self.singles), strict=True))
        return np.maximum(found.low, first + 1) - 1, np.minimum(found.high, last - 1) + 1

    # ---- Inputs of each label ------------------------------------------------------------------------------------

    def _filled(self, edges: _Intervals, columns: list[Codes], labels: Codes) -> list[Codes]:
        """A few inputs for every label: from the lines, and from between the thresholds of one line."""
        still = [np.where(edges.moving == k, 0, column) for k, column in enumerate(edges.columns)]
        order = np.lexsort((edges.low, *still, edges.moving))
        e = edges.at(order)
        if len(e.low) > 1:
            room = (e.moving[:-1] == e.moving[1:]) & (e.low[1:] > e.high[:-1])
            for k, column in enumerate(e.columns):
                room &= (column[:-1] == column[1:]) | (e.moving[:-1] == k)
            between = e.at(np.flatnonzero(room))
            width = e.low[1:][room] - between.high
            count = self.inputs
            rows = np.tile(np.arange(len(width)), count)
            part = np.repeat(np.arange(count), len(width))
            within = self.rng.random(len(rows)) * (width[rows] / count)
            offset = (width[rows] // count) * part + within.astype(np.int64)
            more = self._moved(between.at(rows), between.high[rows] + np.minimum(offset, width[rows]))
            if len(rows):
                columns = [np.concatenate([c, m]) for c, m in zip(columns, more, strict=True)]
                labels = np.concatenate([labels, self._labels(self._answers(more))])
        # Inputs between thresholds are rarer, so they are taken first.
        keep = np.zeros(len(labels), dtype=bool)
        order = np.arange(len(labels))[::-1]
        for slot in range(labels.shape[1]):
            keep[order] |= _rank(labels[order, slot]) < self.inputs
        return [c[keep] for c in columns]


def label(fmt: Format, codes: Codes) -> Codes:
    """The label of a code: the code itself in a narrow format and at the end of a class, else class, sign and
    binade."""
    if fmt.code_bits <= 8:
        return codes
    top = 1 << 18
    if not fmt.is_float:
        value = np.where(sign(fmt, codes) == 1, ~codes, codes) & fmt.magnitude_mask if fmt.has_sign else codes
        labels = sign(fmt, codes) * 128 + _length(value)
        return np.where(codes == _OUTSIDE, top, labels) if fmt.code_bits < 64 else labels
    size = magnitude(fmt, codes)
    normal = size >> fmt.mantissa_bits
    binade = np.where(normal > 0, normal + fmt.mantissa_bits, _length(size))
    labels = binade * 2 + sign(fmt, codes)
    single = (fmt.min_normal, fmt.min_normal - fmt.min_positive, fmt.max_finite, fmt.infinity_code, fmt.min_positive)
    for k, end in enumerate(single):
        if end is not None:
            labels = np.where(size == end >> fmt.ignored_bits, (1 << 17) + 2 * k + sign(fmt, codes), labels)
    beyond = (fmt.infinity_code or fmt.max_finite) >> fmt.ignored_bits
    labels = np.where(size > beyond, 1 << 16, labels)
    return np.where(codes == _OUTSIDE, top, labels) if fmt.code_bits < 64 else labels


def _length(values: Codes) -> Codes:
    """The bit length of 64-bit patterns. float64 holds either half, and would round the whole up to another length."""
    upper, lower = values >> 32 & 0xFFFFFFFF, values & 0xFFFFFFFF
    length: Codes = np.where(upper > 0, 32 + np.frexp(upper)[1], np.frexp(lower)[1]).astype(np.int64)
    return length


def _rank(keys: Codes) -> Codes:
    """For each key, how many equal keys come before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.zeros(0, dtype=bool)
    start = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0)) if len(keys) else order
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - start
    return rank


def _joined(parts: list[_Intervals]) -> _Intervals:
    return _Intervals(
        [np.concatenate([p.columns[k] for p in parts]) for k in range(len(parts[0].columns))],
        *(np.concatenate([getattr(p, n) for p in parts]) for n in ("moving", "low", "high", "before", "after")),
    )


def _code(fmt: Format, places: Codes) -> Codes:
    codes: Codes = from_ordinal(fmt, places)
    return codes
