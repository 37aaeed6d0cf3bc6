"""Rounds of launches in random order, until every median is known well enough or the budget is used up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ptxdiff.records.statistics import Median, median, readings

PRECISION = 0.01  # a median whose 95% interval is wider than this, relative to the median, is reported as noisy
AIM = PRECISION / 2  # the width at which rounds end: the ratio of two medians is then known to a little more than 1%
LEAST = 32  # rounds before intervals are computed
BATCH = 16  # rounds at a time
SPARSER = 1.25  # growth of the number of rounds between two computations of the intervals, which take time too
WARM_UP = 3  # rounds that are not counted

# Launches beside the variants. No variant can have such a name.
TWIN = "/twin"  # the first variant again: the A/A run
COPY = "/copy"  # a device copy of as many bytes: the floor
EMPTY = "/empty"  # a kernel that does nothing: the least that a launch takes

TimedCall = Callable[[], Any]


@dataclass(frozen=True)
class Restoring:
    """A launch that changes its inputs. restore: puts them back; it is called before the launch and not timed."""

    launch: TimedCall
    restore: TimedCall

    def __call__(self) -> Any:
        """Launch."""
        return self.launch()


class Timer(Protocol):
    """Measures how long launches take."""

    @property
    def name(self) -> str:
        """The timer's name; times by different timers are not compared."""

    def times(self, launches: Sequence[TimedCall]) -> list[float]:
        """Seconds of device time of each launch, the L2 emptied before it."""


@dataclass
class Samples:
    """The samples of the rounds: for each arm the seconds of each launch, in the order taken."""

    seconds: dict[str, list[float]]
    wide: dict[str, float] = field(default_factory=dict)
    """The arms that stayed noisy, with the relative width of their interval."""

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(next(iter(self.seconds.values()), []))


def measure(
    arms: Mapping[str, TimedCall],
    timer: Timer,
    *,
    seed: int,
    budget: float,
    least: int = LEAST,
    after_batch: Callable[[], None] = lambda: None,
    judged: Sequence[str] | None = None,
) -> Samples:
    """Launch all arms once in each round, each round in another order drawn from `seed`.

    budget: seconds of wall time after which no further batch of rounds starts. least: rounds. judged: the arms whose
    interval must become narrow, by default all. after_batch: called while the device is still warm.
    """
    rng = np.random.default_rng(seed)
    samples = Samples({name: [] for name in arms})
    _times(timer, [arm for arm in arms.values() for _ in range(WARM_UP)])
    started = time.perf_counter()
    due: float = least
    while True:
        order = [name for _ in range(BATCH) for name in _permuted(list(arms), rng)]
        for name, seconds in zip(order, _times(timer, [arms[n] for n in order]), strict=True):
            samples.seconds[name].append(seconds)
        after_batch()
        over = samples.rounds >= least and time.perf_counter() - started >= budget
        if samples.rounds < due and not over:
            continue
        due = samples.rounds * SPARSER
        known = {n: median(samples.seconds[n]) for n in (judged or arms)}
        if over or all(_settled(k, samples.seconds[n]) for n, k in known.items()):
            samples.wide = {n: k.width for n, k in known.items() if k.width > PRECISION}
            return samples


def _times(timer: Timer, launches: Sequence[TimedCall]) -> list[float]:
    """The timer's seconds of each launch. A restore is passed as a launch of its own, whose time is left out."""
    calls: list[tuple[TimedCall, bool]] = []
    for arm in launches:
        if isinstance(arm, Restoring):
            calls.append((arm.restore, False))
        calls.append((arm, True))
    found = timer.times([call for call, _ in calls])
    return [seconds for seconds, (_, counted) in zip(found, calls, strict=True) if counted]


def _permuted(names: list[str], rng: np.random.Generator) -> list[str]:
    return [names[k] for k in rng.permutation(len(names))]


def _settled(known: Median, seconds: Sequence[float]) -> bool:
    """Whether more rounds are useless: the interval is as narrow as the clock allows."""
    return known.width <= AIM or bounded_by_clock(known, seconds)


def bounded_by_clock(known: Median, seconds: Sequence[float]) -> bool:
    """Whether the clock's step alone explains the width of an interval."""
    return 0 < known.high - known.low <= 2.002 * readings(seconds)[1]
