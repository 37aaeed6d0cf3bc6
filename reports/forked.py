"""Independent pieces of a page, made on several processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from ptxdiff.forks import NoAnswer, in_forks

MOST = 4
EACH = 16
"""The fewest pieces for which another fork pays: starting one takes as long as making one piece."""

A = TypeVar("A")
B = TypeVar("B")


def made_in_forks(make: Callable[[A], B], given: Sequence[A]) -> list[B]:
    """`[make(one) for one in given]`, computed by forks of this process. The results must be picklable.

    Forks share the caller's data, which is too large to send to other processes. If a fork fails, this process makes
    its part again and raises its exception. A process with threads is not forked.
    """
    parts = min(MOST, len(os.sched_getaffinity(0)), len(given) // EACH)
    if parts < 2 or threading.active_count() > 1:
        return [make(one) for one in given]
    shares = [given[part::parts] for part in range(parts)]
    made: list[B | None] = [None] * len(given)
    for part, answer in enumerate(in_forks(lambda share: [make(one) for one in share], shares)):
        made[part::parts] = [make(one) for one in shares[part]] if isinstance(answer, NoAnswer) else answer
    return made  # type: ignore[return-value]  # every place has been filled
