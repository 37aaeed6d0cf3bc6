"""A pool of compiler processes, which replaces those that crash, and calls in forks of this process.

    outcome = shared_pool().submit("ptxdiff.triton.compile:lower", spec).result()

Every call ends in a `CallEnd`: the worker's reply, or how the worker ended. The next call that needs a worker replaces
one that ended.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import fcntl
import os
import pickle
import queue
import resource
import select
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxdiff.diskcache import compilers_caches
from ptxdiff.processes.worker import HEADER, Call, ImportPath, Reply, answer, end_with_parent, write_message

DEFAULT_TIMEOUT = 120.0
MAX_WORKERS = 4

# Settings of Triton and LLVM that change or dump the compiled code, or that replace the compiler by an interpreter.
# Users may still set where Triton finds its tools (TRITON_PTXAS_PATH and the like).
_DROPPED_PREFIXES = (
    "TRITON_",
    "MLIR_",
    "LLVM_",
    "NVPTX_",
    "PYTHONWARNINGS",
    "DISABLE_",
    "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",
    "AMDGCN_",
    "PTXAS_OPTIONS",
    "USE_IR_LOC",
)


@dataclass(frozen=True)
class CallEnd:
    """How one call ended.

    reply: what the function returned or raised; None if the worker ended without an answer. stderr: all that was
    written to standard error during the call. ended: how the worker ended, in words ("aborted (SIGABRT)", "gave no
    answer in 120 s"); "" if it is running.
    """

    reply: Reply | None
    stderr: str = ""
    ended: str = ""


class _Silent(Exception):
    """The worker ended, or time was up, before its answer was complete."""


class Worker:
    """One process that answers calls, by default a compiler's. It is started by its first call.

    One thread at a time may `call` and `close`; any thread may `stop`. environment: of the process; by default that of
    compilers. prefix: a program to run it under. python: the interpreter of another environment, whose packages the
    process uses instead of ours.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, prefix: Sequence[str] = (), python: str = ""
    ) -> None:
        self._environment, self._prefix, self._python = environment, tuple(prefix), python
        self._process: subprocess.Popen[bytes] | None = None
        self._guard = threading.Lock()  # `stop` must not kill after the process was waited for
        self._stopped = False
        self._requests = self._replies = self._stderr = -1
        self._path: tuple[str, ...] = ()  # sys.path as it was last sent to the process

    @property
    def pid(self) -> int | None:
        """The process's id; None if it is not running."""
        return self._process.pid if self._process else None

    def call(self, call: Call, timeout: float) -> CallEnd:
        """Run `call` in the worker and wait for it. A worker that crashes or is late is ended."""
        deadline = time.monotonic() + timeout
        try:
            if self._process is None:
                self._start()
            if self._path != (path := tuple(sys.path)):
                sent = ImportPath(theirs_too(path), before=True) if self._python else ImportPath(path)
                write_message(self._requests, sent)
                self._path = path
            os.ftruncate(self._stderr, 0)
            write_message(self._requests, call)
            reply = self._receive(deadline)
        except (_Silent, BrokenPipeError):
            ended = self._how_it_ended(timed_out=time.monotonic() >= deadline, timeout=timeout)
            stderr = self._written()
            self.close()
            return CallEnd(None, stderr, ended)
        return CallEnd(reply, self._written())

    def _start(self) -> None:
        if self._stopped:
            raise _Silent
        request_end, self._requests = os.pipe()
        self._replies, reply_end = os.pipe()
        self._stderr = nameless_file()
        module = ["-P", "-m", "ptxdiff.processes.worker"]
        command = [*self._prefix, self._python or sys.executable, *module, str(request_end), str(reply_end)]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                pass_fds=(request_end, reply_end),
                env=_environment(self._python) if self._environment is None else with_harness(self._environment),
                # In its own session: Ctrl-C reaches the harness alone, and the worker's children end with it.
                start_new_session=True,
            )
        finally:
            os.close(request_end)
            os.close(reply_end)
        self._path = ()

    def _receive(self, deadline: float) -> Reply:
        (size,) = HEADER.unpack(self._read(HEADER.size, deadline))
        reply = pickle.loads(self._read(size, deadline))
        assert isinstance(reply, Reply)
        return reply

    def _read(self, size: int, deadline: float) -> bytes:
        try:
            return read_by(self._replies, size, deadline)
        except EOFError:
            raise _Silent from None

    def _how_it_ended(self, *, timed_out: bool, timeout: float) -> str:
        if self._stopped or self._process is None:
            return "was stopped"
        if timed_out:
            return in_words(None, timeout)
        try:
            return in_words(self._process.wait(timeout=10))
        except subprocess.TimeoutExpired:
            return in_words(None)

    def _written(self) -> str:
        return written_to(self._stderr) if self._stderr >= 0 else ""

    def stop(self) -> None:
        """Kill the process for good. A call in progress ends."""
        with self._guard:
            self._stopped = True
            if self._process is not None and self._process.returncode is None:
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process and its children. The next call starts another."""
        with self._guard:
            process, self._process = self._process, None
            if process is None:
                return
            # Children in its process group may still be running.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for fd in (self._requests, self._replies, self._stderr):
            os.close(fd)
        self._requests = self._replies = self._stderr = -1


def nameless_file() -> int:
    """A nameless file for reading and appending, so that output after a truncation starts at offset 0."""
    fd, name = tempfile.mkstemp(prefix="ptxdiff-stderr-")
    os.unlink(name)
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def written_to(file: int) -> str:
    """The whole content of a file, as text."""
    return os.pread(file, os.fstat(file).st_size, 0).decode(errors="replace")


def read_by(fd: int, size: int, deadline: float) -> bytes:
    """Read `size` bytes before a time of the monotonic clock. Raises EOFError if the other end closes or time is up."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = bytearray()
    while len(data) < size:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise EOFError
        chunk = os.read(fd, size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def in_words(status: int | None, late: float | None = None) -> str:
    """How a process ended without an answer. status: negative for a signal, None if unknown; late: seconds waited."""
    if late is not None:
        return f"gave no answer in {late:g} s"
    if status is None:
        return "closed its pipe"
    if status < 0:
        verb = "aborted" if -status == signal.SIGABRT else "was killed"
        return f"{verb} ({signal.Signals(-status).name})"
    return f"exited with status {status}"


@dataclass(frozen=True)
class _Job:
    call: Call
    timeout: float
    future: Future[CallEnd]


class Pool:
    """Up to `size` workers, started as they are needed; any thread may call `submit`.

    python: the interpreter that runs them; "" for this one. The threads that wait for workers are daemons: when Python
    exits, queued calls are dropped.
    """

    def __init__(self, size: int | None = None, python: str = "") -> None:
        self.size = size or default_size()
        self._python = python
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._workers: list[tuple[Worker, threading.Thread]] = []
        self._idle = 0
        self._closed = False
        self._owner = os.getpid()

    @property
    def usable(self) -> bool:
        """Whether `submit` works here: not after `close`, and not in a fork of the process that made the pool."""
        return not self._closed and self._owner == os.getpid()

    def submit(self, function: str, *arguments: Any, timeout: float = DEFAULT_TIMEOUT) -> Future[CallEnd]:
        """Have a worker call `function` ("module:name") with `arguments`. Arguments and result must be picklable."""
        job = _Job(Call(function, arguments), timeout, Future())
        with self._lock:
            if not self.usable:
                raise RuntimeError("the pool of compiler processes is closed, or belongs to another process")
            if self._idle:
                self._idle -= 1
            elif len(self._workers) < self.size:
                self._add_worker()
            self._jobs.put(job)
        return job.future

    def _add_worker(self) -> None:
        worker = Worker(python=self._python)
        thread = threading.Thread(target=self._serve, args=(worker,), name="ptxdiff-compile", daemon=True)
        self._workers.append((worker, thread))
        thread.start()

    def _serve(self, worker: Worker) -> None:
        while (job := self._jobs.get()) is not None:
            outcome: CallEnd | BaseException | None = None
            if job.future.set_running_or_notify_cancel():
                try:
                    outcome = worker.call(job.call, job.timeout)
                except BaseException as error:  # for the caller; raised here, it would end this thread
                    worker.close()
                    outcome = error
            with self._lock:  # before the answer, so that a caller who has it finds this worker free
                self._idle += 1
            if isinstance(outcome, CallEnd):
                job.future.set_result(outcome)
            elif outcome is not None:
                job.future.set_exception(outcome)
        worker.close()

    def pids(self) -> list[int]:
        """The ids of the running processes."""
        return [worker.pid for worker, _ in self._workers if worker.pid]

    def close(self) -> None:
        """End all workers. Calls that have not started are cancelled; calls in progress end without a reply."""
        with self._lock:
            if not self.usable:
                return
            self._closed = True
            workers = list(self._workers)
        with contextlib.suppress(queue.Empty):
            while True:
                if job := self._jobs.get_nowait():
                    job.future.cancel()
        for worker, _ in workers:
            worker.stop()
            self._jobs.put(None)
        for _, thread in workers:
            thread.join(timeout=10)


CPUS_VARIABLE = "PTX_CPUS"
"""The environment variable with the number of CPUs that a cluster's task was given: others run beside it."""


def default_size() -> int:
    """One worker for each CPU, at most four, divided among pytest-xdist's workers, or the tasks of a cluster's node."""
    cpus = int(os.environ.get(CPUS_VARIABLE) or len(os.sched_getaffinity(0)))
    beside = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return max(1, min(MAX_WORKERS, cpus // beside))


def _environment(python: str = "") -> dict[str, str]:
    left_out = ("PYTHONPATH", "PYTHONHOME") if python else ()  # they would put our packages before its own
    kept = {n: v for n, v in os.environ.items() if not changes_compilers(n) and n not in left_out}
    return with_harness(kept)


def theirs_too(path: Sequence[str]) -> tuple[str, ...]:
    """The entries of `sys.path` that an interpreter of another environment needs too: the user's own folders.

    This interpreter's library and packages are left out, and every other folder that holds a Triton.
    """
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    schemes = [sysconfig.get_paths(), sysconfig.get_paths(vars={"base": sys.base_prefix, "platbase": sys.base_prefix})]
    library = {os.path.realpath(paths[n]) for paths in schemes for n in names}
    library |= {os.path.realpath(p) for p in (*site.getsitepackages(), site.getusersitepackages())}

    def ours(entry: str) -> bool:
        path = os.path.realpath(entry)
        inside = any(path == p or path.startswith(f"{p}{os.sep}") for p in library)
        return inside or path.endswith(".zip") or os.path.isfile(os.path.join(path, "triton", "__init__.py"))

    return tuple(p for p in path if not ours(p))


def changes_compilers(variable: str) -> bool:
    """Whether an environment variable changes what Triton compiles. Compiler processes do not get such variables."""
    tool = variable.startswith("TRITON_") and variable.endswith("_PATH")
    return variable.startswith(_DROPPED_PREFIXES) and not tool


def with_harness(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Python finds the harness, and in which compilers put their caches into the harness's."""
    here = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (here, environment.get("PYTHONPATH"))))
    return {**environment, **compilers_caches(), "PYTHONPATH": path}


_shared: dict[tuple[str, str], Pool] = {}
_shared_lock = threading.Lock()


def shared_pool(python: str = "", of: str = "") -> Pool:
    """This process's pool, made by the first call and ended when Python exits. A fork gets its own.

    python: the interpreter of another environment, which has a pool of its own. of: the name of calls that need a
    process which serves no others; their pool has one process.
    """
    with _shared_lock:
        if (python, of) not in _shared or not _shared[python, of].usable:
            _shared[python, of] = Pool(1 if of else None, python)
            atexit.register(_shared[python, of].close)
        return _shared[python, of]


# ---- A call in a fork of this process, for functions that no other process can import --------------------------------
#
# The fork has every module, closure and notebook cell of this process as they are now, so nothing is imported or
# pickled for it. It has one thread. If a compiler aborts, only the fork ends.


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
