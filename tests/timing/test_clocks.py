"""Clocks are read from NVML or nvidia-smi, with the reasons for limits; without both they are unknown."""

import subprocess

import pytest

from ptxdiff.timing import session
from ptxdiff.timing.session import Clocks, Reading


@pytest.fixture
def without_nvml(monkeypatch):
    monkeypatch.setattr(session, "_nvml", lambda uuid: None)


class Nvml:
    """A stand-in for pynvml, with the three functions that are called."""

    def __init__(self, reasons):
        self.reasons = iter(reasons)

    def nvmlDeviceGetClockInfo(self, handle, which):
        return {1: 1980, 2: 3201}[which]

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle):
        return next(self.reasons)


def test_nvml_gives_the_clocks_and_the_limits(monkeypatch):
    monkeypatch.setattr(session, "_nvml", lambda uuid: (Nvml([0x01, 0x04, 0x20 | 0x01]), None))
    found = Clocks("GPU-1")
    for _ in range(3):
        found.read()
    assert found.summary == {"sm_min": 1980, "sm_max": 1980, "memory": 3201}
    assert found.limits == ("power cap", "thermal (software)")


def test_an_idle_or_a_fixed_clock_is_no_limit():
    found = Clocks.__new__(Clocks)
    found.readings = [Reading(345, 3201, 0x01 | 0x02)]
    assert found.limits == ()


def test_nvidia_smi_answers_where_nvml_is_not_installed(monkeypatch, without_nvml):
    calls = []

    def run(words, **options):
        calls.append(words)
        old = "event" in words[3]  # a driver that knows only the older name
        return subprocess.CompletedProcess(
            words, 1 if old else 0, "" if old else "1755, 2619, 0x0000000000000008\n", ""
        )

    monkeypatch.setattr(session.subprocess, "run", run)
    found = Clocks("GPU-1")
    found.read()
    assert found.summary == {"sm_min": 1755, "sm_max": 1755, "memory": 2619}
    assert found.limits == ("hardware slowdown",)
    assert all("GPU-1" in words for words in calls)


def test_without_nvml_and_nvidia_smi_the_clocks_are_unknown(monkeypatch, without_nvml):
    def run(words, **options):
        raise FileNotFoundError(words[0])

    monkeypatch.setattr(session.subprocess, "run", run)
    found = Clocks("GPU-1")
    found.read()
    assert found.summary == {}
    assert found.limits == ()
