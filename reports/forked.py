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
"""The fewest pieces for which another fork pays: starting one takes as long as making one piece."""

A = TypeVar("A")
B = TypeVar("B")


def in_forks(make: Callable[[A], B], given: Sequence[A]) -> list[B]:
    """`[make(one) for one in given]`, computed by forks of this process. The results must be picklable.

    Forks share the caller's data, which is too large to send to other processes. If a fork fails, this process makes
    its part again and raises its exception. A process with threads is not forked.
    """
    parts = min(MOST, len(os.sched_getaffinity(0)), len(given) // EACH)
    if parts < 2 or threading.active_count() > 1:
        return [make(one) for one in given]
    forks = [_forked(make, given[part::parts]) for part in range(1, parts)]
    found: dict[int, B] = {}
    try:
        found |= {number: make(given[number]) for number in range(0, len(given), parts)}
    finally:  # closing a pipe ends the fork that still writes to it
        received = [_received(pid, end, wanted=bool(found)) for pid, end in forks]
    for part, made in enumerate(received, 1):
        for place, number in enumerate(range(part, len(given), parts)):
            found[number] = make(given[number]) if made is None else made[place]
    return [found[number] for number in range(len(given))]


def _forked(make: Callable[[A], B], given: Sequence[A]) -> tuple[int, int]:
    """Start a fork; return its process id and the pipe from which its results are read."""
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
    finally:  # no exit handler of this process runs in the fork; the parent meets the same exception again
        os._exit(status)


def _received(pid: int, end: int, *, wanted: bool) -> list[Any] | None:
    """All results of a fork; None if it failed, or if its results are not wanted."""
    with os.fdopen(end, "rb") as file:
        data = file.read() if wanted else b""
    status = 1
    with contextlib.suppress(ChildProcessError):
        status = os.waitpid(pid, 0)[1]
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        return list(pickle.loads(data)) if wanted and status == 0 else None
    return None
