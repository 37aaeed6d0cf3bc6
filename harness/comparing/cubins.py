"""Two cubins of one kernel, on the CPU: whether they give equal bits on a case's inputs, and where values first part.

They may come from two releases of ptxas, or two levels. The variant of the case says how the kernel is launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ptxdiff.backends.first_difference import first_difference_of_two
from ptxdiff.backends.sass import CubinRun, SassBackend
from ptxdiff.emulator import PtxError
from ptxdiff.jobs import Job, Outcome
from ptxdiff.model.load import LoadedCase
from ptxdiff.running.item import Item
from ptxdiff.running.run import jobs


@dataclass(frozen=True)
class CubinComparison:
    """The result. refused: why one does not run. runs: launches compared. words: the first difference; "" if none."""

    refused: str = ""
    runs: int = 0
    words: str = ""


def compare_cubins(
    loaded: LoadedCase, variant: str, target: str, cubins: tuple[bytes, bytes], effort: str = "quick"
) -> CubinComparison:
    """Run both on the straight launches of a variant's plan, up to the first difference."""
    backend, runs = SassBackend(), 0
    for _, job in jobs(Item(loaded, variant, target, "sass"), backend, effort):
        if job is None or job.setup.context != "straight":
            continue
        cubin_runs = []
        for number, cubin in zip(("first", "second"), cubins, strict=True):
            one = backend.of_cubin(replace(job, setup=replace(job.setup, padding=None)), cubin)
            if isinstance(one, Outcome):
                return CubinComparison(f"the {number} cubin: {one.words}", runs)
            cubin_runs.append(one)
        runs += 1
        if difference := _difference(job, cubin_runs):
            return CubinComparison("", runs, difference)
    return CubinComparison("" if runs else "the case has no launch to compare", runs)


def _difference(job: Job, found: Sequence[CubinRun]) -> str:
    """The first element that differs, with both words, and where values part; "" if none does."""
    one, two = (run.outputs for run in found)
    for name in one:
        unit = f"u{np.asarray(one[name]).itemsize}"
        a, b = (np.ascontiguousarray(x[name]).reshape(-1).view(unit) for x in (one, two))
        wrong = np.flatnonzero(a != b)
        if not len(wrong):
            continue
        at = int(wrong[0])
        digits = 2 * a.itemsize
        message = (
            f"{name}[{at}] is 0x{int(a[at]):0{digits}x} and 0x{int(b[at]):0{digits}x}; {len(wrong)} of {len(a)} differ "
            f"({job.setup.shape_text})"
        )
        return "; ".join(filter(None, (message, _parted(found, name, at))))
    return ""


def _parted(found: Sequence[CubinRun], name: str, unit: int) -> str:
    """Where values part in the thread that stores a unit, if it is one of those that the unit's number suggests."""
    for thread in dict.fromkeys(unit // k for k in (1, 2, 4, 8, 16)):
        try:
            (a, memory), (b, other) = (run.follow(thread) for run in found)
        except (PtxError, IndexError):
            return ""
        offset = memory[name].place(unit) // 4 * 4
        addresses = memory[name].buffer.address + offset, other[name].buffer.address + offset
        if difference := first_difference_of_two(a, b, addresses):
            return difference
    return ""
