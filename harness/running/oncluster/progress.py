"""One line on a run: what is done, failing, running and waiting, by generation, and how long it may take yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

EVERY = 20.0
"""Seconds between two lines."""


@dataclass(frozen=True)
class QueueState:
    """How far items with the same needs have come.

    needs: in words. running: how many run now. left: how many have no report. slots: how many can run at once. mean:
    seconds that one has taken on average; 0 where none is done.
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
    words = f"cluster: {done} of {total} done, {failing} failing; running {_told(running)}; waiting {_told(waiting)}"
    seconds = estimate(states)
    return f"{words}; about {_time(seconds)} left" if seconds is not None else words


def estimate(states: Sequence[QueueState]) -> float | None:
    """Seconds until the slowest kind is done; None while one of them has finished nothing."""
    waiting = [s for s in states if s.left]
    if any(not s.mean for s in waiting):
        return None
    return max((s.left * s.mean / max(1, s.slots) for s in waiting), default=0.0)


def _told(counts: Counter[str]) -> str:
    told = ", ".join(f"{needs} {count}" for needs, count in sorted(counts.items()) if count)
    return f"{counts.total()} ({told})" if told else "0"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
