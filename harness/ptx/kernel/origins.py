"""Who made each byte of memory, and each cell of tensor memory, while a kernel runs.

A byte belongs to the thread that stored it and to the time of that instruction. Bytes that an asynchronous copy brings
belong to the thread and the time of its issue, though they are written when the copy lands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from harness.ptx.kernel.memory import Buffer
from harness.ptx.kernel.tensormemory import TensorMemory
from harness.ptx.numeric.vectorise import Array

SHARED, LOCAL, TENSOR = "shared memory", "local memory", "tensor memory"
Byte = tuple[str, int]
"""The name of a memory and a place in it: a byte, of tensor memory a cell. Equal in every run of a launch."""
Focus = Byte | str
"""The part of an instruction's result that is asked about: a byte that it left in memory, or a register by its name."""
_NAMES = {"Shared": SHARED, "ClusterShared": SHARED, "LocalMemory": LOCAL, "TensorMemory": TENSOR}


@dataclass(frozen=True, slots=True)
class Stored:
    """Who made a value: the thread's number in the grid, and the time of the instruction.

    byte: the place where it was left; None where nothing asks. operand: in the place of a result the number of an
    operand of that thread's instruction, which a product or an exchange takes to other threads; -1: none.
    """

    thread: int
    time: int
    byte: Byte | None = None
    operand: int = -1


@dataclass(frozen=True, slots=True)
class Taken:
    """A value that an instruction takes from elsewhere than its own thread's registers.

    name: what it is to the instruction, in words. value: its bits. stored: who made it; None where no thread of the
    launch did. memory: where it was found; None where that was a register.
    """

    name: str
    value: int
    stored: Stored | None
    memory: Byte | None = None


class Takes(Protocol):
    """What an instruction takes from elsewhere, noted when it ran."""

    def of(self, focus: Focus) -> Sequence[Taken] | None:
        """All that a part of its result is made of, in the order of the computation; None: it does not make it."""


def name_of(region: Any) -> tuple[str, int]:
    """What a region is called, and the place in it that counts as its first."""
    if isinstance(region, Buffer):
        return region.name or "a buffer", region.residue
    return _NAMES[type(region).__name__], 0


@dataclass(frozen=True)
class Snapshot:
    """Places of a region, and who had made what was there: arrays of one shape. thread -1: nobody; place -1: no place.

    order: the time at which each was made.
    """

    name: str
    places: Array
    threads: Array
    order: Array

    def stored(self, at: Any) -> Stored | None:
        """Who made what lies at an index of the arrays."""
        if self.threads[at] < 0:
            return None
        return Stored(int(self.threads[at]), int(self.order[at]), (self.name, int(self.places[at])))

    def taken(self, at: Any, name: str, value: int) -> Taken:
        """The value at an index of the arrays."""
        place = int(self.places[at])
        return Taken(name, value, self.stored(at), (self.name, place) if place >= 0 else None)


class Origins:
    """Who made what lies in each region of memory. Places are offsets in it, of tensor memory numbers of cells."""

    def __init__(self) -> None:
        self._makers: dict[int, tuple[Any, Array, Array]] = {}
        self._coming: dict[int, tuple[Any, Array, Array]] = {}

    def note(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Threads make what lies at some places."""
        by, when = _arrays(self._makers, region)
        by[places], when[places] = threads, time

    def expect(self, region: Any, places: Array, threads: Array | int, time: int) -> None:
        """Threads issue copies to some places. Two that are under way to one place bring the same bytes."""
        by, when = _arrays(self._coming, region)
        by[places], when[places] = threads, time

    def arrive(self, region: Any, places: Array) -> None:
        """What was issued has come."""
        by, when = _arrays(self._makers, region)
        issued_by, issued = _arrays(self._coming, region)
        by[places], when[places] = issued_by[places], issued[places]

    def of(self, region: Any, places: Array) -> Snapshot:
        """Who has made what lies at some places now; of place -1 nobody has."""
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
        """Who made the newest of what lies at some places; None where nobody made any."""
        found = self.of(region, places)
        at = int(np.argmax(np.where(found.threads >= 0, found.order, -1)))
        return found.stored(at)


def _arrays(of: dict[int, tuple[Any, Array, Array]], region: Any) -> tuple[Array, Array]:
    if id(region) not in of:  # the region is kept, so that no other one gets its id
        size = len(region.words) if isinstance(region, TensorMemory) else len(region.bytes)
        of[id(region)] = (region, np.full(size, -1, np.int64), np.zeros(size, np.int64))
    _, by, when = of[id(region)]
    return by, when
