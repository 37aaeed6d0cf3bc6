"""Independent pieces of a page, made on several processors."""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

MOST = 4
EACH = 16
"""So many pieces are worth a fork, which takes as long as one of them."""

A = TypeVar("A")
B = TypeVar("B")


def in_forks(make: Callable[[A], B], given: Sequence[A]) -> list[B]:
    """What `make` makes of each, in order; what it returns must pickle.

    Forks of this process make their part, because what pieces are made of is too much to send. What a fork does not
    deliver is made here, so that an exception is raised here too. A process with threads is not forked.
    """
    parts = min(MOST, len(os.sched_getaffinity(0)), len(given) // EACH)
    if parts < 2 or threading.active_count() > 1:
        return [make(one) for one in given]
    forks = [_forked(make, given[part::parts]) for part in range(1, parts)]
    found: dict[int, B] = {}
    try:
        found |= {number: make(given[number]) for number in range(0, len(given), parts)}
    finally:  # a fork that still writes ends when nobody reads
        received = [_received(pid, end, wanted=bool(found)) for pid, end in forks]
    for part, made in enumerate(received, 1):
        for place, number in enumerate(range(part, len(given), parts)):
            found[number] = make(given[number]) if made is None else made[place]
    return [found[number] for number in range(len(given))]


def _forked(make: Callable[[A], B], given: Sequence[A]) -> tuple[int, int]:
    """A fork's id, and where to read what it makes."""
    end, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, end
    status = 1
    try:
        os.close(end)
        with os.fdopen(write, "wb") as file:
            pickle.dump([make(one) for one in given], file)
        status = 0
    finally:  # nothing else of this process runs in its fork; what was wrong is met again where it is made anew
        os._exit(status)


def _received(pid: int, end: int, *, wanted: bool) -> list[Any] | None:
    """All that a fork made; None where it failed, or is not wanted."""
    with os.fdopen(end, "rb") as file:
        data = file.read() if wanted else b""
    status = 1
    with contextlib.suppress(ChildProcessError):
        status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        return list(pickle.loads(data)) if wanted and status == 0 else None
    return None
