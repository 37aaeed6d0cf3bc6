"""One line on a run: what is done, failing, running and waiting, by generation, and how long it may take yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from harness.running.oncluster.batches import Queue

EVERY = 20.0
"""Seconds between two lines."""


def line(done: int, failing: int, running: Mapping[str, int], queues: Sequence[Queue], slots: Mapping[str, int]) -> str:
    """The line. running: items by what they need. slots: tasks that can run at once, likewise."""
    waiting = Counter({q.needs.words: 0 for q in queues})
    for queue in queues:
        waiting[queue.needs.words] += queue.waiting
    total = done + sum(running.values()) + waiting.total()
    words = (
        f"cluster: {done} of {total} done, {failing} failing; running {_by_need(running)}; waiting {_by_need(waiting)}"
    )
    left = estimate(running, queues, slots)
    return f"{words}; about {_time(left)} left" if left is not None else words


def estimate(running: Mapping[str, int], queues: Sequence[Queue], slots: Mapping[str, int]) -> float | None:
    """Seconds until the slowest queue is empty; None while one of them has finished nothing."""
    found = []
    for queue in queues:
        left = queue.waiting + running.get(queue.needs.words, 0)
        if left and not queue.done:
            return None
        found.append(left * queue.mean / max(1, slots.get(queue.needs.words, 0)))
    return max(found, default=0.0)


def _by_need(counts: Mapping[str, int]) -> str:
    told = ", ".join(f"{need} {count}" for need, count in sorted(counts.items()) if count)
    return f"{sum(counts.values())} ({told})" if told else "0"


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"
