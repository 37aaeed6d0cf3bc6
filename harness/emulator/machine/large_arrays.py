"""Arrays of zeros in large pages, for tables of megabytes that a frame keeps.

The first use of each page of memory costs some microseconds, and in a fork that of freed memory costs a copy too. Pages
of two megabytes are 512 times fewer.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

LEAST = 1 << 21
"""The least number of bytes that gets pages of its own: that of a large page on most processors."""


def zeros(shape: int | tuple[int, ...], kind: Any) -> NDArray[Any]:
    """A new array of zeros of a shape and dtype. Memory that nobody uses costs nothing, if the array is large."""
    count = math.prod(shape) if isinstance(shape, tuple) else shape
    size = count * np.dtype(kind).itemsize
    if size < LEAST or not hasattr(mmap, "MAP_ANONYMOUS"):
        return np.zeros(shape, kind)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)
    try:
        memory = mmap.mmap(-1, size, flags=flags)
    except OSError:
        return np.zeros(shape, kind)  # or the MemoryError of numpy
    with contextlib.suppress(AttributeError, OSError):  # of systems without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, kind, count).reshape(shape)


def full(count: int, value: int, kind: Any) -> NDArray[Any]:
    """A new array of a length and dtype with one value."""
    made = zeros(count, kind)
    made.fill(value)
    return made
