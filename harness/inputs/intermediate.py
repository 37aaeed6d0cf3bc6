"""Inputs at the boundaries of roundings inside a reference: a product that is rounded and then converted, for example.

A wrong rounding of an intermediate result shows only where the steps after it tell two neighbouring values apart. With
random bits added after a product, that is one input in 2^32. So each rounding step of the reference is observed
(`ptxdiff.references.rounding.observing`) and solved in two directions. Forwards: its result is replaced, and the
interval in which the output changes is halved down to two neighbouring codes. Backwards: one input is moved until the
step gives these codes. Kept are inputs on which another rounding of the step changes the output, those on both sides of
the boundary, and those where a later input, such as random bits, decides.

References that round by other means than `references` (torch's own types, numpy) give no such inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_units, ends, in_slots, repeated
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.case import Case
from ptxdiff.model.reference import ReferenceFault, apply_reference, runs_on_host
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.references.formats import BF16, F16, F32, Format, from_ordinal, ordinal
from ptxdiff.references.rounding import ROUNDINGS, Rounded, Rounding, observing

Codes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Rng = np.random.Generator
Inside = Callable[[Mapping[str, NDArray[np.generic]]], Mask]

# By effort: rows of a search, and rows kept for each other rounding and for each side of a boundary.
_ROWS = {"quick": 256, "full": 2048, "exhaustive": 2048}
_KEPT = {"quick": 12, "full": 96, "exhaustive": 96}

_CHOICE = 8
"""Rows among which one is chosen: one whose output depends on the step, if there is one."""
_FEWER = 64
_OTHERS = 256
"""Where rows have a rank: of one in FEWER, OTHERS rows are made with other significands."""
_STEPS = 4
"""Roundings of one reference that are solved, the first ones."""
_REFERENCES = 4
_THROUGH = (F32, F16, BF16)
"""Formats by way of which a step may be rounded twice."""


@dataclass(frozen=True)
class _Seen:
    """One evaluation: output codes by row, the codes of each rounding by row (None if they do not belong to rows), and
    the rows that lie within `where=`."""

    outputs: Codes
    steps: list[tuple[Format, Codes | None]]
    inside: Mask


def intermediate_inputs(
    case: Case,
    references: Sequence[Reference],
    formats: Mapping[str, Format],
    effort: str,
    rng: Rng,
    inside: Inside,
    more: Callable[[], Sequence[Codes]],
) -> list[Codes]:
    """Storage units of every input; none if no reference rounds an intermediate result.

    inside: which rows of storage units lie within `where=`. more: makes codes by input, of rows that the search starts
    from besides random ones, such as products that tie; none if it gives nothing.
    """
    distinct = list({id(r): r for given in references for r in alternatives(given)}.values())
    chosen = [r for r in distinct if not runs_on_host(r) and not hasattr(r, "made_of")][:_REFERENCES]
    searches = (StepSearch(case, r, formats, rng, inside, _ROWS[effort], _KEPT[effort]) for r in chosen)
    return units_found(searches, formats, more)


def units_found(
    searches: Iterable[StepSearch], formats: Mapping[str, Format], more: Callable[[], Sequence[Codes]]
) -> list[Codes]:
    """Storage units of every input, of what all searches find. One begins when the one before has ended."""
    rows: list[list[Codes]] = []
    for search in searches:
        try:
            rows += search.found(more)
        except ReferenceFault:  # other sets show where it raises
            continue
    columns = [np.concatenate([r[k] for r in rows]) if rows else np.zeros(0, np.int64) for k in range(len(formats))]
    return [in_slots(f, c) for f, c in zip(formats.values(), columns, strict=True)]


class StepSearch:
    """The search for one reference. kept: rows of each kind.

    accepted: references of which each gives results that pass. If there are some, only rows are kept on which another
    rounding gives what none of them does. rank: three numbers for each row of codes by input: preferred are rows with a
    low first one, and by turns rows with a low sum. The second is of the result of a step, the third of its operands.
    """

    def __init__(
        self,
        case: Case,
        reference: Reference,
        formats: Mapping[str, Format],
        rng: Rng,
        inside: Inside,
        rows: int,
        kept: int,
        accepted: Sequence[Reference] = (),
        rank: Callable[[list[Codes]], tuple[NDArray[np.float64], ...]] | None = None,
    ) -> None:
        self.case, self.reference, self.formats, self.rng, self.inside = case, reference, formats, rng, inside
        self.rows, self.kept, self.accepted, self.rank = rows, kept, accepted, rank
        self.singles = [f.single for f in formats.values()]

    def found(self, more: Callable[[], Sequence[Codes]]) -> list[list[Codes]]:
        """Columns of codes of each kind of row."""
        few = [_ordinary(f, 16, self.rng) for f in self.singles]
        if not self._intermediate(self._seen(few)):
            return []
        base = self._base(more())
        seen = self._seen(base)
        base = [c[seen.inside] for c in base]
        if not len(base[0]):
            return []
        seen = self._seen(base)
        columns = []
        for k in self._intermediate(seen)[:_STEPS]:
            if self._rounds(base, k):
                columns += self._of_step([c[self._telling(base, seen, k)] for c in base], k)
        return columns

    def _base(self, more: Sequence[Codes]) -> list[Codes]:
        """Rows to choose from: half from `more`, the others of plain numbers and random bits."""
        given = len(more[0]) if more else 0
        taken = self.rng.integers(0, given, _CHOICE * self.rows // 2 if given else 0)
        count = _CHOICE * self.rows - len(taken)
        return [
            np.concatenate([more[k][taken], _ordinary(f, count, self.rng)]) if given else _ordinary(f, count, self.rng)
            for k, f in enumerate(self.singles)
        ]

    # ---- The reference, observed -----------------------------------------------------------------------------

    def _seen(
        self,
        columns: list[Codes],
        at: int = -1,
        other: Callable[..., Any] | None = None,
        reference: Reference | None = None,
    ) -> _Seen:
        """Evaluate the reference, or another one. other: replaces the result of rounding number `at`: of its format,
        its mode and a function that rounds, it makes codes. Rows outside of `where=` get the results of another row."""
        units = {n: repeated(f, c) for (n, f), c in zip(self.formats.items(), columns, strict=True)}
        count = len(columns[0])
        inside = self.inside(units)
        if not inside.any():
            return _Seen(np.zeros((count, 1), dtype=np.int64), [], inside)
        first = int(np.argmax(inside))
        units = {n: np.where(inside, u, u[first]) for n, u in units.items()}
        steps: list[tuple[Format, Codes | None]] = []

        def observer(fmt: Format, rounding: Rounding, rounded: Rounded) -> Any:
            result = rounded(fmt, rounding)
            if len(steps) == at and other is not None:
                result = other(fmt, rounding, rounded, result)
            whole = result.dim() and result.numel() and result.shape[0] % count == 0
            steps.append((fmt, result.numpy().reshape(count, -1).copy() if whole else None))
            return result

        with observing(observer):
            answer = apply_reference(self.case, reference or self.reference, codes_of(self.case.inputs, units))
        rows = [c.reshape(count, -1) for c in answer.values() if c.size and c.size % count == 0]
        if not rows:  # outputs of other sizes, such as a count of executions
            return _Seen(np.zeros((count, 1), dtype=np.int64), [], inside)
        return _Seen(np.concatenate(rows, axis=1), steps, inside)

    def _intermediate(self, seen: _Seen) -> list[int]:
        """The numbers of the roundings whose results are not themselves outputs."""
        steps = []
        for k, (fmt, codes) in enumerate(seen.steps):
            if codes is None or not (fmt.is_float and fmt.has_sign and fmt.code_bits > 8):
                continue
            width = codes.shape[1]
            places = range(seen.outputs.shape[1] - width + 1)
            if not any(np.array_equal(seen.outputs[:, p : p + width], codes) for p in places):
                steps.append(k)
        return steps

    def _rounds(self, base: list[Codes], k: int) -> bool:
        """Whether another mode changes a result of rounding number k: it is not exact on all rows."""
        changed = False

        def other(fmt: Format, rounding: Rounding, rounded: Rounded, result: Any) -> Any:
            nonlocal changed
            changed = bool((rounded(fmt, "rz" if rounding != "rz" else "rn") != result).any())
            return result

        self._seen(base, k, other)
        return changed

    # ---- One step --------------------------------------------------------------------------------------------

    def _telling(self, base: list[Codes], seen: _Seen, k: int) -> Codes:
        """Rows for the search: those whose output changes with the result of rounding k, as far as there are."""
        fmt, codes = seen.steps[k]
        assert codes is not None
        rank = self.rng.random(len(codes))
        for way in (-1 << fmt.mantissa_bits, 1 << fmt.mantissa_bits):
            moved = np.clip(ordinal(fmt, codes) + way, -ordinal(fmt, fmt.max_finite), ordinal(fmt, fmt.max_finite))
            rank -= (self._forced(base, k, fmt, moved).outputs != seen.outputs).any(axis=1)
        return np.argsort(rank, kind="stable")[: self.rows]

    def _of_step(self, base: list[Codes], k: int) -> list[list[Codes]]:
        every, targets = self._candidates(base, k)
        if self.rank is not None:
            _, results, _ = self.rank(every)
            best = np.argsort(results - 4.0 * self._telling_roundings(every, k).any(axis=0), kind="stable")
            best = best[: self.rows // _FEWER]
            others = self._others([c[best] for c in every], k)
            every = [np.concatenate([a, b]) for a, b in zip(every, others, strict=True)]
        return self._selected(every, k, targets)

    def _candidates(self, base: list[Codes], k: int) -> tuple[list[Codes], Codes]:
        """Rows on both sides of boundaries of rounding k, and the boundaries as ordinals of its results."""
        seen = self._seen(base)
        column = self._column(seen, k)
        below, above = self._boundaries(base, seen, k, column)
        solvable = np.flatnonzero(below != above)
        candidates = [base]
        if len(solvable):
            rows = [c[solvable] for c in base]
            moving = np.arange(len(solvable)) % len(self.singles)
            candidates += self._solved(rows, k, column[solvable], moving, above[solvable])
            candidates += self._later(rows, k)
        every = [np.concatenate([c[j] for c in candidates]) for j in range(len(self.singles))]
        inside = self._seen(every).inside
        return [c[inside] for c in every], np.concatenate([below[solvable], above[solvable]])

    def _column(self, seen: _Seen, k: int) -> Codes:
        """Of each row the code of rounding k that is solved."""
        _, codes = seen.steps[k]
        assert codes is not None
        return self.rng.integers(0, codes.shape[1], len(codes))

    def _others(self, best: list[Codes], k: int) -> list[Codes]:
        """Rows that reach the same boundaries of rounding k with other significands, half of them near two."""
        seen = self._seen(best)
        column = self._column(seen, k)
        below, above = self._boundaries(best, seen, k, column)
        chosen = np.repeat(np.flatnonzero(below != above), _OTHERS)
        moving = np.arange(len(chosen)) % len(self.singles)
        rows = []
        for j, (fmt, codes) in enumerate(zip(self.singles, best, strict=True)):
            given = codes[chosen]
            if fmt.is_float and fmt.code_bits > 8:
                bits = fmt.mantissa_bits + fmt.ignored_bits
                digits = self.rng.integers(0, 1 << bits, len(chosen))
                digits = np.where(self.rng.random(len(chosen)) < 0.5, digits, digits >> 3 ^ (1 << bits) - 1)
                other = given >> bits << bits | digits >> fmt.ignored_bits << fmt.ignored_bits
                given = np.where(moving == j, given, other)
            rows.append(given)
        solved = self._solved(rows, k, column[chosen], moving, above[chosen]) if len(chosen) else [best]
        every = [np.concatenate([c[j] for c in solved]) for j in range(len(self.singles))]
        inside = self._seen(every).inside
        return [c[inside] for c in every]

    def _boundaries(self, base: list[Codes], seen: _Seen, k: int, column: Codes) -> tuple[Codes, Codes]:
        """For each row two neighbouring results of rounding k, as ordinals, between which the output changes; equal
        ones where none was found."""
        fmt, codes = seen.steps[k]
        assert codes is not None
        every: Codes = np.asarray(ordinal(fmt, codes))
        mine = np.arange(codes.shape[1]) == column[:, None]
        start = every[mine]
        top = ordinal(fmt, fmt.max_finite)

        def outputs(place: Codes) -> Codes:
            return self._forced(base, k, fmt, np.where(mine, place[:, None], every)).outputs

        far = start.copy()
        ways = [d << max(0, fmt.mantissa_bits + e) for e in (-4, 0, 1, 3) for d in (-1, 1)]
        for way in self.rng.permutation(ways).tolist():
            moved = np.clip(start + way, -top, top)
            differs = (outputs(moved) != seen.outputs).any(axis=1)
            far = np.where((np.abs(start) <= top) & (far == start) & differs, moved, far)
        low, high = np.minimum(start, far), np.maximum(start, far)
        left = outputs(low)
        while ((high - low) > 1).any():
            middle = low + (high - low) // 2
            same = (outputs(middle) == left).all(axis=1)
            wide = high - low > 1
            low, high = np.where(same & wide, middle, low), np.where(~same & wide, middle, high)
        return low, high

    def _forced(self, base: list[Codes], k: int, fmt: Format, place: Codes) -> _Seen:
        """Evaluate the reference with other results of rounding k: ordinals by row and code."""
        import torch

        codes = torch.from_numpy(np.asarray(from_ordinal(fmt, place)))

        def other(fmt: Format, rounding: Rounding, rounded: Rounded, result: Any) -> Any:
            return codes.reshape(result.shape).clone()

        return self._seen(base, k, other)

    def _solved(self, rows: list[Codes], k: int, column: Codes, moving: Codes, target: Codes) -> list[list[Codes]]:
        """Rows with one input moved to where rounding k reaches `target`, and the codes beside it."""

        def reached(columns: list[Codes]) -> tuple[Codes, Mask]:
            seen = self._seen(columns)
            fmt, codes = seen.steps[k]
            assert codes is not None
            mine = np.arange(codes.shape[1]) == column[:, None]
            return np.asarray(ordinal(fmt, codes)[mine] >= target)[:, None], seen.inside

        return self._halved(rows, moving, reached)

    def _later(self, rows: list[Codes], k: int) -> list[list[Codes]]:
        """Rows with an input that rounding k does not depend on, such as random bits, moved to where the output
        changes."""
        before = self._seen(rows).steps[k][1]
        later = []
        for j, fmt in enumerate(self.singles):
            other = [_ordinary(fmt, len(c), self.rng) if n == j else c for n, c in enumerate(rows)]
            after = self._seen(other).steps[k][1]
            if before is not None and after is not None and np.array_equal(after, before):
                later.append(j)
        if not later:
            return []

        def outputs(columns: list[Codes]) -> tuple[Codes, Mask]:
            seen = self._seen(columns)
            return seen.outputs, seen.inside

        return self._halved(rows, np.array(later)[np.arange(len(rows[0])) % len(later)], outputs)

    def _halved(
        self, rows: list[Codes], moving: Codes, value: Callable[[list[Codes]], tuple[Any, Mask]]
    ) -> list[list[Codes]]:
        """Rows on both sides of a change of `value` along one input, and one code farther on each side."""
        position = np.zeros(len(moving), dtype=np.int64)
        low_end, high_end = position.copy(), position.copy()
        for j, fmt in enumerate(self.singles):
            mine = moving == j
            position[mine] = ordinal(fmt, rows[j][mine])
            low_end[mine], high_end[mine] = ends(fmt)
        before, _ = value(rows)
        far = position.copy()
        most = max(f.code_bits for f in self.singles)
        ways = [
            d << e for e in (0, 8, 16, 20, 23, 24, 26, 30, *((40, 48, 56, 60) if most > 32 else ())) for d in (-1, 1)
        ]
        for way in self.rng.permutation(ways).tolist():
            there = np.clip(position + way, low_end, high_end)
            results, inside = value(self._moved(rows, moving, there))
            far = np.where((far == position) & inside & (results != before).any(axis=1), there, far)
        low, high = np.minimum(position, far), np.maximum(position, far)
        left, _ = value(self._moved(rows, moving, low))
        while ((high - low) > 1).any():
            middle = low + (high - low) // 2
            results, inside = value(self._moved(rows, moving, middle))
            same = (results == left).all(axis=1) & inside
            wide = high - low > 1
            low, high = np.where(same & wide, middle, low), np.where(~same & wide, middle, high)
        found_rows = np.flatnonzero(high != low)
        chosen = [c[found_rows] for c in rows]
        sides = (np.maximum(low - 1, low_end), low, high, np.minimum(high + 1, high_end))
        return [self._moved(chosen, moving[found_rows], side[found_rows]) for side in sides]

    def _moved(self, rows: list[Codes], moving: Codes, place: Codes) -> list[Codes]:
        return [
            np.where(moving == j, from_ordinal(fmt, np.where(moving == j, place, 0)), column)
            for j, (fmt, column) in enumerate(zip(self.singles, rows, strict=True))
        ]

    # ---- What is kept ----------------------------------------------------------------------------------------

    def _selected(self, every: list[Codes], k: int, targets: Codes) -> list[list[Codes]]:
        """Rows on which another rounding of step k changes the output, and rows at the boundaries of later steps."""
        fmt, codes = self._seen(every).steps[k]
        assert codes is not None
        chosen = list(self._telling_roundings(every, k))
        wanted = [self.kept] * len(chosen)
        if not self.accepted:
            chosen.insert(0, np.isin(ordinal(fmt, codes), targets).any(axis=1))
            wanted.insert(0, 4 * self.kept)
        rank = None
        if self.rank is not None:  # by turns the first of each order
            far, results, operands = self.rank(every)
            orders = (far, far + results + operands)
            rank = np.minimum(*(np.argsort(np.argsort(order, kind="stable")) for order in orders))
        keep: Codes = np.zeros(0, dtype=np.int64)
        for mask, count in zip(chosen, wanted, strict=True):
            places = self.rng.permutation(np.flatnonzero(mask))
            if rank is not None:
                places = places[np.argsort(rank[places], kind="stable")]
            keep = np.concatenate([keep, places[:count]])
        keep = np.unique(keep)
        return [[c[keep] for c in every]] if len(keep) else []

    def _telling_roundings(self, every: list[Codes], k: int) -> NDArray[np.bool_]:
        """For each other rounding of step k the rows on which it gives an output that does not pass."""
        passing = [self._seen(every), *(self._seen(every, reference=r) for r in self.accepted)]
        fmt, _ = passing[0].steps[k]
        telling = []
        for other in _in_other_modes() if self.accepted else _other_roundings(fmt):
            try:
                outputs = self._seen(every, k, other).outputs
            except ReferenceFault:  # a mode that the format does not have
                continue
            telling.append(np.all([(outputs != one.outputs).any(axis=1) for one in passing], axis=0))
        return np.array(telling, dtype=np.bool_).reshape(len(telling), len(every[0]))


def _in_other_modes() -> list[Callable[..., Any]]:
    """Other results of one rounding: in each mode."""

    def in_mode(mode: Rounding) -> Callable[..., Any]:
        return lambda fmt, rounding, rounded, result: rounded(fmt, mode)

    return [in_mode(mode) for mode in ROUNDINGS]


def _other_roundings(fmt: Format) -> list[Callable[..., Any]]:
    """Other results of one rounding: in each mode, and by way of another format."""

    def by_way_of(middle: Format) -> Callable[..., Any]:
        def twice(fmt: Format, rounding: Rounding, rounded: Rounded, result: Any) -> Any:
            from ptxdiff.references import conversion

            return conversion.convert(rounded(middle, "rn"), source=middle, target=fmt, rounding=rounding)

        return twice

    return _in_other_modes() + [by_way_of(f) for f in _THROUGH if f is not fmt and f.precision != fmt.precision]


def _ordinary(fmt: Format, count: int, rng: Rng) -> Codes:
    """Codes of plain numbers, and a tenth of edges. Floats: half within 8 binades of one, the others within 32; half of
    few digits, so that products of them with others tie. Integers: of any length, and floats side by side in a word."""
    if fmt.is_float and fmt.code_bits > 8:
        codes = _floats(fmt, count, rng)
    else:
        bits = min(fmt.code_bits, 63)
        codes = rng.integers(0, 1 << bits, count) >> rng.integers(0, bits, count)
        for lane in (F32, F16, BF16):
            if lane.code_bits <= fmt.code_bits:
                lanes = [_floats(lane, count, rng) << k for k in range(0, fmt.code_bits, lane.code_bits)]
                codes = np.where(rng.random(count) < 0.25, np.bitwise_or.reduce(lanes), codes)
    return np.where(rng.random(count) < 0.1, rng.choice(edge_units(fmt.single), count), codes)


def _floats(fmt: Format, count: int, rng: Rng) -> Codes:
    shift = fmt.mantissa_bits + fmt.ignored_bits
    span = np.where(rng.random(count) < 0.5, min(8, fmt.bias - 1), min(32, fmt.bias - 1))
    digits = rng.integers(0, 1 << shift, count)
    few = np.int64(-1) << (shift - rng.integers(1, 5, count))
    digits = np.where(rng.random(count) < 0.5, digits & few, digits) >> fmt.ignored_bits << fmt.ignored_bits
    codes: Codes = fmt.bias + rng.integers(-span, span) << shift | digits
    negative = rng.integers(0, 2, count) if fmt.has_sign else np.zeros(count, np.int64)
    return codes | negative << fmt.sign_shift
