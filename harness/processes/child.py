"""Runs a GPU in a process of its own, under a watchdog. A kernel that crashes it leaves this process and its results.

    device = of_target("sm_90a")
    value = device.call("ptxdiff.timing.session:time_case", path, "case", "sm_90a", limit=600.0, alone=True)

The process owns the CUDA context. A process that crashes, does not answer in time, or whose context a kernel destroyed,
is killed with all that it started; the next call starts another.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ptxdiff.processes.gpus import Gpu, gpus, lock_alone, lock_shared, share, worker_number
from ptxdiff.processes.pool import Worker
from ptxdiff.processes.worker import Call, resolve

PLAIN_LIMIT = 60.0
SWEEP_LIMIT = 600.0
START_LIMIT = 180.0

_LAST_WORDS = 200  # characters of standard error that a reason quotes


class DeviceFault(RuntimeError):
    """Why a call has no result, in one line: its process crashed, did not answer in time, or lost its GPU."""


@dataclass(frozen=True)
class Answer:
    """The answer of the GPU's process.

    raised: the exception, if the call raised one. trace: its traceback. lost: the fault of the CUDA context after the
    call, with which nothing more can run in the process; "" if it has none.
    """

    value: Any = None
    raised: Exception | None = None
    trace: str = ""
    lost: str = ""


class Process:
    """A process that answers calls, under a watchdog. One thread at a time may use it; any thread may `stop` it.

    environment: of the process. prefix: a program to run it under. name: its name in error messages. option: the
    command-line option that sets the limit, for error messages.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        prefix: Sequence[str] = (),
        *,
        name: str = "the process",
        option: str = "--ptx-limit",
    ) -> None:
        self._worker = Worker(environment, prefix)
        self._name, self._option = name, option
        self._owner = os.getpid()

    def call(self, function: str, *arguments: Any, limit: float) -> Any:
        """The value that `function` ("module:name") returns for `arguments` in the process. All of them must be
        picklable.

        limit: seconds allowed for the call, without the start of the process. An exception of the function is raised
        here too, with its traceback as a note. Raises DeviceFault if there is no answer.
        """
        if self._worker.pid is None:
            self._start()
        return _value(self._ask(function, arguments, limit))

    def _start(self) -> None:
        """Wait until the process answers. Raises DeviceFault."""
        self._ask(f"{__name__}:ready", (), START_LIMIT)

    def _ask(self, function: str, arguments: tuple[Any, ...], limit: float) -> Answer:
        if self._owner != os.getpid():
            raise RuntimeError("a device belongs to the process that made it")
        outcome = self._worker.call(Call(f"{__name__}:answer", (function, arguments)), limit)
        if outcome.reply is None:
            raise DeviceFault(self._reason(outcome.ended, outcome.stderr, limit))
        if outcome.reply.raised:  # such as a result that cannot be pickled
            raise DeviceFault(f"{outcome.reply.raised}: {outcome.reply.message}")
        answer = outcome.reply.value
        assert isinstance(answer, Answer)
        if answer.lost:
            self.close()
        return answer

    def _reason(self, ended: str, stderr: str, limit: float) -> str:
        """One line for a process that did not answer."""
        if ended.startswith("gave no answer"):
            hangs = f"no end after {limit:g} s: the kernel hangs, or needs a greater {self._option}"
            return f"{hangs}; its process was killed"
        said = [line.strip() for line in stderr.splitlines() if line.strip()]
        last = f": {said[-1][:_LAST_WORDS]}" if said else ""
        killed = "; the system does that when its memory runs out" if signal.Signals.SIGKILL.name in ended else ""
        return f"{self._name} {ended}{killed}{last}"

    def stop(self) -> None:
        """Kill the process for good. A call in progress raises DeviceFault. Any thread may call this."""
        self._worker.stop()

    def close(self) -> None:
        """End the process; the next call starts another."""
        if self._owner == os.getpid():
            self._worker.close()


_OF_PTXAS = ("DISABLE_PTXAS_OPT", "PTXAS_OPTIONS")
"""Variables that change how Triton calls ptxas at a launch: records would name another level than the one used."""


class Device(Process):
    """One GPU and the process that works on it.

    prefix: a program to run the process under. variables: added to its environment. begin: the function that a new
    process calls first. option: the command-line option that sets the limit.
    """

    def __init__(
        self,
        gpu: Gpu,
        prefix: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
        begin: str = f"{__name__}:begin",
        option: str = "--ptx-limit",
    ) -> None:
        ours = {name: value for name, value in os.environ.items() if name not in _OF_PTXAS}
        environment = {**ours, "CUDA_VISIBLE_DEVICES": gpu.visible, **(variables or {})}
        super().__init__(environment, prefix, name="the process on the GPU", option=option)
        self.gpu, self._begin = gpu, begin
        self.started = 0.0
        """Seconds that the last start of the process took, including the CUDA context."""

    def call(self, function: str, *arguments: Any, limit: float, alone: bool = False) -> Any:
        """See `Process.call`. Waiting for the GPU does not count towards the limit either.

        alone: keep every other ptxdiff process of this user off the GPU during the call.
        """
        with lock_alone(self.gpu.uuid) if alone else lock_shared(self.gpu.uuid):
            return super().call(function, *arguments, limit=limit)

    def _start(self) -> None:
        began = time.monotonic()
        answer = self._ask(self._begin, (), START_LIMIT)
        if answer.raised is not None:
            self.close()
            raise DeviceFault(f"{self.gpu.name}: no CUDA context: {answer.raised}")
        self.started = time.monotonic() - began


def _value(answer: Answer) -> Any:
    """The value that a call returned; if it raised an exception, that is raised."""
    if answer.raised is not None:
        if answer.trace:
            answer.raised.add_note(answer.trace)
        raise answer.raised
    return answer.value


_devices: dict[tuple[Gpu, tuple[str, ...]], Device] = {}


def of_target(target: str, prefix: Sequence[str] = (), variables: Mapping[str, str] | None = None) -> Device | None:
    """This process's device for a target, the same one in every call; None if the host has none.

    The workers of pytest-xdist share the GPUs of a target round robin.
    """
    gpu = share(gpus(), target, worker_number())
    if gpu is None:
        return None
    key = (gpu, tuple(prefix))
    device = _devices.get(key)
    if device is None or device._owner != os.getpid():
        device = _devices[key] = Device(gpu, prefix, variables)
        atexit.register(device.close)
    return device


def close_all() -> None:
    """End the processes on all GPUs that this process has used, because it was given others."""
    for device in _devices.values():
        device.close()
    _devices.clear()


# ---- in the GPU's process ----------------------------------------------------------------------------------------


def ready() -> None:
    """Do nothing: the answer shows that the process has started."""


def begin() -> None:
    """Make the CUDA context. Raises RuntimeError if torch finds no device."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("torch finds no CUDA device")
    torch.cuda.synchronize()


def answer(function: str, arguments: tuple[Any, ...]) -> Answer:
    """Call a function, then check that the CUDA context still works."""
    try:
        reply = Answer(resolve(function)(*arguments))
    except Exception as error:
        reply = Answer(raised=_sendable(error), trace=traceback.format_exc())
    lost = _fault()
    return Answer(reply.value, reply.raised, reply.trace, lost) if lost else reply


def _fault() -> str:
    """The fault of the CUDA context; "" if it has none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    try:
        torch.cuda.synchronize()
    except RuntimeError as error:
        return str(error).partition("\n")[0] or type(error).__name__
    return ""


def _sendable(error: Exception) -> Exception:
    """The exception, or one with the same message if it cannot be pickled."""
    with contextlib.suppress(Exception):
        copy = pickle.loads(pickle.dumps(error))
        if type(copy) is type(error) and str(copy) == str(error):
            return error
    return RuntimeError(f"{type(error).__name__}: {error}")
