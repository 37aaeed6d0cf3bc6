"""Check and record accesses to cells of tensor memory in compiled code, one pass over the cells of many warps.

`suspect` says whether an access may be wrong. It knows less than the checks of
`ptxdiff.emulator.kernel.tcgen05.in_flight`: of what orders two accesses, only a barrier of the whole block, and what a
thread knows of completed operations. So it may suspect what is right, and those checks then decide and name the cause;
what it does not suspect is right by them too. `note` records what `TensorMemory` says of an access.

Most accesses take a *strip*, the 32 lanes of a quarter in one column, as a whole. The records of a strip's first lane
stand for all of it, until an access to some of its lanes: then `split` says so, and each cell has its own from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.numeric.vectorise import Array, in_place

STORES, STORED, LOADS, LOADED, WRITES, WROTE, READS, HAS_READ = range(8)
"""What is recorded: a store or load by a warp, and its end; a write or read by the tensor cores, and its end."""


@dataclass(frozen=True)
class Rows:
    """Cells that accessors access, a row for each. `first`: of each strip its first cell, if they are whole strips;
    else the cells. `whole`: which of the two."""

    first: Array
    whole: bool

    @classmethod
    def of(cls, cells: Array) -> Rows:
        """From a row of cells for each accessor, in any order of whole strips or in another order."""
        cells = np.ascontiguousarray(cells)
        first = _strips(cells)
        return cls(cells, False) if first is None else cls(first, True)

    def some(self, chosen: Array) -> Rows:
        """Some of the rows."""
        return Rows(self.first[chosen], self.whole)


def _strips(cells: Array) -> Array | None:
    """The first cells of the strips in rows of cells, of which each 32 lanes follow each other; None: others."""
    count, size = cells.shape
    if size % 32 or not size:
        return None
    below = np.flatnonzero(cells[0] == cells[0, 0] + 512)
    if not len(below) or size % (32 * int(below[0])):
        return None
    parts = cells.reshape(count, -1, 32, int(below[0]))
    found = np.ascontiguousarray(parts[:, :, 0]).reshape(count, -1)
    answer = np.ones(1, np.uint8)
    _compare(parts.reshape(-1, int(below[0])), answer)
    return found if answer[0] else None


def _compare_code(cells: Array, answer: Array) -> None:
    """Clear answer[0] unless each 32 rows of cells are the 32 lanes of a quarter, in order."""
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            first = cells[i - i % 32, j]
            if cells[i, j] != first + 512 * (i % 32) or (first >> 9) % 32 != 0:
                answer[0] = 0
                return


@in_place
def _strip(at: int) -> int:
    """The number of a cell's strip."""
    return (at >> 16) * 2048 + (at >> 14 & 3) * 512 + (at & 511)


@in_place
def _suspicious(
    at: int, mine: int, who: int, also: int, warp: int, since: int, row: int, after: int, rows: Any, agents: Any,
    orders: Any, cores: int, writes: int, races: int, fences: int, role: int, number: int, busy: Any, being_read: Any,
    storing: Any, loading: Any, roles: Any, accumulators: Any, unfenced: Any, writer: Any, reader: Any, written: Any,
    read: Any,
) -> bool:  # fmt: skip
    """`suspect` for the records of one cell."""
    if busy[at] > 0 and writer[at] != mine:
        return True
    if storing[at] != 0 and (writes == 0 or storing[at] != warp):
        return True
    if writes != 0 and (loading[at] > 0 or (being_read[at] > 0 and reader[at] != mine)):
        return True
    if role != 0 and (busy[at] > 0 or (role <= 4 and being_read[at] > 0)):
        last = roles[at]
        if orders[role * 7 + last] == 0 or (role == 1 and last == 1 and accumulators[at] != number):
            return True
    if races == 0:
        return False
    for side in range(2 if writes != 0 else 1):
        by, when = writer[at], written[at]
        if side == 1:
            by, when = reader[at], read[at]
        if by == -1 or by == who or (also > 0 and by == also):
            continue
        known = since
        if by >= cores:
            agent = agents[by - cores]
            known = 0
            if agent >= 0:
                known = rows[row, agent]
        if when >= known or (fences != 0 and (unfenced[at] != 0 or after <= when)):
            return True
    return False


def _suspect_code(
    cells: Array, whole: Any, mine: Array, who: Array, also: Array, warp: Array, since: Array, row: Array,
    after: Array, rows: Array, agents: Array, orders: Array, cores: Any, writes: Any, races: Any, fences: Any,
    role: Any, number: Any, is_open: Array, split: Array, busy: Array, being_read: Array, storing: Array,
    loading: Array, roles: Array, accumulators: Array, unfenced: Array, writer: Array, reader: Array, written: Array,
    read: Array, answer: Array,
) -> None:  # fmt: skip
    """Set answer[0] if an access to a row of cells, of one warp or thread, may be wrong.

    whole: whether the cells are the first ones of strips. mine, who, also, warp: the numbers of the accessor as in
    `TensorWork.refuse`. since: the time of its last barrier of the whole block. row, rows, agents: what it knows of
    operations that are complete. after: its last tcgen05.fence::after_thread_sync. orders: which role may follow which,
    by 7 x 7. role: 0 if no operation is issued.
    """
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            first, strip = cells[i, j], _strip(cells[i, j])
            if is_open[(first >> 16) * 512 + (first & 511)] == 0:
                answer[0] = 1
                return
            count = 1
            if split[strip] == 0:
                first = first & ~(31 << 9)
            elif whole != 0:
                count = 32
            for lane in range(count):
                if _suspicious(
                    first + 512 * lane, mine[i], who[i], also[i], warp[i], since[i], row[i], after[i], rows, agents,
                    orders, cores, writes, races, fences, role, number, busy, being_read, storing, loading, roles,
                    accumulators, unfenced, writer, reader, written, read,
                ):  # fmt: skip
                    answer[0] = 1
                    return


@in_place
def _record(
    kind: int, at: int, who: int, since: int, now: int, role: int, number: int, fences: int, several: int, warps: Any,
    finished: Any, i: int, cores: int, busy: Any, being_read: Any, storing: Any, loading: Any, roles: Any,
    accumulators: Any, unfenced: Any, writer: Any, reader: Any, written: Any, read: Any,
) -> None:  # fmt: skip
    """`note` for one cell."""
    if (kind == 0 or kind == 2) and fences != 0:
        unfenced[at] = 1
    if kind == 0:
        storing[at] = who + 1
    elif kind == 1:
        storing[at] = 0
    elif kind == 2:
        loading[at] += 1
    elif kind == 3:
        loading[at] -= 1
    elif kind == 4:
        busy[at] += 1
        roles[at], accumulators[at] = role, number
    elif kind == 5:
        busy[at] -= 1
    elif kind == 6:
        being_read[at] += 1
        roles[at] = role
    else:
        being_read[at] -= 1
    if kind == 0 or kind == 1 or kind == 4 or kind == 5:
        writer[at], written[at] = who, now
        return
    old, known = reader[at], since
    if kind == 6 and old != -1:
        if old == -2:
            known = several
        elif old >= cores:
            known = finished[i, old - cores]
        else:
            known = warps[i, old]
    if read[at] >= known and old != who and old != -1:
        reader[at] = -2
    else:
        reader[at] = who
    read[at] = now


def _note_code(
    kind: Any, cells: Array, whole: Any, who: Array, since: Array, now: Any, role: Any, number: Any, fences: Any,
    several: Array, warps: Array, finished: Array, cores: Any, split: Array, busy: Array, being_read: Array,
    storing: Array, loading: Array, roles: Array, accumulators: Array, unfenced: Array, writer: Array, reader: Array,
    written: Array, read: Array,
) -> None:  # fmt: skip
    """Record that accessors have begun or ended an access to a row of cells each.

    whole: whether the cells are the first ones of strips. since: the time up to which earlier reads are ordered before;
    for READS this depends on who read: several, a warp, or the tensor cores for a thread (`finished`, a row of threads
    for each row of cells).
    """
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            first, strip, count = cells[i, j], _strip(cells[i, j]), 1
            if whole != 0:
                count = 1 if split[strip] == 0 else 32
            elif split[strip] == 0:
                split[strip] = 1
                base = first & ~(31 << 9)
                for lane in range(1, 32):
                    at = base + 512 * lane
                    busy[at], being_read[at] = busy[base], being_read[base]
                    storing[at], loading[at] = storing[base], loading[base]
                    roles[at], accumulators[at] = roles[base], accumulators[base]
                    unfenced[at] = unfenced[base]
                    writer[at], written[at] = writer[base], written[base]
                    reader[at], read[at] = reader[base], read[base]
            for lane in range(count):
                _record(
                    kind, first + 512 * lane, who[i], since[i], now, role, number, fences,
                    several[i] if kind == 6 else 0, warps, finished, i, cores, busy, being_read, storing, loading,
                    roles, accumulators, unfenced, writer, reader, written, read,
                )  # fmt: skip


def _memory(t: Any) -> tuple[Any, ...]:
    octets = t.Array(t.uint8, 1, "C")
    short, tiny, words = t.Array(t.int16, 1, "C"), t.Array(t.int8, 1, "C"), t.Array(t.int32, 1, "C")
    return octets, short, short, tiny, short, tiny, words, octets, words, words, words, words


def _kinds_of_suspect(t: Any) -> tuple[Any, ...]:
    wide, rows = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int32, 2, "C", readonly=True)
    cells, octets = t.Array(t.int64, 2, "C", readonly=True), t.Array(t.uint8, 1, "C")
    return (cells, t.int64, *[wide] * 7, rows, wide, octets, *[t.int64] * 6, octets, *_memory(t), octets)


def _kinds_of_note(t: Any) -> tuple[Any, ...]:
    wide, rows = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int32, 2, "C", readonly=True)
    cells = t.Array(t.int64, 2, "C", readonly=True)
    return (t.int64, cells, t.int64, wide, wide, *[t.int64] * 4, wide, rows, rows, t.int64, *_memory(t))


def _kinds_of_compare(t: Any) -> tuple[Any, ...]:
    return t.Array(t.int64, 2, "C", readonly=True), t.Array(t.uint8, 1, "C")


suspect = ArrayCode(_suspect_code, _kinds_of_suspect)
note = ArrayCode(_note_code, _kinds_of_note)
_compare = ArrayCode(_compare_code, _kinds_of_compare)
