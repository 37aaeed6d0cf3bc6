"""Forks that stand for new processes behave as those do."""

import os
import signal
import subprocess
import sys

import pytest

from ptxdiff.processes.pool import Worker
from ptxdiff.processes.worker import Call
from tests.support.readyprocess import run, workers_are_forks

PROGRAM = """
import os, sys
from pathlib import Path
print(sys.argv[1:], Path.cwd(), os.environ.get("GIVEN"), __name__)
print("to standard error", file=sys.stderr)
import beside
print(beside.__file__, [n for n in sys.modules if n.startswith("tests")])
sys.exit(3)
"""


def new(words, **options):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120, **options)


@pytest.mark.parametrize("how", ["script", "-m", "-c"])
def test_a_fork_says_and_returns_what_a_new_process_does(tmp_path, how):
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "program.py").write_text(PROGRAM)
    words = {"script": ["program.py"], "-m": ["-m", "program"], "-c": ["-c", PROGRAM]}[how]
    environment = {**os.environ, "GIVEN": "yes"}
    found, right = (r([sys.executable, *words, "a", "b"], cwd=tmp_path, env=environment) for r in (run, new))
    assert (found.returncode, found.stdout, found.stderr) == (right.returncode, right.stdout, right.stderr)
    assert found.returncode == 3
    assert "yes" in found.stdout


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("raise KeyError('missing')", 1),
        ("import sys; sys.exit('words')", 1),
        ("import os; os.kill(os.getpid(), 9)", -9),
    ],
)
def test_how_it_ended_is_the_same(text, status):
    found, right = (r([sys.executable, "-c", text]) for r in (run, new))
    assert found.returncode == right.returncode == status
    assert found.stderr.splitlines()[-1:] == right.stderr.splitlines()[-1:]


def test_a_process_that_does_not_end_is_killed():
    with pytest.raises(subprocess.TimeoutExpired):
        run([sys.executable, "-c", "import time; time.sleep(600)"], timeout=0.2)


def test_what_counts_when_python_starts_is_refused():
    with pytest.raises(ValueError, match="PYTHONHASHSEED counts when Python starts"):
        run([sys.executable, "-c", ""], env={**os.environ, "PYTHONHASHSEED": "77"})


def test_a_worker_that_is_a_fork_answers_and_is_replaced(monkeypatch):
    workers_are_forks(monkeypatch)
    worker = Worker()
    assert worker.call(Call("os:getcwd", ()), 60).reply.value == os.getcwd()
    before = worker.pid
    assert worker.call(Call("os:kill", (before, signal.SIGKILL)), 60).ended == "was killed (SIGKILL)"
    with pytest.raises(ProcessLookupError):
        os.kill(before, 0)
    assert worker.call(Call("os:_exit", (7,)), 60).ended == "exited with status 7"
    worker.close()
