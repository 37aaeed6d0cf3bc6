"""Workers of pytest-xdist that start as forks of a process which has imported torch, numba and the harness.

A worker in a new process spends three seconds of processor time on these imports. A fork of a process that has done
nothing else has the same modules and no other state, so tests of runs with several workers take such forks.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

from execnet import gateway_base, gateway_io

ROOT = Path(__file__).parents[1]
IMPORTED = (
    "torch", "numba", "pytest", "execnet", "harness.running.collection", "harness.running.run",
    "harness.backends.emulator", "harness.ptx.isa", "harness.ptx.numeric.translation.loops", "references.formats",
)  # fmt: skip
"""No plugin of pytest: it warns of plugins that were imported before it could rewrite their assertions."""


class Origin:
    """The process that workers are forked from. It is started by the first worker."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def fork(self, stdin: int, stdout: int) -> int:
        """Fork a worker with this process's folder and environment, and these files; its process id."""
        if self._socket is None:
            self._start()
        assert self._socket
        files = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", (stdin, stdout, 2)))]
        self._socket.sendmsg([pickle.dumps((os.getcwd(), dict(os.environ)))], files)
        return int(self._socket.recv(64))

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from tests.readyworkers import serve; serve({theirs.fileno()})"
        self._process = subprocess.Popen([sys.executable, "-u", "-c", code], cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()
        atexit.register(self.close)

    def close(self) -> None:
        """End the process and its workers."""
        if self._socket and self._process:
            self._socket.close()
            self._process.wait()


class ForkedIO(gateway_io.Popen2IOMaster):
    """execnet's connection to a worker that is a fork. args: the command of a new process, which is not started."""

    origin = Origin()

    def __init__(self, args: list[str], execmodel: Any) -> None:
        read, requests = os.pipe()
        replies, write = os.pipe()
        self._process = os.pidfd_open(self.origin.fork(read, write))  # names this process even after it has ended
        os.close(read)
        os.close(write)
        streams = os.fdopen(requests, "wb"), os.fdopen(replies, "rb")
        gateway_base.Popen2IO.__init__(self, *streams, execmodel=execmodel)

    def wait(self) -> int | None:
        """Wait for the end of the worker."""
        select.select([self._process], [], [])
        return 0

    def kill(self) -> None:
        """Kill the worker."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._process, signal.SIGKILL)


def serve(file: int) -> None:
    """Import what workers need, then fork one for each message until the other end is closed."""
    for name in IMPORTED:
        importlib.import_module(name)
    sys.modules["harness.ptx.isa"].load()
    gc.collect()
    gc.freeze()  # a collection in a worker would copy all pages
    requests = socket.socket(fileno=file)
    running: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 3)
        if not message:
            break
        pid = os.fork()
        if pid == 0:
            requests.close()
            _work(*pickle.loads(message), files)
        for each in files:
            os.close(each)
        requests.send(str(pid).encode())
        running.add(pid)
        while ended := _ended(running):
            running.discard(ended)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _ended(running: set[int]) -> int:
    """The process id of a worker that has ended, which is then gone; 0 if all are running."""
    return os.waitpid(-1, os.WNOHANG)[0] if running else 0


def _work(folder: str, environment: dict[str, str], files: list[int]) -> NoReturn:
    """Do what execnet makes a new process do, then exit."""
    for target, each in enumerate(files):
        os.dup2(each, target)
        os.close(each)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["-c"]
    for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
        del sys.modules[name]
    try:
        exec(gateway_io.popen_bootstrapline, {"__name__": "__main__"})
    finally:
        os._exit(0)
