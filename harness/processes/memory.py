"""Give freed memory back to the system."""

from __future__ import annotations

import ctypes
import sys


def give_back() -> None:
    """Return what this process has freed. glibc alone keeps it: after a sweep in chunks of a million inputs, a process
    of 600 MB would hold 6 GB, and so would each of its siblings. Does nothing with another C library."""
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
