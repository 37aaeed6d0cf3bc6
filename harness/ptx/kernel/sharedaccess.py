"""Record accesses to shared memory in compiled code, one after the other, with the same result as `Shared` in numpy.

numpy makes a dozen passes over the accesses of each instruction, which took a tenth of the time of a matrix product.
The definitions in `Shared` remain for clusters, and tests compare this code with them.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from harness.ptx.numeric.bits import scalar
from harness.ptx.numeric.vectorise import Array, on_arrays

_SEVERAL = -100
"""See `harness.ptx.kernel.memory.SEVERAL_WARPS`."""


@scalar
def _warp_of(who: int) -> int:
    if who >= 0:
        return who >> 5
    return -2 - who


@scalar
def _both(one: int, other: int) -> int:
    """The number that stands for two different readers."""
    if _warp_of(one) == _warp_of(other):
        return -2 - _warp_of(one)
    return _SEVERAL


@scalar
def _meets(who: int, when: int, thread: int, block_since: int, warp_since: int) -> bool:
    """Whether nothing orders the access of `who` at time `when` before the thread's access."""
    if when < block_since or who == -1 or who == thread:
        return False
    return not (_warp_of(who) == thread >> 5 and when < warp_since)


def _reads(
    first: Array, count: Any, thread: Array, block_since: Array, warp_since: Array, now: Any,
    writer: Array, written: Array, reader: Array, read: Array, bad: Array,
) -> None:  # fmt: skip
    """`Shared.note_read`, given each access's first unit and `count` units. `bad` (all False before): which conflict
    with a write."""
    noted = np.empty((len(first), count), np.int32)
    changes = np.empty((len(first), count), np.bool_)
    for i in range(len(first)):
        for j in range(count):
            at, who = first[i] + j, thread[i]
            if _meets(writer[at], written[at], who, block_since[i], warp_since[i]):
                bad[i] = True
            old = reader[at]
            noted[i, j] = _both(old, who) if read[at] >= block_since[i] and old != who else who
    for i in range(len(first)):
        for j in range(count):
            reader[first[i] + j] = noted[i, j]
            read[first[i] + j] = now
    # Several threads at once: the entry holds the last thread's number; merge the others' into it.
    torn = True
    while torn:
        torn = False
        for i in range(len(first)):
            for j in range(count):
                left = reader[first[i] + j]
                noted[i, j] = left if left == thread[i] else _both(left, thread[i])
                changes[i, j] = noted[i, j] != left
                torn |= changes[i, j]
        if torn:
            for i in range(len(first)):
                for j in range(count):
                    if changes[i, j]:
                        reader[first[i] + j] = noted[i, j]


def _writes(
    first: Array, count: Any, thread: Array, block_since: Array, warp_since: Array, now: Any,
    writer: Array, written: Array, reader: Array, read: Array, bad: Array, unfenced: Array,
) -> None:  # fmt: skip
    """`Shared.note_write`. `bad` (all False before): which conflict with another thread's access."""
    for i in range(len(first)):
        for j in range(count):
            at, who = first[i] + j, thread[i]
            if _meets(writer[at], written[at], who, block_since[i], warp_since[i]):
                bad[i] = True
            if _meets(reader[at], read[at], who, block_since[i], warp_since[i]):
                bad[i] = True
    for i in range(len(first)):
        for j in range(count):
            at = first[i] + j
            writer[at], written[at], unfenced[at] = thread[i], now, True


_lock = threading.Lock()
_made: list[Any] = []


def compiled() -> tuple[Any, Any]:
    """`_reads` and `_writes` as machine code, which is compiled once and cached on disk."""
    with _lock:
        if not _made:
            import numba

            wide = numba.types.Array(numba.int64, 1, "C", readonly=True)
            narrow, flags = (numba.types.Array(t, 1, "C") for t in (numba.int32, numba.bool_))
            known = (wide, numba.int64, wide, wide, wide, numba.int64, narrow, narrow, narrow, narrow, flags)
            _made[:] = [on_arrays(_reads, known), on_arrays(_writes, (*known, flags))]
    return _made[0], _made[1]
