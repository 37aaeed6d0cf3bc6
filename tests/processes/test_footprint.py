"""Processes that run cases and compilers collect garbage less often; what they make is still collected."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from ptxdiff.processes.footprint import share_cores

SCRIPT = """
import gc, weakref
from ptxdiff.processes.footprint import THRESHOLDS, collect_seldom

class Cycle:
    def __init__(self):
        self.me = self

collect_seldom()
frozen = gc.get_freeze_count()
collect_seldom()  # in a process with several runs, each would keep the garbage of those before it
assert gc.get_freeze_count() == frozen
assert gc.get_threshold() == THRESHOLDS and gc.get_freeze_count() > 1000
later = weakref.ref(Cycle())
assert later() is not None
gc.collect()
assert later() is None
for _ in range(20 * THRESHOLDS[0]):  # without an explicit collection, too
    Cycle()
assert gc.get_stats()[0]["collections"] > 0 and gc.get_count()[0] <= THRESHOLDS[0] + 1
print("done")
"""


def test_what_is_made_later_is_collected():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")


# ---- Processes that share a machine share its cores ------------------------------------------------------------------

SHOWN = """
import torch

def test_threads():
    print("threads:", torch.get_num_threads())
    assert False
"""


@pytest.mark.parametrize(("cores", "processes", "share"), [(2, 2, 1), (8, 2, 4), (8, 3, 2), (2, 5, 1)])
def test_each_process_gets_its_share(monkeypatch, cores, processes, share):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    limits = []
    fake = type("Library", (), {"set_num_threads": staticmethod(limits.append)})
    monkeypatch.setitem(sys.modules, "torch", fake)
    monkeypatch.delitem(sys.modules, "numba", raising=False)
    environment = {}
    share_cores(processes, environment)
    assert environment == {"OMP_NUM_THREADS": str(share), "NUMBA_NUM_THREADS": str(share)}
    assert limits == [share]
    share_cores(processes, environment)
    assert limits == [share]


BEHIND_AN_IMPORT = """
import os
os.environ.pop("NUMBA_NUM_THREADS", None)
os.sched_getaffinity = lambda process: set(range(4))
import numba
from ptxdiff.processes.footprint import share_cores

@numba.njit(parallel=True)
def one(x):
    return x + 1

{before}
share_cores(4)
print(one(1), numba.get_num_threads(), os.environ.get("NUMBA_NUM_THREADS"))
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", "2 1 1"),
        ("numba.set_num_threads(3)", "2 1 None"),  # its threads run: a variable that differs would refuse compilations
    ],
)
def test_numba_that_was_imported_before_still_compiles(before, shown):
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", BEHIND_AN_IMPORT.format(before=before)], capture_output=True, text=True
    )
    assert done.stdout.strip() == shown, done.stderr


def test_a_limit_of_the_user_is_kept(monkeypatch):
    fake = type("Library", (), {"set_num_threads": staticmethod(pytest.fail)})
    monkeypatch.setitem(sys.modules, "torch", fake)
    environment = {"OMP_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "3"}
    share_cores(2, environment)
    assert environment == {"OMP_NUM_THREADS": "7", "NUMBA_NUM_THREADS": "3"}


STAND_IN = """
import os

threads = int(os.environ.get("OMP_NUM_THREADS", len(os.sched_getaffinity(0))))

def set_num_threads(number):
    global threads
    threads = number

def get_num_threads():
    return threads
"""


@pytest.mark.sample(2)
@pytest.mark.skipif(len(getattr(os, "sched_getaffinity", lambda pid: "1")(0)) < 2, reason="needs two cores")
@pytest.mark.parametrize("library", [STAND_IN, pytest.param("", marks=pytest.mark.slow)], ids=["stand-in", "torch"])
@pytest.mark.parametrize("imported", ["", "import torch\n"])
def test_workers_of_pytest_xdist_share_the_cores(pytester, monkeypatch, imported, library):
    """This holds even if a conftest imports torch before the plugin is configured.

    A stand-in reads its limit when torch does. Torch itself is slow: each process takes seconds to import it.
    """
    outer = ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT")  # this test may itself run in a worker
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", *outer):
        monkeypatch.delenv(name, raising=False)
    if library:
        pytester.makepyfile(torch=library)
    pytester.makeconftest(imported)
    pytester.makepyfile(SHOWN)
    cores = len(os.sched_getaffinity(0))
    result = pytester.runpytest_subprocess("-n", str(cores), "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["threads: 1"])
