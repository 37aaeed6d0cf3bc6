"""Rounds of launches in random order, until every median is known well enough or the budget ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from harness.speed import median, step

PRECISION = 0.01  # the width of a median's 95% interval, relative to it, at which it is known well enough
LEAST = 32  # rounds before an interval is believed
BATCH = 16  # rounds between two looks at the intervals
WARM_UP = 3  # rounds that are not counted

# What is launched beside the variants; no variant can have such a name.
TWIN = "/twin"  # the first variant once more: the A/A run
COPY = "/copy"  # a device copy of as many bytes: the floor
EMPTY = "/empty"  # a kernel that does nothing: what a launch takes at least

Launch = Callable[[], Any]


class Timer(Protocol):
    """What tells how long launches took."""

    @property
    def name(self) -> str:
        """How, in a word; times by different timers are not compared."""

    def times(self, launches: Sequence[Launch]) -> list[float]:
        """Seconds of device time of each launch, the L2 emptied before it."""


@dataclass
class Samples:
    """What the rounds gave: for each arm the seconds of each launch, in the order taken."""

    seconds: dict[str, list[float]]
    wide: dict[str, float] = field(default_factory=dict)
    """The arms whose interval stayed too wide when the budget ended, with its relative width."""

    @property
    def rounds(self) -> int:
        """How many there were."""
        return len(next(iter(self.seconds.values()), []))


def measure(
    arms: Mapping[str, Launch],
    timer: Timer,
    *,
    seed: int,
    budget: float,
    least: int = LEAST,
    after_batch: Callable[[], None] = lambda: None,
    judged: Sequence[str] | None = None,
) -> Samples:
    """Launch all arms once a round, each round in another order drawn from `seed`.

    budget: seconds of wall time after which no further batch of rounds is begun. least: rounds. judged: the
    arms whose interval must become narrow, by default all. after_batch: called while the device is still warm.
    """
    rng = np.random.default_rng(seed)
    samples = Samples({name: [] for name in arms})
    timer.times([arm for arm in arms.values() for _ in range(WARM_UP)])
    started = time.perf_counter()
    while True:
        order = [name for _ in range(BATCH) for name in _permuted(list(arms), rng)]
        for name, seconds in zip(order, timer.times([arms[n] for n in order]), strict=True):
            samples.seconds[name].append(seconds)
        after_batch()
        if samples.rounds < least:
            continue
        samples.wide = _wide({n: samples.seconds[n] for n in (judged or arms)})
        if not samples.wide or time.perf_counter() - started >= budget:
            return samples


def _permuted(names: list[str], rng: np.random.Generator) -> list[str]:
    return [names[k] for k in rng.permutation(len(names))]


def _wide(samples: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The arms whose interval is too wide; one as narrow as the clock's step gets no narrower."""
    found = {}
    for name, seconds in samples.items():
        known = median(seconds)
        if known.high - known.low > max(PRECISION * known.value, step(seconds) * 1.001):
            found[name] = known.width
    return found
