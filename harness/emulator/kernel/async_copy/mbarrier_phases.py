"""The state of a barrier in shared memory (mbarrier; ISA 9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.numeric.vectorise import Array

_PHASES = 64
"""The most phases of one mbarrier that are kept although no thread has seen them complete."""


@dataclass(frozen=True)
class Completed:
    """A complete phase: its number, the time of its last moment, and the vector clock that its arrivals released.

    `copies`: whether bytes of copies were among what it waited for.
    """

    phase: int
    time: int
    released: Array
    copies: bool


@dataclass
class Barrier:
    """The state of one mbarrier: the arrivals that a phase needs, the arrivals and bytes still pending, and the phase's
    number.

    `init_lane`, `init_time`: which lane initialised it, and when. `fenced`: whether fence.mbarrier_init followed.
    `released`: the vector clock that the arrivals of all phases released. `agent`: the member that stands for the ends
    of phases and for the bytes of copies that arrive. `history`: the last phases, at least those after `observed`,
    which some thread saw complete. `copies`: whether copies have reported to this phase. `owed`: the arrivals that
    copies under way (cp.async) owe.
    """

    expected: int
    pending: int
    phase: int = 0
    bytes: int = 0
    init_time: int = 0
    init_lane: int = -1
    fenced: bool = False
    agent: int = 0
    observed: int = -1
    copies: bool = False
    owed: int = 0
    released: Array | None = None
    history: list[Completed] = field(default_factory=list)

    def settle(self, order: HappensBefore) -> None:
        """Begin the next phase if this one is complete."""
        if self.pending or self.bytes:
            return
        now = order.tick()
        released = order.join(self.released, np.zeros(order.vectors.shape[1], np.int32))
        released[self.agent] = now
        self.released = released
        if len(self.history) > 1 and (self.history[0].phase <= self.observed or len(self.history) > _PHASES):
            del self.history[0]
        self.history.append(Completed(self.phase, now - 1, released.copy(), self.copies))
        self.phase += 1
        self.pending, self.copies = self.expected, False

    def arrive(self, order: HappensBefore, released: Array) -> None:
        """Join the vector clock that an arrival releases."""
        self.released = order.join(self.released, released)

    def unordered(self, vector: Array) -> list[tuple[Completed, int]]:
        """The complete phases that do not happen before a thread with this vector clock; with each the only member
        whose arrival does not, or -1.

        A phase happens before a thread if its end does, or all arrivals of threads do and no copies reported to it.
        """
        phases = []
        for one in self.history:
            if one.time < vector[self.agent]:
                continue
            late = one.released > vector[: len(one.released)]
            late[self.agent] = one.copies
            members = np.flatnonzero(late).tolist()
            if members:
                phases.append((one, members[0] if len(members) == 1 else -1))
        return phases

    @property
    def words(self) -> str:
        """The arrivals and bytes that its phase still lacks, in words."""
        lacks = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        lacks += [f"{self.bytes} bytes of copies"] if self.bytes else []
        return f"its phase {self.phase} lacks {' and '.join(lacks)}"
