"""Timing: how long each variant of a case takes on the device here, with the evidence for a sceptical reader.

Sizes come from the device's L2. All variants of a case at one size share one set of buffers and are
launched in rounds (`rounds`), each round in another random order, with the L2 emptied before every launch. Each round
also launches a second copy of the first variant (the A/A run: its difference from the first is the noise that a
difference must exceed), an empty kernel, and a device copy of as many bytes (the floor). Rounds end when every
median's 95% interval is below half a percent, or when the budget is used up; an interval wider than a percent is
reported. The time of a launch is the device's own record (`session`). Clocks and their limits are read
throughout. `session` runs all of this and returns records.

How it measures was decided by `tests/gpu/timing_methods.py`, run on an H200 (Triton 3.6, torch 2.11):

- CUPTI's record of a kernel's begin and end (what Proton and torch.profiler read) against events around the same
  launches: events add 2.9 to 3.1 us to each, an empty kernel takes 0.5 us by the one and 3.4 us by the other. At 2^16
  float32 that is 1.5 against 4.5 us, and the spread (half the interquartile range) 0.06 against 0.2 us. At 2^25 and
  more the two differ by that constant only. do_bench's figures are those of events.
- Proton gives the same figures (1.60 and 65.7 us where torch.profiler gives 1.57 and 65.8), summed up unless every
  launch has a scope of its own, and none for memory copies. torch.profiler keeps every launch and every copy, and
  samples are what we keep.
- A flush that writes (do_bench's) leaves the L2 full of dirty lines, and the kernel under test pays for writing them
  back: 65.8 instead of 62 us at 2^25, 5% too slow. Reading twice the L2 evicts as well and leaves clean lines.
- A graph's replay gains nothing over the launch itself, and a memory copy in a graph takes 778 instead of 508 us.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxdiff.records import Timing


class CannotTime(RuntimeError):
    """Why a case cannot be timed here, in one line."""


class NoGpuToTime(CannotTime):
    """The machine has no GPU of the target, so that nothing for it can be timed here."""


@dataclass(frozen=True)
class Session:
    """The result of a session. notes: what could not be timed, and why."""

    timings: tuple[Timing, ...]
    notes: tuple[str, ...] = ()
