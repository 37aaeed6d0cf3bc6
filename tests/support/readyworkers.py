"""Processes that start as forks of one which has imported torch, Triton, numba and the harness.

A new process spends three seconds of processor time on these imports. A fork of a process that has done nothing else
has the same modules and no other state. Tests of runs with several workers of pytest-xdist take such forks, and
`tests/support/readyprocess.py` starts other commands of Python as such forks.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import os
import pickle
import random
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from execnet import gateway_base, gateway_io

ROOT = Path(__file__).parents[2]
IMPORTED = (
    "torch", "triton", "numba", "pytest", "execnet", "ptxdiff.running.collection", "ptxdiff.running.run",
    "ptxdiff.backends.emulator", "ptxdiff.backends.gpu", "ptxdiff.emulator.isa", "ptxdiff.triton.stages",
    "ptxdiff.emulator.numeric.translation.loops",
    "ptxdiff.references.formats",
)  # fmt: skip
"""No plugin of pytest: it warns of plugins that were imported before it could rewrite their assertions."""


OF_A_FORK = ("-W", "ignore:Module already imported")
"""Options of pytest in a fork, which has imported the plugin's package already."""


class Origin:
    """The process that others are forked from. It is started by the first of them."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._one_at_a_time = threading.Lock()  # several threads may start a worker, and answers name no request

    def fork(
        self,
        files: Sequence[int],
        words: Sequence[str] = (),
        *,
        folder: str | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> int:
        """Fork a process that has these files as its descriptors 0, 1, 2 and so on; its process id.

        words: the command after `python`; if empty, the process is a worker of pytest-xdist. folder, environment: by
        default those of this process.
        """
        request = tuple(words), folder or os.getcwd(), dict(os.environ if environment is None else environment)
        return int(self._asked(request, files))

    def status(self, pid: int) -> int:
        """Wait for the end of a process; its status as in `subprocess.Popen.returncode`."""
        return int(self._asked(pid))

    def _asked(self, request: object, files: Sequence[int] = ()) -> bytes:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        with self._one_at_a_time:
            if self._socket is None:
                self._start()
            assert self._socket
            self._socket.sendmsg([pickle.dumps(request)], rights)
            return self._socket.recv(64)

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = f"from tests.support.readyworkers import serve; serve({theirs.fileno()})"
        self._process = subprocess.Popen([sys.executable, "-u", "-c", code], cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()

    def close(self) -> None:
        """End the process and its workers."""
        if self._socket and self._process:
            self._socket.close()
            self._process.wait()


class ForkedIO(gateway_io.Popen2IOMaster):
    """execnet's connection to a worker that is a fork. args: the command of a new process, which is not started."""

    origin = Origin()
    atexit.register(origin.close)  # now, so that it runs last: pools of workers end their processes when Python exits

    def __init__(self, args: list[str], execmodel: Any) -> None:
        read, requests = os.pipe()
        replies, write = os.pipe()
        self._process = os.pidfd_open(self.origin.fork((read, write, 2)))  # names this process even after it has ended
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
    """Import what the processes need, then fork one for each request until the other end is closed."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    own = [entry for entry in sys.path if entry and entry not in given]
    for name in IMPORTED:
        with contextlib.suppress(ImportError):  # Triton may be missing
            importlib.import_module(name)
    sys.modules["ptxdiff.emulator.isa"].load()
    importlib.import_module("ptxdiff.conformance.ledger").confirmed(["add.f32"])  # reads the ledger
    gc.collect()
    gc.freeze()  # a collection in a fork would copy all pages
    requests = socket.socket(fileno=file)
    running: set[int] = set()
    ended: dict[int, int] = {}
    while True:
        message, files, _, _ = socket.recv_fds(requests, 1 << 20, 8)
        if not message:
            break
        request = pickle.loads(message)
        if isinstance(request, int):
            while request not in ended:
                _reap(running, ended, request)
            requests.send(str(ended.pop(request)).encode())
            continue
        while _reap(running, ended):
            pass
        pid = os.fork()
        if pid == 0:
            requests.close()
            _become(*request, files, own)
        with contextlib.suppress(PermissionError, ProcessLookupError):
            os.setpgid(pid, pid)  # here too, so that the group exists when its number is known
        for each in files:
            os.close(each)
        requests.send(str(pid).encode())
        running.add(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _reap(running: set[int], ended: dict[int, int], pid: int = -1) -> bool:
    """Note how one process ended. pid: the one to wait for; -1 for any that has ended already."""
    if not running:
        return False
    found, status = os.waitpid(pid, os.WNOHANG if pid == -1 else 0)
    if found:
        running.discard(found)
        ended[found] = os.waitstatus_to_exitcode(status)
    return bool(found)


def _become(
    words: Sequence[str], folder: str, environment: Mapping[str, str], files: Sequence[int], own: Sequence[str]
) -> NoReturn:
    """Do what a new process does, then exit. own: the entries of Python's path that are no user's."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in what a shell starts in the background
    for target, each in enumerate(files):
        os.dup2(each, target)
        os.close(each)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    random.seed()
    for name in [n for n in sys.modules if n.partition(".")[0] == "tests"]:
        del sys.modules[name]
    if words[:2] == ("-m", "ptxdiff"):
        _run_calls_pytest_in_a_fork(own)
    if words:
        os._exit(_commanded(words, folder, own))
    sys.argv[:] = ["-c"]
    try:
        exec(gateway_io.popen_bootstrapline, {"__name__": "__main__"})
    finally:
        os._exit(0)


def _run_calls_pytest_in_a_fork(own: Sequence[str]) -> None:
    """Have `ptxdiff run` call pytest in a fork of its process, which spares pytest the imports of a new one."""

    def called(words: list[str], environment: Mapping[str, str]) -> int:
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            os.environ.clear()
            os.environ.update(environment)
            os._exit(_commanded([*words[1:3], *OF_A_FORK, *words[3:]], os.getcwd(), own))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    importlib.import_module("ptxdiff.cli.run")._call = called  # type: ignore[attr-defined]


def _commanded(words: Sequence[str], folder: str, own: Sequence[str]) -> int:
    """Run what `python *words` runs (a script, -c or -m, with -P before it or not); the exit status."""
    safe, words = words[0] == "-P", list(words[words[0] == "-P" :])
    first = {"-m": folder, "-c": ""}.get(words[0], str(Path(words[0]).parent))
    theirs = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*([] if safe else [first]), *theirs, *own]
    importlib.invalidate_caches()
    status = 0
    try:
        if words[0] == "-m":
            sys.argv[:] = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        elif words[0] == "-c":
            sys.argv[:] = ["-c", *words[2:]]
            exec(compile(words[1], "<string>", "exec"), vars(sys.modules["__main__"]))
        else:
            sys.argv[:] = words
            _script(words[0])
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if status and not isinstance(ended.code, int):
            print(ended.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  # wait for threads, as the interpreter does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _script(path: str) -> None:
    """Run a script in the module `__main__`, where the functions that it makes look themselves up."""
    main = vars(sys.modules["__main__"])
    main.update(__file__=path, __spec__=None, __cached__=None)
    exec(compile(Path(path).read_bytes(), path, "exec"), main)
