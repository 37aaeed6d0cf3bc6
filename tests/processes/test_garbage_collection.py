"""Processes that run cases and compilers collect garbage less often; what they make is still collected."""

from __future__ import annotations

import subprocess
import sys

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
