"""Spread independent pieces of work over forks of this process, which run Python at the same time.

Threads wait for each other wherever a piece is Python, and those that call many short functions of numpy lose more than
they win. Forks share what the caller holds, and write to arrays that it has made with `shared_zeros`.
"""

from __future__ import annotations

import contextlib
import functools
import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ptxdiff.emulator.machine.parallel import cores
from ptxdiff.forks import NoAnswer, in_forks

MOST = 8
"""Processes in all. Each fork takes about ten milliseconds of the first one's time, and each its share of Python."""
OWN_THREADS = "ptxdiff-"
"""How the names of threads begin that wait for other processes, and hold no lock that a fork needs."""


class Failed(Exception):
    """Some pieces failed. error: that of the earliest, or of a fork that ended without an answer."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def possible() -> bool:
    """Whether forks pay here, and are safe: another thread may hold a lock that the fork would wait for."""
    others = (one.name for one in threading.enumerate() if one is not threading.current_thread())
    return hasattr(os, "fork") and cores() > 1 and all(name.startswith(OWN_THREADS) for name in others)


def shared_zeros(count: int, kind: Any) -> Any:
    """An array of zeros that this process and its later forks share."""
    size = count * np.dtype(kind).itemsize
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), kind, count)


class Lock:
    """A lock between this process and its later forks; the end of a process frees it."""

    def __init__(self) -> None:
        self._file, name = tempfile.mkstemp()
        os.unlink(name)
        weakref.finalize(self, os.close, self._file)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lock."""
        import fcntl  # not on Windows, which has no forks

        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def for_each(work: Callable[[int], int], starts: Sequence[int]) -> int:
    """The sum of `work` of each of `starts`, called in any order, a share of them in each process.

    After a call fails, its process begins no other. Raises Failed, and OSError if this process cannot be forked.
    """
    parts = min(cores(), MOST, len(starts))
    answers = in_forks(functools.partial(_done, work), [starts[part::parts] for part in range(parts)])
    failures = [(-1, one) if isinstance(one, NoAnswer) else one for one in answers if not isinstance(one, int)]
    if failures:
        raise Failed(min(failures, key=lambda failure: failure[0])[1])
    return sum(one for one in answers if isinstance(one, int))


def _done(work: Callable[[int], int], starts: Sequence[int]) -> int | tuple[int, Exception]:
    """The sum of some pieces, or the start of the one that failed and its error."""
    total = 0
    for start in starts:
        try:
            total += work(start)
        except Exception as error:
            return start, error
    return total
