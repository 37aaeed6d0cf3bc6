"""Shares of one task, done at the same time by forks of this process.

A fork has all that its caller holds, so nothing is sent to it. Its answer comes back through a pipe.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

A = TypeVar("A")
B = TypeVar("B")


class NoAnswer(Exception):
    """A fork ended without an answer: its work failed, its answer cannot be pickled, or it was killed."""


def in_forks(work: Callable[[A], B], shares: Sequence[A]) -> list[B | NoAnswer]:
    """What `work` returns for each share, in order. This process does the first, and a fork each of the others.

    A fork that gave no answer has a NoAnswer in its place. An exception of `work` in this process ends the forks. The
    caller has no other thread that may hold a lock, for which a fork would wait for ever. Raises OSError if this
    process cannot be forked.
    """
    forks: list[tuple[int, int]] = []
    answers: list[B | NoAnswer] = []
    try:
        for share in shares[1:]:
            forks.append(_forked(work, share))
        answers.append(work(shares[0]))
    finally:
        answers += [_received(pid, end, wanted=bool(answers)) for pid, end in forks]
    return answers


def _forked(work: Callable[[A], B], share: A) -> tuple[int, int]:
    """Start a fork; return its process id and the pipe from which its answer is read."""
    end, write = os.pipe()
    parent = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python 3.12 warns of threads, of which the caller knows
        pid = os.fork()
    if pid:
        os.close(write)
        return pid, end
    status = 1
    try:
        os.close(end)
        threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
        answer = pickle.dumps(work(share))
        with os.fdopen(write, "wb") as file:
            file.write(answer)
        status = 0
    finally:  # no exit handler of this process runs in the fork
        os._exit(status)


def _end_with(parent: int) -> None:
    """End this fork when its parent has ended."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


def _received(pid: int, end: int, *, wanted: bool) -> Any:
    """A fork's answer, or a NoAnswer. A fork whose answer is not wanted is ended."""
    if not wanted:
        os.kill(pid, signal.SIGKILL)
    with os.fdopen(end, "rb") as file:
        data = file.read() if wanted else b""
    status = 1
    with contextlib.suppress(ChildProcessError):
        status = os.waitpid(pid, 0)[1]
    if status:
        return NoAnswer("a fork ended without an answer")
    try:
        return pickle.loads(data)
    except Exception as error:
        return NoAnswer(f"a fork's answer cannot be read ({error})")
