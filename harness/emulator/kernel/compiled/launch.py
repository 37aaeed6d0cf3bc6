"""Run the machine code of a kernel on a grid, and decide whether its results count."""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.compiled.analysis import Independent, independent
from ptxdiff.emulator.kernel.grid import KernelGrid
from ptxdiff.emulator.kernel.kernel import Kernel
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.limits import compiled_for
from ptxdiff.emulator.machine.parallel import cores, for_each
from ptxdiff.emulator.numeric.vectorise import Array
from ptxdiff.extras import installed

WORTH = 1 << 25
"""The steps of threads, in all launches of a kernel so far, from which on making code of it is worth its cost: without
it they take about a sixth of a second."""
ALWAYS = 1 << 17
"""The fewest steps of threads of a launch for which calling the code pays."""
PIECE = 1 << 15
"""Threads of one call, between which the clock is read."""
MOST_FAILED = 3
"""Launches of a kernel in which its code may run in vain; then it is not tried again."""
_KEPT = 64


@dataclass
class _Made:
    """What is known of a kernel. `work`: steps of threads of its launches so far. `own`: whether its threads load bytes
    that they store. `failed`: how often its code ran in vain.
    `code`: by the shape of a launch, the machine code and the places of its parameters."""

    of: Independent | None
    work: int = 0
    own: bool = False
    failed: int = 0
    code: dict[Any, tuple[Any, dict[tuple[str, int, int], int]] | None] = field(default_factory=dict)


_made: OrderedDict[str, _Made] = OrderedDict()
_lock = threading.RLock()


def _of(kernel: Kernel) -> _Made:
    with _lock:
        known = _made.get(kernel.bound)
        if known is None or not kernel.bound:
            known = _Made(independent(kernel))
        if kernel.bound:
            _made[kernel.bound] = known
            _made.move_to_end(kernel.bound)
            if len(_made) > _KEPT:
                _made.popitem(last=False)
        return known


def ran(grid: KernelGrid) -> bool:
    """Run a launch as machine code, if it is worth it and nothing can be wrong with it; whether that has happened.

    If not, the buffers are as before.
    """
    if grid.in_clusters or grid.launches is not None or not installed("llvmlite"):
        return False
    if not all(buffer.fresh for buffer in grid.memory.buffers):  # `reset` would undo what an earlier launch did
        return False
    made = _of(grid.kernel)
    if made.of is None or made.failed >= MOST_FAILED:
        return False
    x, y, z = grid.sizes
    work = x * y * z * grid.threads * len(made.of.steps)
    made.work += work
    if made.work < WORTH or work < ALWAYS:
        return False
    for own in (True,) if made.own else (False, True):
        done = _run(grid, made, own=own)
        if done:
            return True
        for buffer in grid.memory.buffers:
            buffer.reset()
        if not grid.deadline.passed:  # else the error says how far it came
            grid.deadline.begin(x * y * z, "blocks")
        if done is not None:
            break
        made.own = True
    made.failed += 1
    return False


def _run(grid: KernelGrid, made: _Made, own: bool) -> bool | None:
    """Run the code on all blocks. True: the results count. None: they would if no thread met what others store."""
    code = _code(grid, made, own)
    if code is None:
        made.failed = MOST_FAILED
        return False
    function, places = code
    parameters = np.zeros(max(len(places), 1), np.int64)
    for (name, offset, size), place in places.items():
        parameters[place : place + 1].view(np.uint64)[0] = grid.parameter(name, offset, size)
    unit = grid.unit("global")
    buffers = [b for b in grid.memory.buffers if b.slot is None]
    stored = [np.zeros(len(b.bytes) // unit + 16, np.uint8) for b in buffers]
    loaded = [np.zeros(len(b.bytes) // unit + 16, np.uint8) for b in buffers] if own else None
    table = _table(buffers, stored, loaded)
    total = grid.sizes[0] * grid.sizes[1] * grid.sizes[2]
    together = max(1, min(PIECE // grid.threads, -(-total // cores())))
    from ptxdiff.emulator.kernel.compiled.code import BUFFERS, COUNT, FAILED, FIRST, GRID, HEADER

    starts = range(0, total, together)
    states = np.zeros((len(starts), HEADER + 2 * len(buffers)), np.int64)
    failed = threading.Event()

    def run(number: int) -> None:
        if failed.is_set() or grid.deadline.passed:
            failed.set()
            return
        state = states[number]
        state[FIRST], state[BUFFERS], state[GRID:HEADER] = starts[number], len(buffers), grid.sizes
        function(id(table), id(parameters), id(state), min(together, total - starts[number]))
        if state[FAILED]:
            failed.set()
        grid.deadline.done(min(together, total - starts[number]))

    for_each(run, range(len(starts)))
    if failed.is_set():
        return False
    summed = states[:, HEADER:].sum(axis=0).reshape(-1, 2)
    for number, (buffer, marks) in enumerate(zip(buffers, stored, strict=True)):
        reads, units = summed[number].tolist()
        if not units:
            continue
        if np.count_nonzero(marks) != units:
            return False  # two stores to one place
        if reads:
            if loaded is None:
                return None
            if (marks & loaded[number]).any():
                return False
        if buffer.undefined is not None:
            rows = buffer.undefined.reshape(-1, unit)
            rows[marks[: len(rows)] != 0] = 0
    for buffer, (_, units) in zip(buffers, summed.tolist(), strict=True):
        buffer.changed = units > 0
    grid.instructions += int(states[:, COUNT].sum())
    return True


def _table(buffers: list[Buffer], stored: list[Array], loaded: list[Array] | None) -> Array:
    from ptxdiff.emulator.kernel.compiled.code import DATA, HIGH, LOADED, LOW, NO_LOADS, NO_STORES, REFUSED, ROW, STORED

    table = np.zeros((len(buffers), ROW), np.int64)
    for number, buffer in enumerate(buffers):
        row = table[number]
        row[LOW], row[HIGH] = buffer.residue, buffer.residue + buffer.size
        row[DATA], row[STORED] = buffer.bytes.ctypes.data, stored[number].ctypes.data
        row[LOADED] = loaded[number].ctypes.data if loaded is not None else 0
        const = bool(buffer.const_spans)  # the interpreter knows which accesses to constant memory are right
        row[REFUSED] = NO_LOADS * (const or buffer.undefined is not None) | NO_STORES * (const or not buffer.writable)
    return table


def _code(grid: KernelGrid, made: _Made, own: bool) -> tuple[Any, dict[tuple[str, int, int], int]] | None:
    """The machine code for a launch, made at the first one of its shape; None: there is none."""
    from ptxdiff.emulator.kernel.compiled.code import CodeShape, TooLargeForCode, text
    from ptxdiff.emulator.numeric.translation import machinecode
    from ptxdiff.emulator.numeric.translation.source import Untranslatable

    assert made.of is not None
    shape = CodeShape(grid.block, grid.unit("global"), own)
    with _lock:
        if shape not in made.code:
            started = time.monotonic()
            places: dict[tuple[str, int, int], int] = {}
            try:
                made.code[shape] = machinecode.load(text(grid.program, made.of, shape, places)), places
            except (Untranslatable, TooLargeForCode) as reason:
                made.code[shape] = None
                if isinstance(reason, Untranslatable):
                    warnings.warn(f"kernel {grid.kernel.name} runs step by step: {reason}", stacklevel=2)
            finally:
                compiled_for(time.monotonic() - started)
        return made.code[shape]
