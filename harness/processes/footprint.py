"""What processes spare that share a machine and hold torch, Triton and all case files: threads, garbage
collections, freed memory."""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import os
import sys
from collections.abc import MutableMapping

LIMITS = {"torch": "OMP_NUM_THREADS", "numba": "NUMBA_NUM_THREADS"}
"""For each library, the environment variable that limits its threads. It is read when the library is imported."""


def share_cores(processes: int, environment: MutableMapping[str, str] = os.environ) -> None:
    """Limit the threads of this process, and of those that it starts, to its share of the machine's cores.

    Without a limit torch starts a thread for each core in every process, and its threads spin while they wait for each
    other: two processes on two cores took 18 times as long as with one thread each. A limit in the environment is kept.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    share = max(1, cores // processes)
    for library, variable in LIMITS.items():
        if variable in environment:
            continue
        environment[variable] = str(share)
        if library not in sys.modules:
            continue
        if library == "numba":
            _read_again(environment)
        sys.modules[library].set_num_threads(share)  # it was imported: too late for the variable


def _read_again(environment: MutableMapping[str, str]) -> None:
    """Let numba read its variable now, as the next compilation would; remove the variable if numba's threads run.

    A compilation fails where threads run and the variable has changed since.
    """
    from numba.core import config

    try:
        config.reload_config()
    except RuntimeError:
        del environment[LIMITS["numba"]]


# ---- Garbage collections ---------------------------------------------------------------------------------------------
#
# A million objects stay in processes that hold torch, Triton and all case files.


THRESHOLDS = (20_000, 20, 20)
"""As of `gc.set_threshold`. Python's own begin a collection after 700 new objects."""


@functools.cache
def collect_seldom() -> None:
    """Exclude the objects of this process from garbage collections, and collect less often. Only the first call counts.

    Call this after imports, when little is garbage: what is garbage then stays. Objects made later are collected as
    before. Collections took an eighth of the time of a process that runs items, and a twelfth of a compile worker's.
    """
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    atexit.register(gc.unfreeze)  # else Triton's binding reports the frozen objects as leaks


_paused = False


def pause_collections() -> None:
    """Begin no garbage collection until `resume_collections`: of what case files and torch make, little is garbage.

    Collections took a sixth of the time until the first result of a run.
    """
    global _paused
    if gc.isenabled():
        gc.disable()
        _paused = True


def resume_collections() -> None:
    """Collect garbage again, if `pause_collections` ended that."""
    global _paused
    if _paused:
        gc.enable()
        _paused = False


# ---- Give freed memory back to the system ----------------------------------------------------------------------------


def give_back() -> None:
    """Return what this process has freed. glibc alone keeps it: after a sweep in chunks of a million inputs, a process
    of 600 MB would hold 6 GB, and so would each of its siblings. Does nothing with another C library."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
