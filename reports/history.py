"""History: what changed over a folder of runs, when it changed, and how long failures have lasted.

Runs are added one at a time, oldest first, and only the facts that comparisons need are kept of each, so that thirty
whole catalogues fit in memory. Exact facts (verdicts, bits, resources, the items that ran) change if they differ from
the last run that had them. Speed changes where its history has a step.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import multiprocessing
import os
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.records import (
    Key,
    RecordError,
    RunRecords,
    collector_paused,
    read,
    read_lines,
    runs_of,
)
from ptxdiff.records.history_facts import (
    RANK,
    STRENGTH,
    BitsOf,
    Item,
    ItemFacts,
    RunFacts,
    bits_read,
    bits_stored,
    code,
    facts_read,
    facts_stored,
    night_facts,
    summary,
)
from ptxdiff.reports.forked import MOST
from ptxdiff.reports.model import STATES, State, target_order, worst_state
from ptxdiff.reports.packing import Keeper
from ptxdiff.reports.verdict import commit_in, environment_rows, overall_word, revision_in

# Options that say how a run is carried out and where its results go, but not which items run. The value of one in the
# second group may be a word of its own.
_MANNER = re.compile(r"-[qvxs]+$|-n\d|--(no-header|ptx-resume|verbose|quiet)$|--(ptx-require-gpu)$")
_MANNER_WITH_VALUE = re.compile(
    r"(-n|-p|--numprocesses|--maxprocesses|--dist|--ptx-records|--ptx-limit|--junit-?xml|--color|--durations)($|=)"
)


def selection(arguments: Sequence[str]) -> tuple[str, ...]:
    """The arguments that select items."""
    kept = []
    remaining = iter(arguments)
    for word in remaining:
        if option := _MANNER_WITH_VALUE.match(word):
            if option[2] == "":
                next(remaining, None)
        elif not _MANNER.match(word):
            kept.append(word)
    return tuple(kept)


# The best of 29 splits is chosen in each of thousands of series. With 8 standard errors, a history without changes
# shows none (tests/reports/test_steps.py measures it).
THRESHOLD = 8.0
# The newest night alone is as likely an outlier as a step, so its threshold is higher.
THRESHOLD_ALONE = 15.0
# An outlier lies more standard deviations than this beyond both its neighbours; it is moved to that distance.
OUTLIER = 2.0
# The least number of nights that define a level.
LEAST_BEFORE = 4
# No real timer repeats better than this. It keeps every change in a constant series from being significant.
LEAST_NOISE = 0.001


@dataclass(frozen=True)
class Step:
    """The level changed at `index` (the first measurement of the new level) from `before` to `after`."""

    index: int
    before: float
    after: float

    @property
    def ratio(self) -> float:
        """after / before."""
        return self.after / self.before


def steps(values: Sequence[float], smallest: float = 0.0) -> list[Step]:
    """The steps of a series of positive values, oldest first.

    smallest: relative difference below which two levels are called the same. Levels are medians.
    """
    series = np.asarray(values, dtype=np.float64)
    if len(series) <= LEAST_BEFORE or not (series > 0).all():
        return []
    logs = np.log(series)
    noise = max(_noise(logs), LEAST_NOISE)
    bounds = _splits(_without_outliers(logs, noise), 0, noise, math.log1p(smallest))
    edges = [0, *bounds, len(series)]
    levels = [float(np.median(series[a:b])) for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007
    return [Step(i, levels[n], levels[n + 1]) for n, i in enumerate(bounds)]


def _noise(logs: NDArray[np.float64]) -> float:
    """Standard deviation of one measurement, from the median of neighbouring differences."""
    return float(np.median(np.abs(np.diff(logs)))) * 1.4826 / math.sqrt(2)


def _without_outliers(logs: NDArray[np.float64], noise: float) -> NDArray[np.float64]:
    """The series with every night but the first and the newest limited to what its neighbours allow."""
    low = np.minimum(logs[:-2], logs[2:]) - OUTLIER * noise
    high = np.maximum(logs[:-2], logs[2:]) + OUTLIER * noise
    return np.concatenate([logs[:1], np.clip(logs[1:-1], low, high), logs[-1:]])


def _splits(logs: NDArray[np.float64], offset: int, noise: float, smallest: float) -> list[int]:
    n = len(logs)
    if n <= LEAST_BEFORE:
        return []
    sizes = np.arange(1, n)
    sums = np.cumsum(logs)
    before = sums[:-1] / sizes
    after = (sums[-1] - sums[:-1]) / (n - sizes)
    scores = np.abs(after - before) * np.sqrt(sizes * (n - sizes) / n) / noise
    scores[: LEAST_BEFORE - 1] = 0.0
    at = int(np.argmax(scores)) + 1
    left, right = logs[:at], logs[at:]
    if len(right) == 1 and scores[-1] < THRESHOLD_ALONE:
        return _splits(left, offset, noise, smallest)
    if scores[at - 1] < THRESHOLD or abs(float(np.median(right) - np.median(left))) <= smallest:
        return []
    return [
        *_splits(left, offset, noise, smallest),
        offset + at,
        *_splits(right, offset + at, noise, smallest),
    ]


# The words for each kind of change, in the order of the page.
KINDS = {
    "vanished": "no longer runs",
    "verdict": "verdict changed",
    "ulp": "worst error moved",
    "bits": "output bits changed",
    "speed": "speed changed",
    "spill": "register spills changed",
    "evidence": "evidence changed",
    "registers": "register count changed",
    "instructions": "instruction count changed",
    "new": "runs for the first time",
}
# Changes of these kinds that make nothing worse appear only in the history.
QUIET = frozenset({"registers", "instructions", "new"})


@dataclass(frozen=True)
class Night:
    """One run of the history."""

    run_id: str
    started: str
    revision: str
    word: str
    counts: Mapping[str, int]
    environment: Mapping[str, str]
    subject: str = ""
    """The first line of the commit's message."""
    web: str = ""
    """The address of the repository's page; "" if it has none."""

    @property
    def commit(self) -> str:
        """The address of the commit's page; "" if it has none."""
        return f"{self.web}/commit/{self.revision.rstrip('+')}" if self.web and _is_commit(self.revision) else ""


@dataclass(frozen=True)
class Change:
    """A difference between one run and an earlier one.

    night: index of the first run that has it. last: index of the last run before it that had the same item, so that the
    cause lies between these two; None if there is none. worse: True, False, or None if it is neither. ended: index of
    the run that undid it; None if it still holds.
    """

    kind: str
    night: int
    before: str
    after: str
    worse: bool | None
    case: str = ""
    variant: str = ""
    targets: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    detail: str = ""
    ended: int | None = None
    last: int | None = None

    @property
    def subject(self) -> str:
        """The case, variant or other thing that changed, in one phrase."""
        return f"{self.case}::{self.variant}" if self.variant else self.case or ", ".join(self.targets)

    @property
    def symbol(self) -> str:
        """The mark in front of it."""
        return "◆" if self.worse is None else "▲" if self.worse else "▽"

    @property
    def direction(self) -> str:
        """The mark's meaning in a word."""
        return "differs" if self.worse is None else "worse" if self.worse else "better"


@dataclass(frozen=True)
class Span:
    """The commits between the last run before a change and the first run with it.

    between: the number of runs between the two, which did not have the item.
    """

    good: Night
    bad: Night
    between: int

    @property
    def same(self) -> bool:
        """Whether both ran one commit without changes of tracked files: then the commits are not the cause."""
        return self.good.revision == self.bad.revision and not self.bad.revision.endswith("+")

    @property
    def commits(self) -> str:
        """The range as git takes it: `4f2a9c1d0b7e..9b1c2d3e4f5a`; "" if an end is no commit."""
        ends = [night.revision.rstrip("+") for night in (self.good, self.bad)]
        return "..".join(ends) if all(map(_is_commit, ends)) and ends[0] != ends[1] else ""

    @property
    def uncommitted(self) -> bool:
        """Whether one of the two ran with changes that are in no commit."""
        return self.good.revision.endswith("+") or self.bad.revision.endswith("+")

    @property
    def address(self) -> str:
        """The page that compares both commits; "" if there is none."""
        return f"{self.bad.web}/compare/{self.commits.replace('..', '...')}" if self.bad.web and self.commits else ""


def _is_commit(revision: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{7,40}\+?", revision) is not None


@dataclass
class History:
    """The history of all runs together.

    since: for each item that fails in the newest run, the index of the run since which it has failed. series: median
    device time in seconds, worst error in ulp, and registers; one value for each night, None if not measured.
    """

    nights: list[Night] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    since: dict[Item, int] = field(default_factory=dict)
    series: dict[tuple[str, str, str, str], list[float | None]] = field(default_factory=dict)
    states: dict[str, list[str]] = field(default_factory=dict)
    """For each case its worst state in each night; "absent" where it has no result."""

    def trend(self, case: str) -> list[tuple[State, int, int]]:
        """The states of a case over all nights, as stretches: state, first and last night."""
        states = self.states.get(case, [])
        states = [*states, *["absent"] * (len(self.nights) - len(states))]
        stretches: list[tuple[State, int, int]] = []
        for n, name in enumerate(states):
            if stretches and stretches[-1][0].name == name:
                stretches[-1] = (stretches[-1][0], stretches[-1][1], n)
            else:
                stretches.append((STATES[name], n, n))
        return stretches

    def span(self, change: Change) -> Span | None:
        """Where the cause of a change lies; None if no earlier run had the item, or if commits are unknown."""
        if change.last is None:
            return None
        good, bad = self.nights[change.last], self.nights[change.night]
        if not (good.revision and bad.revision):
            return None
        return Span(good, bad, change.night - change.last - 1)

    @property
    def standing(self) -> list[Change]:
        """The changes that still hold in the newest run and are not `QUIET`, the worst first."""
        holding = [
            c for c in self.changes if c.ended is None and (c.worse or c.kind not in QUIET) and c.worse is not False
        ]
        order = list(KINDS)
        return sorted(holding, key=lambda c: (not c.worse, order.index(c.kind), -c.night))

    def environment_changes(self, night: int) -> list[str]:
        """The facts on the machine and its software that differ from those of the run before."""
        if night == 0:
            return []
        before, after = self.nights[night - 1].environment, self.nights[night].environment
        names = [n for n in after if n not in ("revision", "commit") and before.get(n) != after[n]]
        return [f"{n}: {before.get(n, 'unknown')} → {after[n]}" for n in names]


class HistoryBuilder:
    """Adds runs, oldest first; `finish` returns the history. The newest run is kept whole in `newest`."""

    def __init__(self) -> None:
        self.newest: RunRecords | None = None
        self._history = History()
        self._items: dict[Item, ItemFacts] = {}
        self._known: dict[Item, list[RunFacts]] = {}  # the nights whose bits of an item were new
        self._seen: set[Item] = set()
        self._last: dict[Item, int] = {}  # the newest run that had it
        self._ran: dict[tuple[str, ...], set[Item]] = {}  # in the last run with the same selection
        self._asked: tuple[str, ...] = ()
        self._narrowed: list[Change] = []  # of the newest run alone: earlier runs may have had other selections
        self._found: list[Change] = []
        self._noise: dict[tuple[str, str, str, str], float] = {}

    def add(self, records: RunRecords) -> None:
        """Add the next run."""
        self.add_night(night_facts([records.run, *records.results, *records.timings, *filter(None, [records.end])]))
        self.newest = records

    def add_night(self, added: RunFacts) -> None:
        """Add the facts of the next run."""
        night = len(self._history.nights)
        facts = added.items
        self._narrowed = []
        asked = selection(added.arguments)
        moved = self._moved_bits(added)
        self._note_states(facts, night)
        if night:
            self._compare(night, facts, moved, asked, complete=added.ended)
        for item, fact in facts.items():
            if RANK[fact.state] <= RANK["fail"]:
                self._history.since.setdefault(item, night)
            else:
                self._history.since.pop(item, None)
        self._items.update(facts)
        self._last.update(dict.fromkeys(facts, night))
        self._seen = set(facts)
        self._ran[asked] = {item for item, f in facts.items() if f.state != "not run"}
        self._asked = asked
        self._trend(night, added)
        env = dict(environment_rows(added.environment))
        word = overall_word(added.counts, ended=added.ended)
        self._history.nights.append(
            Night(
                added.run_id,
                added.started,
                revision_in(added.environment),
                word,
                added.counts,
                env,
                *commit_in(added.environment),
            )
        )

    def finish(self) -> History:
        """The history of all runs added."""
        history = self._history
        history.changes = sorted(
            [*_endings(_merged(self._found)), *self._speed_changes(), *self._narrowed],
            key=lambda c: (-c.night, list(KINDS).index(c.kind)),
        )
        history.since = {item: night for item, night in history.since.items() if item in self._seen}
        return history

    def _note_states(self, facts: Mapping[Item, ItemFacts], night: int) -> None:
        worst: dict[str, str] = {}
        for (case, *_), fact in facts.items():
            worst[case] = worst_state((fact.state, worst.get(case, "absent")))
        for case, state in worst.items():
            states = self._history.states.setdefault(case, [])
            states.extend(["absent"] * (night - len(states)))
            states.append(state)

    def _moved_bits(self, added: RunFacts) -> dict[Item, list[tuple[BitsOf, int]]]:
        """Results whose bits differ from the last run on the same inputs, each with the first block that differs."""
        moved: dict[Item, list[tuple[BitsOf, int]]] = defaultdict(list)
        for item in added.digests:
            earlier = self._known.setdefault(item, [])
            if earlier and earlier[-1].digests[item] == added.digests[item]:
                continue
            last: dict[Key, BitsOf] = {}
            for night in earlier:
                last.update((bits[0], bits) for bits in night.load().get(item, ()))
            earlier.append(added)
            if not last:
                continue
            for bits in added.load().get(item, ()):
                key, inputs, firsts, now = bits
                was = last.get(key)
                if was is not None and was[1] == inputs and was[3] != now:
                    pairs = zip(was[3], now, firsts, strict=False)
                    moved[item].append((bits, next((first for a, b, first in pairs if a != b), 0)))
        return moved

    def _compare(
        self,
        night: int,
        facts: Mapping[Item, ItemFacts],
        moved: Mapping[Item, list[tuple[BitsOf, int]]],
        asked: tuple[str, ...],
        *,
        complete: bool,
    ) -> None:
        for item, now in facts.items():
            before = self._items.get(item)
            if before is not None:
                for kind, was, becomes, worse in _differences(before, now):
                    self._note(kind, night, item, was, becomes, worse)
                if item in moved and before.ulp == now.ulp:
                    self._note("bits", night, item, "", "", None, _describe_moved(moved[item]))
        ran = {item for item, f in facts.items() if f.state != "not run"}
        if complete:  # items may be missing from a run that was cut short
            self._found += self._vanished(night, ran, asked)
        self._found += _presence("new", night, ran - self._items.keys(), ran & self._items.keys())
        back = {item for item in ran & self._items.keys() if item not in self._seen}
        self._found += [replace(c, detail="back") for c in _presence("new", night, back, ran - back)]

    def _vanished(self, night: int, ran: set[Item], asked: tuple[str, ...]) -> Iterable[Change]:
        """Items that ran with the same selection before and are missing now. If the selection differs, one change."""
        if asked in self._ran:
            gone = self._ran[asked] - ran
            return [replace(c, last=self._newest_with(gone, c)) for c in _presence("vanished", night, gone, ran)]
        gone = self._ran[self._asked] - ran
        narrowing = f"{len({i[:2] for i in gone})} variants: this run was asked for {' '.join(asked) or 'everything'}"
        narrowed = Change("vanished", night, "ran", "not asked for", None, targets=_targets(gone), detail=narrowing)
        self._narrowed = [narrowed] if gone else []
        return []

    def _newest_with(self, items: Iterable[Item], change: Change) -> int | None:
        """Of the items of a change, each with the newest run that had it, the oldest of these runs."""
        mine = (
            i for i in items if change.case in ("", i[0]) and change.variant in ("", i[1]) and i[2] in change.targets
        )
        return min((self._last[i] for i in mine if i in self._last), default=None)

    def _note(
        self, kind: str, night: int, item: Item, before: str, after: str, worse: bool | None, detail: str = ""
    ) -> None:
        case, variant, target, backend = item
        change = Change(kind, night, before, after, worse, case, variant, (target,), (backend,), detail)
        self._found.append(replace(change, last=self._last[item]))

    def _trend(self, night: int, added: RunFacts) -> None:
        series = self._history.series

        def put(key: tuple[str, str, str, str], value: float) -> None:
            values = series.setdefault(key, [])
            values.extend([None] * (night + 1 - len(values)))
            values[night] = max(value, values[night] or 0.0)

        for (case, variant, target, _), fact in added.items.items():
            if fact.ulp is not None:
                put((case, variant, target, "ulp"), fact.ulp)
            if fact.registers:
                put((case, variant, target, "registers"), fact.registers)
        for key, median, noise in added.timings:
            put(key, median)
            self._noise[key] = max(noise, self._noise.get(key, 0.0))

    def _speed_changes(self) -> Iterator[Change]:
        grouped: dict[tuple[Any, ...], list[tuple[str, float]]] = defaultdict(list)
        last: dict[tuple[Any, ...], int] = {}
        night_count = len(self._history.nights)
        for key, values in self._history.series.items():
            case, variant, target, metric = key
            if not metric.startswith("time "):
                continue
            measured = [(n, v) for n, v in enumerate(values) if v is not None]
            for step in steps([v for _, v in measured], self._noise.get(key, 0.0)):
                where = (case, variant, target, measured[step.index][0], step.ratio > 1)
                last[where] = min(measured[step.index - 1][0], last.get(where, night_count))
                grouped[where].append((metric.removeprefix("time "), step.ratio))
                if len(grouped[where]) == 1:
                    grouped[where][0] = (
                        f"{grouped[where][0][0]}: {seconds(step.before)} → {seconds(step.after)}",
                        step.ratio,
                    )
        for (case, variant, target, night, slower), sizes in grouped.items():
            ratios = [r for _, r in sizes]
            low, high = (f"{(r - 1) * 100:+.1f}%" for r in (min(ratios), max(ratios)))
            after = low if low == high else f"{low} to {high}"
            detail = f"{sizes[0][0]}" + (f" and {len(sizes) - 1} more sizes" if len(sizes) > 1 else "")
            change = Change("speed", night, "", after, slower, case, variant, (target,), ("gpu",), detail)
            yield replace(change, last=last[case, variant, target, night, slower])


def _differences(before: ItemFacts, now: ItemFacts) -> Iterator[tuple[str, str, str, bool | None]]:
    if before.state != now.state:
        yield "verdict", before.state, now.state, RANK[now.state] < RANK[before.state] or now.state == "not run"
    elif before.evidence != now.evidence:
        weaker = STRENGTH.get(now.evidence, 0) < STRENGTH.get(before.evidence, 0)
        yield "evidence", before.evidence, now.evidence, weaker
    if before.ulp != now.ulp and before.ulp is not None and now.ulp is not None:
        yield "ulp", f"{before.ulp} ulp", f"{now.ulp} ulp", now.ulp > before.ulp
    if before.spills != now.spills:
        yield "spill", f"{before.spills} bytes", f"{now.spills} bytes", now.spills > before.spills
    for name in ("registers", "instructions"):
        was, becomes = getattr(before, name), getattr(now, name)
        if was != becomes and was and becomes:
            yield name, str(was), str(becomes), None


def _describe_moved(moved: Sequence[tuple[BitsOf, int]]) -> str:
    (key, _, firsts, _), first = min(moved, key=lambda m: (m[1], m[0][0].pack))
    where = f"first in the block from input {first:,}" if len(firsts) > 1 else "in its only block"
    return f"{len(moved)} of its results, {where} (pack {key.pack}, {key.input_set or 'inputs'})"


def _presence(kind: str, night: int, items: set[Item], others: set[Item]) -> list[Change]:
    """Items that appeared or disappeared; if a whole target, case, backend or variant did, that is one change."""
    worse = True if kind == "vanished" else None
    before, after = ("ran", "gone") if kind == "vanished" else ("", "runs")
    changes: list[Change] = []
    rest = set(items)
    for target in sorted({i[2] for i in items} - {i[2] for i in others}, key=target_order):
        gone = {i for i in rest if i[2] == target}
        cases = len({(i[0], i[1]) for i in gone})
        backends = tuple(sorted({i[3] for i in gone}))
        changes.append(Change(kind, night, before, after, worse, "", "", (target,), backends, f"all {cases} variants"))
        rest -= gone
    for case in sorted({i[0] for i in rest} - {i[0] for i in others}):
        gone = {i for i in rest if i[0] == case}
        changes.append(Change(kind, night, before, after, worse, case, "", _targets(gone), detail="the whole case"))
        rest -= gone
    for backend in sorted({i[3] for i in rest} - {i[3] for i in others}):
        gone = {i for i in rest if i[3] == backend}
        cases = len({(i[0], i[1]) for i in gone})
        text = f"the whole backend, {cases} variants"
        changes.append(Change(kind, night, before, after, worse, "", "", _targets(gone), (backend,), text))
        rest -= gone
    return changes + [Change(kind, night, before, after, worse, c, v, (t,), (b,)) for c, v, t, b in sorted(rest)]


def _targets(items: Iterable[Item]) -> tuple[str, ...]:
    return tuple(sorted({i[2] for i in items}, key=target_order))


def _merged(changes: Iterable[Change]) -> list[Change]:
    """Changes that differ only in target and backend, as one."""
    groups: dict[tuple[object, ...], list[Change]] = defaultdict(list)
    for c in changes:
        groups[(c.kind, c.night, c.case, c.variant, c.before, c.after, c.case or c.targets)].append(c)
    return [
        replace(
            members[0],
            targets=tuple(sorted({t for c in members for t in c.targets}, key=target_order)),
            backends=tuple(sorted({b for c in members for b in c.backends})),
            last=min((c.last for c in members if c.last is not None), default=None),
        )
        for members in groups.values()
    ]


def _endings(changes: Sequence[Change]) -> Iterator[Change]:
    """The same changes; those that a later change undoes are marked as ended."""
    undoing = {"vanished": "new"}
    for c in changes:
        ended = next(
            (
                later.night
                for later in changes
                if later.night > c.night
                and later.kind == undoing.get(c.kind, c.kind)
                and (later.case, later.variant) == (c.case, c.variant)
                and set(c.targets) <= set(later.targets)
                and (c.kind == "vanished" or (later.after == c.before and c.before != ""))
            ),
            None,
        )
        yield replace(c, ended=ended) if ended is not None else c


def seconds(value: float) -> str:
    """A duration with three significant digits and a fitting unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def history(runs: Iterable[RunRecords | RunFacts]) -> tuple[History, RunRecords]:
    """Add runs in the order in which they started; returns the history and the newest run, which must be a whole one.

    A sequence is sorted first; any other iterable must be in order. Raises ValueError if there is no run.
    """
    recorder = HistoryBuilder()
    with collector_paused():
        for run in sorted(runs, key=_started) if isinstance(runs, Sequence) else runs:
            if isinstance(run, RunFacts):
                recorder.add_night(run)
            else:
                recorder.add(run)
    if recorder.newest is None:
        raise ValueError("no run to report on")
    return recorder.finish(), recorder.newest


def _started(run: RunRecords | RunFacts) -> str:
    return run.started if isinstance(run, RunFacts) else run.run.started


def folder(path: Path, kept: Keeper | None = None) -> Iterator[RunRecords | RunFacts]:
    """The runs of a folder, oldest first, read one at a time: the newest whole, of the others the facts alone.

    kept: stores the facts of each run for the next report, under the digest of its file. Raises RecordError if there is
    no run.
    """
    *earlier, newest = runs_of(path)
    nights = [_Stored(file, kept) for file in earlier]
    # Here, not in the generator: its caller may start threads, for a progress bar, and then no process may be forked.
    pool = _begun([n for n in nights if n.facts is None])
    return _read(nights, newest, pool)


def _read(nights: Sequence[_Stored], newest: Path, pool: ProcessPoolExecutor | None) -> Iterator[RunRecords | RunFacts]:
    try:
        for night in nights:
            yield night.read()
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    yield read(newest)


# The facts of a night, from its summary, or kept between reports ------------------------------------------------------


FORKED_FROM = 1 << 20
"""The bytes of files from which on it pays to read them in several processes."""


class _Stored:
    """The facts of the run in one file: those of its summary, or of an earlier report on the same bytes, else read.

    facts, bits: as bytes; None until they are known. coming: both, from the process that reads the file.
    """

    def __init__(self, file: Path, kept: Keeper | None) -> None:
        self.file = file
        self.coming: Future[tuple[bytes, bytes]] | None = None
        self._kept = kept
        self.bits: bytes | None = None
        try:
            self.facts = summary(file)
        except OSError as e:
            raise RecordError(f"{file}: {e.strerror or e}") from e
        if self.facts is None and kept is not None:
            self.facts = kept.get(b"night", code(), self._digest)

    @functools.cached_property
    def _digest(self) -> bytes:
        with self.file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()

    def read(self) -> RunFacts:
        """The facts. Raises RecordError."""
        facts = self.facts or self._make()[0]
        return facts_read(facts, functools.cache(self._load))

    def _make(self) -> tuple[bytes, bytes]:
        try:
            facts, bits = _made(self.file) if self.coming is None else self.coming.result()
        except BrokenProcessPool:  # a process was ended, for example because memory is short
            facts, bits = _made(self.file)
        if self._kept is not None:
            self._kept.put(bits, b"bits", code(), self._digest)
            self._kept.put(facts, b"night", code(), self._digest)
        self.bits = bits
        return facts, bits

    def _load(self) -> Mapping[Item, Sequence[BitsOf]]:
        bits = self.bits
        if bits is None and self._kept is not None:
            bits = self._kept.get(b"bits", code(), self._digest)
        return bits_read(bits or self._make()[1])


def _made(file: Path) -> tuple[bytes, bytes]:
    """The facts and the bits of the run in a file, from its lines."""
    with collector_paused():  # another process knows nothing of its caller's pause
        facts = night_facts(read_lines(file))
        return facts_stored(facts), bits_stored(facts)


def _begun(nights: Sequence[_Stored]) -> ProcessPoolExecutor | None:
    """Processes that read these files; None if this process reads them, one by one.

    They are forks, as for the pieces of a page (`ptxdiff.reports.forked`): a script that writes a report needs no guard
    around its main part. A process with threads is not forked.
    """
    count = min(MOST, len(os.sched_getaffinity(0)), len(nights))
    if count < 2 or threading.active_count() > 1 or sum(n.file.stat().st_size for n in nights) < FORKED_FROM:
        return None
    pool = ProcessPoolExecutor(count, multiprocessing.get_context("fork"))
    with contextlib.suppress(BrokenProcessPool):  # a process was ended already: this one reads the other files
        for night in nights:
            night.coming = pool.submit(_made, night.file)
    return pool
