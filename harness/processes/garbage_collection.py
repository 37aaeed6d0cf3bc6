"""Garbage collections in processes that hold torch, Triton and all case files: a million objects that stay."""

from __future__ import annotations

import atexit
import functools
import gc

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
