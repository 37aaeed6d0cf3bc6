"""`python ...` as a fork of the process of `tests/support/readyworkers.py`, for tests that start a process for its
result.

Take a new process if the test is about what a process imports or finds first, or if it sets a variable that Python or a
library reads when it starts.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.readyworkers import OF_A_FORK, ForkedIO

AT_START = ("PYTHONHASHSEED", "PYTHONWARNINGS", "TRITON_INTERPRET", "NUMBA_DISABLE_JIT")


class Forked:
    """The part of `subprocess.Popen` that is used here. words: the command, which begins with this interpreter."""

    def __init__(
        self, words: Sequence[str], files: Sequence[int], folder: str | None, environment: Mapping[str, str] | None
    ) -> None:
        if words[0] != sys.executable:
            raise ValueError(f"{words[0]} is not the interpreter of this process")
        given = os.environ if environment is None else environment
        if unlike := [n for n in AT_START if given.get(n) != os.environ.get(n)]:
            raise ValueError(f"{', '.join(unlike)} counts when Python starts: take a new process")
        self.pid = ForkedIO.origin.fork(files, words[1:], folder=folder, environment=given)
        self.returncode: int | None = None
        self._ended = os.pidfd_open(self.pid)

    def poll(self) -> int | None:
        """The exit status; None while the process runs."""
        if self.returncode is None and not select.select([self._ended], [], [], 0)[0]:
            return None
        return self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("python", timeout or 0.0)
            os.close(self._ended)
            self.returncode = ForkedIO.origin.status(self.pid)
        return self.returncode


class Started(Forked):
    """A command that runs beside the test, with one file for both streams of what it prints."""

    def __init__(self, words: Sequence[str], folder: str, environment: Mapping[str, str] | None) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed when it was read)
        with open(os.devnull) as nothing:
            super().__init__(words, [nothing.fileno(), *[self._said.fileno()] * 2], folder, environment)

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        """Wait for the end, as `subprocess.Popen.communicate`: what it has printed."""
        self.wait(timeout)
        if not self._said.closed:
            self._said.seek(0)
            self.said = self._said.read().decode()
            self._said.close()
        return self.said, None


def run(
    words: Sequence[str], *, cwd: Any = None, env: Mapping[str, str] | None = None, timeout: float = 120.0
) -> subprocess.CompletedProcess[str]:
    """`subprocess.run` with captured text. words: the command, which begins with this interpreter."""
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        files = [nothing.fileno(), out.fileno(), err.fileno()]
        made = Forked(words, files, None if cwd is None else str(cwd), env)
        try:
            made.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(made.pid, signal.SIGKILL)
            raise
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode())
    return subprocess.CompletedProcess(words, made.wait(), *said)


def pytest_of_run(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """In place of `ptxdiff.cli.run._call`: pytest as a fork, with the standard streams of this process."""
    return Forked([*words[:3], *OF_A_FORK, *words[3:]], [0, 1, 2], None, environment).wait(120)


def workers_are_forks(patch: pytest.MonkeyPatch) -> None:
    """Have the processes of `ptxdiff.processes.pool.Worker` start as forks, where a fork is what a new process is.

    Under another program, with another interpreter, or with other variables that count when Python starts, they are
    new processes.
    """

    def started(
        command: Sequence[str], *, stdin: int, stdout: int, stderr: int, pass_fds: Sequence[int],
        env: Mapping[str, str], start_new_session: bool,
    ) -> Forked | subprocess.Popen[bytes]:  # fmt: skip
        assert stdin == stdout == subprocess.DEVNULL
        assert start_new_session
        if command[0] != sys.executable or any(env.get(n) != os.environ.get(n) for n in AT_START):
            return subprocess.Popen(
                command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=pass_fds, env=env, start_new_session=True
            )
        given = {str(file): str(number) for number, file in enumerate(pass_fds, 3)}
        with open(os.devnull, "r+b") as nothing:
            files = [nothing.fileno(), nothing.fileno(), stderr, *pass_fds]
            return Forked([given.get(word, word) for word in command], files, None, env)

    known = {name: getattr(subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
    patch.setattr("ptxdiff.processes.pool.subprocess", SimpleNamespace(Popen=started, **known))
