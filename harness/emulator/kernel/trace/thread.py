"""Follow one thread of a kernel instruction by instruction: what each reads and writes, and where its values come from.

The kernel runs as usual, one block after the other; recording changes no result. For each byte of memory the record
keeps which thread produced it, and when, so that a value can be traced to the instruction that produced it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator.errors import PtxError
from ptxdiff.emulator.kernel.block_orders import take_turns
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.kernel import Kernel
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.kernel.observer import KernelObserver
from ptxdiff.emulator.kernel.run import ORDERED, judging_of
from ptxdiff.emulator.kernel.schedule import KernelScheduler, ends_early
from ptxdiff.emulator.kernel.trace.observers import (
    ExecutedSteps,
    Notes,
    ThreadTrace,
    TooLong,
    observed,
)
from ptxdiff.emulator.kernel.trace.origins import Stored
from ptxdiff.emulator.limits import KERNEL_SECONDS, Deadline


@dataclass(frozen=True)
class Launched:
    """A launch that can be repeated. `parameters` hold buffers that no run has changed, so each run needs new ones."""

    kernel: Kernel
    parameters: Sequence[Any]
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int = 0


def executed_steps(launch: Launched, limit: float | None = KERNEL_SECONDS) -> set[int]:
    """The numbers of the steps that any thread executed with a true guard (branches and exits: any guard).

    Raises PtxError.
    """
    seen = ExecutedSteps()
    _run(launch, seen, limit)
    numbers = {id(s): n for n, s in enumerate(launch.kernel.program.steps)}
    return {numbers[i] for i in seen.steps}


def storing_thread(
    launch: Launched, buffer: Buffer, first: int, size: int, limit: float | None = KERNEL_SECONDS
) -> Stored | None:
    """The last store to some bytes of a buffer, from offset `first` on; None if no thread stored them."""
    notes = Notes(-1)
    with suppress(PtxError):  # stores before the error count
        _run(launch, notes, limit)
    return notes.origins.last(buffer, buffer.residue + first + np.arange(size))


def followed(launch: Launched, thread: int, limit: float | None = KERNEL_SECONDS) -> ThreadTrace:
    """The instructions of a thread of the grid, up to its end or up to an error that stops the run."""
    notes = Notes(thread)
    trace = ThreadTrace(thread, steps=notes.steps)
    try:
        _run(launch, notes, limit)
    except TooLong:
        raise
    except PtxError as error:
        trace.fault = error
    trace.who = notes.who
    return trace


def _ended(_: int, scheduler: KernelScheduler) -> bool:
    scheduler.run()
    return not scheduler.paused


def _run(launch: Launched, notes: KernelObserver, limit: float | None) -> None:
    """Run all blocks, one cluster after the other; of blocks without clusters only those that `notes` asks for.

    Blocks that communicate run together, as in `run_kernel` in the usual order. A kernel that cancels launches
    (`grid.Launches`) does all work in its first cluster, unlike in `run_kernel`.
    """
    cluster, deadline = launch.kernel.cluster, Deadline(limit)
    grid = KernelGrid(
        launch.kernel, launch.parameters, launch.grid, launch.block, launch.shared, True, deadline, cluster
    )
    if ends_early(launch.kernel.program):
        grid.remember_threads()
    size, total = grid.cluster_size, math.prod(launch.grid)
    reduces = any(
        s.kind in ("bulk_store", "bulk_tensor_store") and s.bound is not None and s.bound.modifiers.get("op")
        for s in grid.program.steps
    )
    alone = notes.block(grid.threads) if not (grid.synchronises or reduces or grid.launches) else None
    if (judging := judging_of(launch.kernel, total * grid.threads, cluster)) and total * grid.threads <= ORDERED:
        grid.judging = "ordered" if judging and total > 1 else ""
        scheduler = observed(grid, 0, total, notes)
        scheduler.pauses = True
        take_turns([0], lambda _: scheduler, _ended, lambda *_: None, 1, lambda: grid.changes)
        return
    clusters: Iterable[int] = range(0, total, size) if alone is None else [alone // size * size]
    if grid.launches is not None:
        clusters = (first * size for first, _ in grid.launches.waves(1))
    for first in clusters:
        observed(grid, first, size, notes).run()
