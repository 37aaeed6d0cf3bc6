"""Calls in a fork of this process: they return answers or end, and this process continues."""

import os
import signal
import sys
import threading
import time

import pytest

from ptxdiff.processes.pool import call_in_fork


def test_a_closure_is_called_in_another_process():
    seen = []

    def function(word):
        seen.append(word)
        print("lost")
        return os.getpid(), tuple(seen)

    outcome = call_in_fork(function, "here")
    pid, there = outcome.reply.value
    assert pid != os.getpid()
    assert there == ("here",)
    assert seen == []
    assert outcome.stderr == outcome.ended == ""


def test_an_exception_of_a_call_is_raised_here():
    reply = call_in_fork(lambda: 1 // 0).reply
    assert reply.raised == "ZeroDivisionError"
    assert "Traceback" in reply.trace


@pytest.mark.parametrize(
    ("function", "ended"),
    [
        (os.abort, "aborted (SIGABRT)"),
        (lambda: os._exit(3), "exited with status 3"),
        (lambda: signal.raise_signal(signal.SIGSEGV), "was killed (SIGSEGV)"),
    ],
)
def test_this_process_outlives_a_fork(function, ended, capfd):
    outcome = call_in_fork(function)
    assert outcome.reply is None
    assert outcome.ended == ended
    assert capfd.readouterr() == ("", "")


def test_an_answer_that_does_not_pickle():
    outcome = call_in_fork(lambda: lambda: 0)
    assert outcome.reply is None
    assert "pickle" in outcome.stderr


def test_a_late_answer_ends_the_fork_and_its_processes():
    started = time.monotonic()
    outcome = call_in_fork(os.system, "sleep 60", timeout=0.5)
    assert outcome.ended == "gave no answer in 0.5 s"
    assert time.monotonic() - started < 20


def test_standard_error_is_the_calls_own(capfd):
    outcome = call_in_fork(lambda: print("words", file=sys.stderr))
    assert outcome.stderr == "words\n"
    assert capfd.readouterr().err == ""


def test_settings_of_the_compiler_do_not_reach_a_fork(monkeypatch):
    monkeypatch.setenv("TRITON_ALWAYS_COMPILE", "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/nowhere")
    seen = call_in_fork(lambda: dict(os.environ)).reply.value
    assert "TRITON_ALWAYS_COMPILE" not in seen
    assert seen["TRITON_PTXAS_PATH"] == "/nowhere"
    assert os.environ["TRITON_ALWAYS_COMPILE"] == "1"


def test_threads_may_fork_at_the_same_time():
    answers = []
    threads = [threading.Thread(target=lambda n=n: answers.append(call_in_fork(lambda: n).reply.value)) for n in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(answers) == ["a", "b", "c", "d"]


def test_no_descriptor_stays_open():
    call_in_fork(int)
    before = os.listdir("/proc/self/fd")
    call_in_fork(int)
    call_in_fork(os.abort)
    assert os.listdir("/proc/self/fd") == before
