"""The state of a barrier in shared memory (mbarrier; ISA 9.7.13.15)."""

from __future__ import annotations

from dataclasses import dataclass

from harness.ptx.numeric.vectorise import Array


@dataclass
class Barrier:
    """The state of one mbarrier: the arrivals that a phase needs, the arrivals and bytes still pending, and the phase's
    number.

    `completed`: the frame's clock when the previous phase was completed. In a cluster also: `made`: the clock when lane
    `maker` initialised it. `fenced`: whether fence.mbarrier_init followed. `heard`: the times up to which the arrived
    threads have heard of each block. `previous_heard`: `heard` at the end of the previous phase.
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
    previous_heard: Array | None = None

    def settle(self, now: int) -> bool:
        """Begin the next phase if this one is complete; returns whether it is. now: the frame's clock from then on."""
        if self.pending or self.bytes:
            return False
        self.phase += 1
        self.pending, self.completed, self.previous_heard = self.expected, now, self.heard
        return True

    @property
    def words(self) -> str:
        """The arrivals and bytes that its phase still lacks, in words."""
        lacks = [f"{self.pending} of {self.expected} arrivals"] if self.pending else []
        lacks += [f"{self.bytes} bytes of copies"] if self.bytes else []
        return f"its phase {self.phase} lacks {' and '.join(lacks)}"
