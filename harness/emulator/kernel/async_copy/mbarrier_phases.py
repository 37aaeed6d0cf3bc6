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
    """A phase that is complete: its number, the clock at its last moment, and what its arrivals released.

    `copies`: whether bytes of copies were among what it waited for.
    """

    phase: int
    at: int
    released: Array
    copies: bool


@dataclass
class Barrier:
    """The state of one mbarrier: the arrivals that a phase needs, the arrivals and bytes still pending, and the phase's
    number.

    `made`: the clock when lane `maker` initialised it. `fenced`: whether fence.mbarrier_init followed. `released`: what
    the arrivals of all phases released. `agent`: the member that stands for the ends of phases and for the bytes of
    copies that arrive. `history`: the last phases, at least those after `observed`, which some thread saw complete.
    `copies`: whether copies have reported to this phase. `owed`: the arrivals that copies under way (cp.async) owe.
    """

    expected: int
    pending: int
    phase: int = 0
    bytes: int = 0
    made: int = 0
    maker: int = -1
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
        released = order.joined(self.released, np.zeros(order.rows.shape[1], np.int32))
        released[self.agent] = now
        self.released = released
        if len(self.history) > 1 and (self.history[0].phase <= self.observed or len(self.history) > _PHASES):
            del self.history[0]
        self.history.append(Completed(self.phase, now - 1, released.copy(), self.copies))
        self.phase += 1
        self.pending, self.copies = self.expected, False

    def arrive(self, order: HappensBefore, released: Array) -> None:
        """Add what an arrival releases."""
        self.released = order.joined(self.released, released)

    def unknown(self, times: Array) -> list[tuple[Completed, int]]:
        """The complete phases that are not known to whoever knows `times`; with each the only member of whose arrival
        it does not know, or -1.

        A phase is known to whoever heard of its end, or of all arrivals of threads if no copies reported to it.
        """
        found = []
        for one in self.history:
            if one.at < times[self.agent]:
                continue
            late = one.released > times[: len(one.released)]
            late[self.agent] = one.copies
            members = np.flatnonzero(late).tolist()
            if members:
                found.append((one, members[0] if len(members) == 1 else -1))
        return found

    @property
    def words(self) -> str:
        """The arrivals and bytes that its phase still lacks, in words."""
        lacks = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        lacks += [f"{self.bytes} bytes of copies"] if self.bytes else []
        return f"its phase {self.phase} lacks {' and '.join(lacks)}"
