"""A line on a run: how many items are done, failing, running and waiting, by generation, and the time left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

EVERY = 20.0
"""Seconds between two such lines."""


@dataclass(frozen=True)
class QueueState:
    """The progress of items with the same needs.

    needs: in words. running: how many run now. left: how many have no report. slots: how many can run at once. mean:
    seconds that one has taken on average; 0 if none is done.
    """

    needs: str
    running: int
    left: int
    slots: int
    mean: float


def line(done: int, failing: int, states: Sequence[QueueState]) -> str:
    """The line."""
    running, waiting = Counter[str](), Counter[str]()
    for state in states:
        running[state.needs] += state.running
        waiting[state.needs] += state.left - state.running
    total = done + sum(s.left for s in states)
    words = (
        f"cluster: {done} of {total} done, {failing} failing; running {_counts(running)}; waiting {_counts(waiting)}"
    )
    seconds = estimate(states)
    return f"{words}; about {_time(seconds)} left" if seconds is not None else words


def estimate(states: Sequence[QueueState]) -> float | None:
    """Seconds until the slowest kind is done; None if one kind has no finished item yet."""
    waiting = [s for s in states if s.left]
    if any(not s.mean for s in waiting):
        return None
    return max((s.left * s.mean / max(1, s.slots) for s in waiting), default=0.0)


def _counts(counts: Counter[str]) -> str:
    kinds = ", ".join(f"{needs} {count}" for needs, count in sorted(counts.items()) if count)
    return f"{counts.total()} ({kinds})" if kinds else "0"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
