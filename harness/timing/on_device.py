"""A timing session in the process that owns the GPU, under its watchdog: a kernel that hangs ends only the session."""

from __future__ import annotations

from typing import Any

from ptxdiff.processes.child import SWEEP_LIMIT, of_target
from ptxdiff.timing import NoGpuToTime, Session


def time_on_device(limit: float | None, path: str, attribute: str, target: str, *words: Any) -> Session:
    """`ptxdiff.timing.session.time_case` in the process that owns the GPU, which no other ptxdiff process uses
    meanwhile.

    limit: seconds allowed; None for those of a sweep. Raises NoGpuToTime without a GPU of the target, CannotTime, and
    DeviceFault if the process does not answer.
    """
    device = of_target(target)
    if device is None:
        raise NoGpuToTime(f"no GPU here is {target}")
    function = "ptxdiff.timing.session:time_case"
    made: Session = device.call(function, path, attribute, target, *words, limit=limit or SWEEP_LIMIT, alone=True)
    return made
