"""A call in a fork of this process, for functions that no other process can import, such as those made by a factory.

The fork has every module, closure and notebook cell of this process as they are now, so nothing is imported or pickled
for it. It has one thread. If a compiler aborts, only the fork ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Any

from ptxdiff.processes.pool import (
    DEFAULT_TIMEOUT,
    CallEnd,
    changes_compilers,
    in_words,
    nameless_file,
    read_by,
    written_to,
)
from ptxdiff.processes.worker import HEADER, answer, end_with_parent, write_message


def call_in_fork(function: Callable[..., Any], *arguments: Any, timeout: float = DEFAULT_TIMEOUT) -> CallEnd:
    """Call a function in a fork and wait for it. Its result must be picklable. Raises OSError if forking fails."""
    deadline = time.monotonic() + timeout
    reply_end, reply_write = os.pipe()
    life_end, life = os.pipe()  # open for as long as this process waits
    stderr = nameless_file()
    with warnings.catch_warnings():
        # Python 3.12 warns of forks of processes with threads: locks that other threads hold stay locked in the fork.
        # Triton's stages take no such lock, and a fork that waits for one is ended after `timeout`.
        warnings.simplefilter("ignore")
        pid = os.fork()
    if pid == 0:
        _serve(reply_write, life_end, stderr, (reply_end, life), function, arguments)
    os.close(reply_write)
    os.close(life_end)
    reply, status, late = None, None, False
    try:
        (size,) = HEADER.unpack(read_by(reply_end, HEADER.size, deadline))
        reply = pickle.loads(read_by(reply_end, size, deadline))
    except EOFError:
        late = time.monotonic() >= deadline
        if not late:  # the fork is ending by itself: report its exit status, not our signal's
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    finally:
        for kill in (os.killpg, os.kill):  # with the processes that it started; it may not lead a group yet
            with contextlib.suppress(ProcessLookupError):
                kill(pid, signal.SIGKILL)
        status = _reap(pid)
        said = written_to(stderr)
        for fd in (reply_end, life, stderr):
            os.close(fd)
    return CallEnd(reply, said, "" if reply else in_words(status, timeout if late else None))


def _reap(pid: int) -> int | None:
    """How a child ended, negative for a signal; None if another part of this process has waited for it already."""
    try:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return None


def _serve(
    replies: int, life: int, stderr: int, parents: tuple[int, ...], function: Any, arguments: tuple[Any, ...]
) -> None:
    """The whole life of the fork. It ends without the parent's handlers, buffers and exit functions."""
    try:
        os.setsid()  # so that Ctrl-C reaches the parent alone, and the compiler's children end with the fork
        for fd in parents:
            os.close(fd)
        null = os.open(os.devnull, os.O_RDWR)
        for target, fd in ((0, null), (1, null), (2, stderr)):
            os.dup2(fd, target)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        faulthandler.disable()  # pytest's writes to the terminal, but here an abort is an expected answer
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        for name in [n for n in os.environ if changes_compilers(n)]:
            del os.environ[name]
        end_with_parent(life)
        reply = answer(function, arguments)
        sys.stdout.flush()
        sys.stderr.flush()
        write_message(replies, reply)
        os._exit(0)
    except BaseException:
        traceback.print_exc()  # such as an answer that cannot be pickled
        sys.stderr.flush()
    finally:
        os._exit(1)
