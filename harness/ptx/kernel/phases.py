"""The state of a barrier in shared memory (mbarrier; ISA 9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.ptx.numeric.vectorise import Array


@dataclass
class Barrier:
    """The state of one: arrivals of a whole phase, those and the bytes still to come in this one, and its number.

    `completed`: the frame's clock when the phase before this one was complete. In a cluster: `made`, the clock when it
    was made, by lane `maker`; `fenced`, whether fence.mbarrier_init made that known; `heard`, until when the threads
    that arrived know of each block, and `told`, the same when the phase before this one was complete.
    """

    expected: int
    pending: int
    phase: int = 0
    bytes: int = 0
    completed: int = 0
    made: int = 0
    maker: int = -1
    fenced: bool = False
    heard: Array | None = None
    told: Array | None = None

    def settle(self, now: int) -> bool:
        """Begin the next phase where this one is complete; whether it is. now: the frame's clock from then on."""
        if self.pending or self.bytes:
            return False
        self.phase += 1
        self.pending, self.completed, self.told = self.expected, now, self.heard
        return True

    @property
    def words(self) -> str:
        """What its phase lacks."""
        lacks = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        lacks += [f"{self.bytes} bytes of copies"] if self.bytes else []
        return f"its phase {self.phase} lacks {' and '.join(lacks)}"
