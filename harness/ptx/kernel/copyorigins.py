"""The bytes that copies, atomics and stores of matrices take (cp.async, cp.async.bulk, atom, stmatrix)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ptxdiff.ptx.kernel.origins import Focus, Snapshot, Stored, Taken
from ptxdiff.ptx.numeric.vectorise import Array


@dataclass
class CopyTaken:
    """A copy: each byte, or cell, of the destination comes from the source or is a filler. Arrays have an entry for
    each.

    name, to: the destination. values: the copied bytes. made: the places of the source, with their origins. old,
    before: for a reduction, the origins and values at the destination; None until it completes, and for a plain copy.
    """

    name: str
    to: Array
    values: Array
    made: Snapshot
    old: Snapshot | None = None
    before: Array | None = None

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if focus[0] != self.name:
            return None
        at = np.flatnonzero(self.to == focus[1])
        if not len(at):
            return None
        number = int(at[0])
        found = [self.made.taken(number, "the copied byte", int(self.values[number]))]
        if self.old is not None and self.before is not None:
            found.insert(0, self.old.taken(number, "the old value", int(self.before[number])))
        return found


@dataclass(frozen=True)
class OldTaken:
    """An atomic: the old value at its address, behind the register that gets it and the bytes that it writes."""

    register: str
    name: str
    first: int
    size: int
    found: Taken

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if isinstance(focus, str):
            return [self.found] if focus == self.register else None
        inside = focus[0] == self.name and self.first <= focus[1] < self.first + self.size
        return [self.found] if inside else None


@dataclass(frozen=True)
class OperandTaken:
    """A store of many registers: each place gets its value from one operand of one thread.

    name, places: the destination. operands: the number of the operand for each place. values: the stored values.
    """

    name: str
    places: Array
    operands: Array
    values: Array
    thread: int
    time: int

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        if focus[0] != self.name:
            return None
        at = np.flatnonzero(self.places == focus[1])
        if not len(at):
            return None
        number = int(at[0])
        stored = Stored(self.thread, self.time, operand=int(self.operands[number]))
        return [Taken("the register that is stored", int(self.values[number]), stored)]


@dataclass(frozen=True)
class RegistersTaken:
    """A load from tensor memory, or of matrices: the values that each register gets."""

    taken: dict[str, tuple[Taken, ...]]

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """See `Takes`."""
        return self.taken.get(focus) if isinstance(focus, str) else None
