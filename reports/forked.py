"""Independent pieces of a page, made on several processors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar, cast

from ptxdiff.forks import NoAnswer, in_forks

MOST = 4
EACH = 16
"""The fewest pieces for which another fork pays: starting one takes as long as making one piece."""

A = TypeVar("A")
B = TypeVar("B")


def beside(work: Callable[[], A], other: Callable[[], None]) -> A:
    """The value of `work`, while a fork of this process does `other`, whose errors are lost.

    Both are done when this returns. A process with threads, or with one processor, is not forked: then `other` is not
    done.
    """
    if len(os.sched_getaffinity(0)) < 2 or threading.active_count() > 1:
        return work()
    tasks: list[Callable[[], A | None]] = [work, other]
    return cast("A", in_forks(lambda do: do(), tasks)[0])  # this process did it


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
