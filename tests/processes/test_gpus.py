"""The lock of a GPU, between processes: one that times has the GPU alone, and is not starved by those that compute."""

import select
import subprocess
import sys
from pathlib import Path

import pytest

from ptxdiff.processes.gpus import lock_alone, lock_shared

HOLD = """
import sys
from ptxdiff.processes import gpus
print("asks", flush=True)
with getattr(gpus, sys.argv[1])(sys.argv[2]):
    print("held", flush=True)
    sys.stdin.readline()
print("done", flush=True)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    started = []

    def begin(how, device="GPU-1"):
        words = [sys.executable, "-c", HOLD, how, device]
        root = Path(__file__).resolve().parents[2]
        # Unbuffered, because `select` would not see a line that was read together with the one before it.
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=root)
        started.append(process)
        assert process.stdout.readline() == b"asks\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def held(process):
    return process.stdout.readline() == b"held\n"


def release(process):
    process.stdin.write(b"\n")
    assert process.stdout.readline() == b"done\n"


def waits(process):
    """Check that the process has asked for the lock and does not get it for some time."""
    return not select.select([process.stdout], [], [], 0.3)[0]


def test_computing_processes_share_and_a_timing_process_waits_for_all_of_them(start):
    one, two = start("lock_shared"), start("lock_shared")
    assert held(one)
    assert held(two)
    timing = start("lock_alone")
    assert waits(timing)
    release(one)
    assert waits(timing)
    release(two)
    assert held(timing)


def test_a_computing_process_waits_for_a_timing_process(start):
    timing = start("lock_alone")
    assert held(timing)
    other = start("lock_shared")
    assert waits(other)
    release(timing)
    assert held(other)


def test_later_processes_do_not_overtake_a_waiting_timing_process(start):
    one = start("lock_shared")
    assert held(one)
    timing = start("lock_alone")
    assert waits(timing)
    late = start("lock_shared")
    assert waits(late)
    release(one)
    assert held(timing)
    release(timing)
    assert held(late)


def test_a_killed_process_leaves_no_lock(start):
    timing = start("lock_alone")
    assert held(timing)
    timing.kill()
    timing.wait()
    assert held(start("lock_alone"))


def test_gpus_do_not_wait_for_each_other(start):
    assert held(start("lock_alone", "GPU-1"))
    assert held(start("lock_alone", "GPU-2"))
    with lock_alone("GPU-3"), lock_shared("GPU-4"):
        pass
