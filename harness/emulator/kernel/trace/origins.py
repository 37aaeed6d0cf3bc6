"""Records the thread that produced each byte of memory, and each cell of tensor memory, while a kernel runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.kernel.tcgen05.memory import TensorMemory
from ptxdiff.emulator.numeric.vectorise import Array

SHARED, LOCAL, TENSOR = "shared memory", "local memory", "tensor memory"
Byte = tuple[str, int]
"""The name of a memory, and the offset of a byte or tensor memory cell in it. Equal in every run of a launch."""
Focus = Byte | str
"""A part of an instruction's result: a byte that it wrote to memory, or the name of a register."""
_NAMES = {"Shared": SHARED, "ClusterShared": SHARED, "LocalMemory": LOCAL, "TensorMemory": TENSOR}


@dataclass(frozen=True, slots=True)
class Stored:
    """The origin of a value: the thread's number in the grid, and the time of the instruction.

    byte: where it was stored; None if not needed. operand: if the value is not a result but a source operand of that
    instruction, which a product or an exchange passes to other threads, the operand's number; else -1.
    """

    thread: int
    time: int
    byte: Byte | None = None
    operand: int = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """A value that an instruction takes from elsewhere than its own thread's registers.

    name: its part in the instruction, in words. value: its bits. stored: its origin; None if no thread of the launch
    made it. memory: where it was read; None if it was in a register.
    """

    name: str
    value: int
    stored: Stored | None
    memory: Byte | None = None


class Takes(Protocol):
    """The values that an instruction takes from elsewhere, recorded when it ran."""

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """The values behind a part of its result, in the order of the computation; None if it has no such part."""


def name_of(region: Any) -> tuple[str, int]:
    """The name of a region, and the offset in it that counts as its first."""
    if isinstance(region, Buffer):
        return region.name or "a buffer", region.residue
    return _NAMES[type(region).__name__], 0


@dataclass(frozen=True)
class Snapshot:
    """Places of a region with the threads that produced their values: arrays of one shape. thread -1: none; place -1:
    no place.

    order: the times at which they were produced.
    """

    name: str
    places: Array
    threads: Array
    order: Array

    def stored(self, at: Any) -> Stored | None:
        """The origin of the value at an index of the arrays."""
        if self.threads[at] < 0:
            return None
        return Stored(int(self.threads[at]), int(self.order[at]), (self.name, int(self.places[at])))

    def taken(self, at: Any, name: str, value: int) -> Taken:
        """The value at an index of the arrays."""
        position = int(self.places[at])
        return Taken(name, value, self.stored(at), (self.name, position) if position >= 0 else None)


class Origins:
    """The origins of the values in each region of memory. Places: byte offsets, or numbers of tensor memory cells."""

    def __init__(self) -> None:
        self._makers: dict[int, tuple[Any, Array, Array]] = {}
        self._coming: dict[int, tuple[Any, Array, Array]] = {}

    def note(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Record that threads produce the values at some places."""
        by, when = _arrays(self._makers, region)
        by[places], when[places] = threads, time

    def expect(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Record that threads issue copies to some places. Two pending copies to one place bring the same bytes."""
        by, when = _arrays(self._coming, region)
        by[places], when[places] = threads, time

    def arrive(self, region: Any, places: Array) -> None:
        """Record that the copies to some places have completed."""
        by, when = _arrays(self._makers, region)
        issued_by, issued = _arrays(self._coming, region)
        by[places], when[places] = issued_by[places], issued[places]

    def of(self, region: Any, places: Array) -> Snapshot:
        """The present origins of the values at some places; none for place -1."""
        name, first = name_of(region)
        by, when = _arrays(self._makers, region)
        inside = places >= 0
        return Snapshot(
            name,
            np.where(inside, places - first, -1),
            np.where(inside, by[places], -1),
            np.where(inside, when[places], 0),
        )

    def last(self, region: Any, places: Array) -> Stored | None:
        """The origin of the newest value at some places; None if no thread produced any of them."""
        newest = self.of(region, places)
        at = int(np.argmax(np.where(newest.threads >= 0, newest.order, -1)))
        return newest.stored(at)


def _arrays(of: dict[int, tuple[Any, Array, Array]], region: Any) -> tuple[Array, Array]:
    if id(region) not in of:  # the region is kept, so that no other one gets its id
        size = len(region.words) if isinstance(region, TensorMemory) else len(region.bytes)
        of[id(region)] = (region, np.full(size, -1, np.int64), np.zeros(size, np.int64))
    _, by, when = of[id(region)]
    return by, when


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
        taken = [self.made.taken(number, "the copied byte", int(self.values[number]))]
        if self.old is not None and self.before is not None:
            taken.insert(0, self.old.taken(number, "the old value", int(self.before[number])))
        return taken


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
