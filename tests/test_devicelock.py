"""The lock of a GPU, between processes: one that times is alone, and is not starved by those that compute."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness import devicelock

HOLD = """
import sys, time
from harness import devicelock
with getattr(devicelock, sys.argv[1])(sys.argv[2]):
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
        root = Path(__file__).resolve().parents[1]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=root)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def held(process):
    return process.stdout.readline() == "held\n"


def release(process):
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def waits(process):
    time.sleep(0.5)
    return process.poll() is None


def test_who_computes_shares_and_who_times_waits_for_all_of_them(start):
    one, two = start("shared"), start("shared")
    assert held(one)
    assert held(two)
    timing = start("alone")
    assert waits(timing)
    release(one)
    assert waits(timing)
    release(two)
    assert held(timing)


def test_who_computes_waits_for_who_times(start):
    timing = start("alone")
    assert held(timing)
    other = start("shared")
    assert waits(other)
    release(timing)
    assert held(other)


def test_latecomers_do_not_overtake_who_wants_to_time(start):
    one = start("shared")
    assert held(one)
    timing = start("alone")
    assert waits(timing)
    late = start("shared")
    assert waits(late)
    release(one)
    assert held(timing)
    release(timing)
    assert held(late)


def test_a_killed_process_leaves_no_lock(start):
    timing = start("alone")
    assert held(timing)
    timing.kill()
    timing.wait()
    assert held(start("alone"))


def test_gpus_do_not_wait_for_each_other(start):
    assert held(start("alone", "GPU-1"))
    assert held(start("alone", "GPU-2"))
    with devicelock.alone("GPU-3"), devicelock.shared("GPU-4"):
        pass
