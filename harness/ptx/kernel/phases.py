"""The state of a barrier in shared memory (mbarrier; ISA 9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Barrier:
    """The state of one: arrivals of a whole phase, those and the bytes still to come in this one, and its number.

    `completed`: the frame's clock when the phase before this one was complete.
    """

    expected: int
    pending: int
    phase: int = 0
    bytes: int = 0
    completed: int = 0

    def settle(self, now: int) -> bool:
        """Begin the next phase where this one is complete; whether it is. now: the frame's clock from then on."""
        if self.pending or self.bytes:
            return False
        self.phase += 1
        self.pending, self.completed = self.expected, now
        return True

    @property
    def words(self) -> str:
        """What its phase lacks."""
        lacks = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        lacks += [f"{self.bytes} bytes of copies"] if self.bytes else []
        return f"its phase {self.phase} lacks {' and '.join(lacks)}"
