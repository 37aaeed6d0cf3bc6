"""What running machine code can raise. All are `PtxError`s, so callers of the emulator catch them too."""

from __future__ import annotations

from ptxdiff.emulator import ExecutionError, PtxError


class Unsupported(PtxError):
    """Machine code that no row of the table describes. The message names the instruction."""


class MachineFault(ExecutionError):
    """Something that the machine code does wrong while it runs: an access outside of memory, a deadlock."""


class ScheduleDependence(MachineFault):
    """Stored bits depend on which side of a branch runs first."""


__all__ = ["ExecutionError", "MachineFault", "PtxError", "ScheduleDependence", "Unsupported"]
