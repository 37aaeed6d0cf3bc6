"""Spread independent pieces of work over forks of this process, which run Python at the same time.

Threads wait for each other wherever a piece is Python, and those that call many short functions of numpy lose more than
they win. Forks share what the caller holds, and write to arrays that it has made with `shared_zeros`.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import pickle
import signal
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ptxdiff.emulator.machine.parallel import cores

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
    forks: list[tuple[int, int]] = []
    answers: list[Any] = []
    try:
        for part in range(1, parts):
            forks.append(_forked(work, starts[part::parts]))
        answers.append(_done(work, starts[::parts]))
    finally:
        answers += [_received(pid, end, wanted=bool(answers)) for pid, end in forks]
    failures = [answer for answer in answers if not isinstance(answer, int)]
    if failures:
        raise Failed(min(failures, key=lambda failure: failure[0])[1])
    return sum(answers)


def _done(work: Callable[[int], int], starts: Sequence[int]) -> int | tuple[int, Exception]:
    """The sum of some pieces, or the start of the one that failed and its error."""
    total = 0
    for start in starts:
        try:
            total += work(start)
        except Exception as error:
            return start, error
    return total


def _forked(work: Callable[[int], int], starts: Sequence[int]) -> tuple[int, int]:
    """Start a fork; return its process id and the pipe from which its answer is read."""
    end, write = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads, of which `possible` knows
        pid = os.fork()
    if pid:
        os.close(write)
        return pid, end
    status = 1
    try:
        os.close(end)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        answer = _done(work, starts)
        with os.fdopen(write, "wb") as file:
            file.write(pickle.dumps(answer))
        status = 0
    finally:  # no exit handler of this process runs in the fork
        os._exit(status)


def _end_with(parent: int) -> None:
    """End this fork when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _received(pid: int, end: int, *, wanted: bool) -> Any:
    """A fork's answer; an error, if it gave none. A fork whose answer is not wanted is ended."""
    if not wanted:
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(end, "rb") as file:
        data = file.read() if wanted else b""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    try:
        return pickle.loads(data)
    except Exception as error:
        return -1, RuntimeError(f"a fork ended without an answer ({error})")
