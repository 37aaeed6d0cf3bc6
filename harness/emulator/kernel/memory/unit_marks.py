"""Counts and states of the units of shared memory, which accesses to ranges of bytes set and test in compiled code.

An access covers neighbouring units from its byte offset on. One pass over the offsets needs neither a table of all
units nor an array for each intermediate result, which took most of the time of copies and of products of matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.numeric.vectorise import Array


def _add(marks: Array, offsets: Array, count: Any, unit: Any, by: Any) -> None:
    """Add `by` to the marks of `count` units from each offset on."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        if count == 4:  # without a loop, twice as fast
            marks[first] += by
            marks[first + 1] += by
            marks[first + 2] += by
            marks[first + 3] += by
            continue
        for at in range(first, first + count):
            marks[at] += by


def _set(marks: Array, offsets: Array, count: Any, unit: Any, to: Any) -> None:
    """Set the marks of `count` units from each offset on."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        for at in range(first, first + count):
            marks[at] = to


def _first(marks: Array, offsets: Array, count: Any, unit: Any, found: Array) -> None:
    """Set found[0] to the number of the first offset from which on any of `count` units is marked."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        if count == 4 and marks[first] | marks[first + 1] | marks[first + 2] | marks[first + 3] == 0:
            continue
        for at in range(first, first + count):
            if marks[at] != 0:
                found[0] = i
                return


def _kinds(last: str) -> Any:
    def kinds(t: Any) -> tuple[Any, ...]:
        wide = t.Array(t.int64, 1, "C", readonly=True)
        written = t.Array(t.int64, 1, "C") if last == "found" else t.int64
        return t.Array(t.int32, 1, "C", readonly=last == "found"), wide, t.int64, t.int64, written

    return kinds


_add_counts = ArrayCode(_add, _kinds("by"))
_set_states = ArrayCode(_set, _kinds("to"))
_first_count = ArrayCode(_first, _kinds("found"))


class _Marks:
    """A mark for each unit of some bytes. `marks`: the array of them. `unit`: bytes."""

    unit: int
    marks: Array

    def _covered(self, offsets: Array, size: int) -> tuple[Array, int, int]:
        return np.ascontiguousarray(offsets.reshape(-1), np.int64), max(size // self.unit, 1), self.unit


class UnitCounts(_Marks):
    """How much work in flight each unit belongs to."""

    def __init__(self, size: int, unit: int) -> None:
        self.unit, self.marks = unit, np.zeros(size // unit, np.int32)
        self._sum = 0

    def add(self, offsets: Array, size: int, by: int) -> None:
        """Add `by` for accesses of `size` bytes at byte offsets, once for each time that an offset occurs."""
        covered = self._covered(offsets, size)
        self._sum += by * offsets.size * covered[1]
        _add_counts(self.marks, *covered, by)

    def first(self, offsets: Array, size: int) -> int:
        """The number of the first access that touches a unit with a count; -1: none does."""
        if not self._sum:
            return -1
        first_index = np.full(1, -1)
        _first_count(self.marks, *self._covered(offsets, size), first_index)
        return int(first_index[0])


class UnitStates(_Marks):
    """A state of each unit, 0 for none, in an array of 32-bit integers that others may read and write too."""

    def __init__(self, states: Array, unit: int) -> None:
        self.unit, self.marks = unit, states

    def set(self, offsets: Array, size: int, to: int) -> None:
        """Set the state of the units that accesses of `size` bytes at byte offsets touch."""
        _set_states(self.marks, *self._covered(offsets, size), to)

    def first(self, offsets: Array, size: int) -> int:
        """The number of the first access that touches a unit with a state; -1: none does."""
        first_index = np.full(1, -1)
        _first_count(self.marks, *self._covered(offsets, size), first_index)
        return int(first_index[0])
