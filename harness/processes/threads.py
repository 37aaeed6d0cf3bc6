"""The number of threads that torch and numba use in processes that share a machine."""

from __future__ import annotations

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
        if variable not in environment:
            environment[variable] = str(share)
            if library in sys.modules:  # too late for the variable
                sys.modules[library].set_num_threads(share)
