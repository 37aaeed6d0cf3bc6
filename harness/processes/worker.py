"""The main loop of compiler processes and of the process that owns a GPU. It answers one request at a time.

LLVM aborts the process on a wrong constraint string, so Triton's stages never run in the harness's own process. The
parent (`ptxdiff.processes.pool`) starts this module with two pipes for the protocol, and a file as standard error: what
a compiler writes there belongs to the current request. Standard output is discarded.

A message is an 8-byte big-endian length and a pickle. Requests are `Call`s. An `ImportPath` comes before the first of
them and whenever the parent's path has changed.
"""

from __future__ import annotations

import importlib
import os
import pickle
import resource
import select
import signal
import stat
import struct
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HEADER = struct.Struct(">Q")


@dataclass(frozen=True)
class ImportPath:
    """The folders from which the parent imports modules.

    before: put them before the path that the worker's own interpreter has, instead of replacing that path.
    """

    path: tuple[str, ...]
    before: bool = False


@dataclass(frozen=True)
class Call:
    """A function to call, as "module:name", and its positional arguments."""

    function: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Reply:
    """The result of a call.

    warnings: Python's warnings, one line each; they never reach standard error, where any text counts as an error.
    raised: the exception's class name; "" if the call returned. message: the exception's message. trace: its traceback.
    opened: what the worker has noted so far of files that the user's code opens (`ptxdiff.model.identity.opened`); None
    for nothing.
    """

    value: Any = None
    warnings: tuple[str, ...] = ()
    raised: str = ""
    message: str = ""
    trace: str = ""
    opened: Any = None


def read_exactly(fd: int, size: int) -> bytes:
    """Read `size` bytes. Raises EOFError if the other end closes first."""
    chunks = []
    while size:
        chunk = os.read(fd, min(size, 1 << 20))
        if not chunk:
            raise EOFError
        chunks.append(chunk)
        size -= len(chunk)
    return b"".join(chunks)


def write_message(fd: int, message: object) -> None:
    """Pickle `message` and write it with its length."""
    body = pickle.dumps(message)
    data = memoryview(HEADER.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]


def read_message(fd: int) -> Any:
    """The next message. Raises EOFError at the end of the stream."""
    (size,) = HEADER.unpack(read_exactly(fd, HEADER.size))
    return pickle.loads(read_exactly(fd, size))


def forget_output() -> None:
    """Drop what was written to standard error so far: it comes from loading the user's module, not from a compiler."""
    sys.stderr.flush()
    os.ftruncate(2, 0)


def nothing_written() -> bool:
    """Whether nothing was written to standard error since `forget_output`; False if standard error is no file."""
    sys.stderr.flush()
    status = os.fstat(2)
    return stat.S_ISREG(status.st_mode) and status.st_size == 0


def resolve(function: str) -> Callable[..., Any]:
    """The function with the name "module:name"."""
    module, _, name = function.partition(":")
    resolved: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return resolved


def answer(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Reply:
    """What a call returns or raises, with Python's warnings during the call."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            reply = Reply(value=function(*arguments))
        except Exception as error:
            reply = Reply(raised=type(error).__name__, message=str(error), trace=traceback.format_exc())
    notes = tuple(dict.fromkeys(f"{w.category.__name__}: {w.message}" for w in caught))
    opened = sys.modules.get("ptxdiff.model.identity.opened")
    return Reply(reply.value, notes, reply.raised, reply.message, reply.trace, opened.notes() if opened else None)


def _resolved(call: Call) -> Any:
    return resolve(call.function)(*call.arguments)


def serve(requests: int, replies: int) -> None:
    """Answer the requests from one pipe on another, until the parent closes its end."""
    own = tuple(sys.path)
    while True:
        try:
            request = read_message(requests)
        except EOFError:
            return
        if isinstance(request, ImportPath):
            behind = own if request.before else ()
            sys.path[:] = dict.fromkeys((*request.path, *behind))
            continue
        reply = answer(_resolved, (request,))
        sys.stdout.flush()
        sys.stderr.flush()
        write_message(replies, reply)


def end_with_parent(requests: int) -> None:
    """Kill this process and its children as soon as no process is left that can send requests.

    A parent that was killed cannot end its workers, and a worker in an endless loop does not notice the end of its
    pipe.
    """

    def watch() -> None:
        poll = select.poll()
        poll.register(requests, 0)  # reports only that the other end was closed
        poll.poll()
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, name="ptxdiff-parent", daemon=True).start()


if __name__ == "__main__":
    # Pickles refer to this module's classes by its import name, which is not __main__.
    from ptxdiff.processes import worker

    # An abort of a compiler is an expected answer, so it writes no core dump.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    worker.end_with_parent(int(sys.argv[1]))
    worker.serve(int(sys.argv[1]), int(sys.argv[2]))
