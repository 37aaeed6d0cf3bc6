"""Check and record accesses to cells of tensor memory in compiled code, one pass over the cells of many warps.

`suspect` says whether an access may be wrong. It knows less than the checks of
`ptxdiff.emulator.kernel.tcgen05.in_flight`: of what orders two accesses, only a barrier of the whole block, and what a
thread knows of completed operations. So it may suspect what is right, and those checks then decide and name the cause;
what it does not suspect is right by them too. `note` records what `TensorMemory` says of an access.
"""

from __future__ import annotations

from typing import Any

from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.numeric.vectorise import Array

STORES, STORED, LOADS, LOADED, WRITES, WROTE, READS, HAS_READ = range(8)
"""What is recorded: a store or load by a warp, and its end; a write or read by the tensor cores, and its end."""


def _suspect(
    cells: Array, mine: Array, who: Array, also: Array, warp: Array, since: Array, row: Array, after: Array,
    rows: Array, agents: Array, orders: Array, cores: Any, writes: Any, races: Any, fences: Any, role: Any,
    number: Any, is_open: Array, busy: Array, being_read: Array, storing: Array, loading: Array, roles: Array,
    accumulators: Array, unfenced: Array, writer: Array, reader: Array, written: Array, read: Array, answer: Array,
) -> None:  # fmt: skip
    """Set answer[0] if an access to a row of cells, of one warp or thread, may be wrong.

    mine, who, also, warp: the numbers of the accessor as in `TensorWork.refuse`. since: the time of its last barrier of
    the whole block. row, rows, agents: what it knows of operations that are complete. after: its last
    tcgen05.fence::after_thread_sync. orders: which role may follow which, by 7 x 7. role: 0 if no operation is issued.
    """
    for i in range(cells.shape[0]):
        for j in range(cells.shape[1]):
            at = cells[i, j]
            if is_open[(at >> 16) * 512 + (at & 511)] == 0:
                answer[0] = 1
                return
            if busy[at] > 0 and writer[at] != mine[i]:
                answer[0] = 1
                return
            if storing[at] != 0 and (writes == 0 or storing[at] != warp[i]):
                answer[0] = 1
                return
            if writes != 0 and (loading[at] > 0 or (being_read[at] > 0 and reader[at] != mine[i])):
                answer[0] = 1
                return
            if role != 0 and (busy[at] > 0 or (role <= 4 and being_read[at] > 0)):
                last = roles[at]
                if orders[role * 7 + last] == 0 or (role == 1 and last == 1 and accumulators[at] != number):
                    answer[0] = 1
                    return
            if races == 0:
                continue
            for side in range(2 if writes != 0 else 1):
                by, when = writer[at], written[at]
                if side == 1:
                    by, when = reader[at], read[at]
                if by == -1 or by == who[i] or (also[i] > 0 and by == also[i]):
                    continue
                known = since[i]
                if by >= cores:
                    agent = agents[by - cores]
                    known = 0
                    if agent >= 0:
                        known = rows[row[i], agent]
                if when >= known or (fences != 0 and (unfenced[at] != 0 or after[i] <= when)):
                    answer[0] = 1
                    return


def _note(
    kind: Any, cells: Array, who: Array, since: Array, now: Any, role: Any, number: Any, fences: Any, several: Array,
    warps: Array, finished: Array, cores: Any, busy: Array, being_read: Array, storing: Array, loading: Array,
    roles: Array, accumulators: Array, unfenced: Array, writer: Array, reader: Array, written: Array, read: Array,
) -> None:  # fmt: skip
    """Record that accessors have begun or ended an access to a row of cells each.

    since: the time up to which earlier reads are ordered before; for READS this depends on who read: several, a warp,
    or the tensor cores for a thread (`finished`, a row of threads for each row of cells).
    """
    for i in range(cells.shape[0]):
        # A loop for each kind, as most of the time of a single one went to its branches.
        if kind == 0:
            for j in range(cells.shape[1]):
                storing[cells[i, j]] = who[i] + 1
        elif kind == 1:
            for j in range(cells.shape[1]):
                storing[cells[i, j]] = 0
        elif kind == 2:
            for j in range(cells.shape[1]):
                loading[cells[i, j]] += 1
        elif kind == 3:
            for j in range(cells.shape[1]):
                loading[cells[i, j]] -= 1
        elif kind == 4:
            for j in range(cells.shape[1]):
                at = cells[i, j]
                busy[at] += 1
                roles[at], accumulators[at] = role, number
        elif kind == 5:
            for j in range(cells.shape[1]):
                busy[cells[i, j]] -= 1
        elif kind == 6:
            for j in range(cells.shape[1]):
                being_read[cells[i, j]] += 1
                roles[cells[i, j]] = role
        else:
            for j in range(cells.shape[1]):
                being_read[cells[i, j]] -= 1
        if (kind == 0 or kind == 2) and fences != 0:
            for j in range(cells.shape[1]):
                unfenced[cells[i, j]] = 1
        if kind == 0 or kind == 1 or kind == 4 or kind == 5:
            for j in range(cells.shape[1]):
                writer[cells[i, j]], written[cells[i, j]] = who[i], now
            continue
        for j in range(cells.shape[1]):
            at = cells[i, j]
            old, known = reader[at], since[i]
            if kind == 6 and old != -1:
                if old == -2:
                    known = several[i]
                elif old >= cores:
                    known = finished[i, old - cores]
                else:
                    known = warps[i, old]
            if read[at] >= known and old != who[i] and old != -1:
                reader[at] = -2
            else:
                reader[at] = who[i]
            read[at] = now


def _memory(t: Any) -> tuple[Any, ...]:
    short, tiny, words = t.Array(t.int16, 1, "C"), t.Array(t.int8, 1, "C"), t.Array(t.int32, 1, "C")
    return short, short, tiny, short, tiny, words, t.Array(t.uint8, 1, "C"), words, words, words, words


def _kinds_of_suspect(t: Any) -> tuple[Any, ...]:
    wide, rows = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int32, 2, "C", readonly=True)
    cells, octets = t.Array(t.int64, 2, "C", readonly=True), t.Array(t.uint8, 1, "C")
    return (cells, *[wide] * 7, rows, wide, octets, *[t.int64] * 6, octets, *_memory(t), octets)


def _kinds_of_note(t: Any) -> tuple[Any, ...]:
    wide, rows = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int32, 2, "C", readonly=True)
    cells = t.Array(t.int64, 2, "C", readonly=True)
    return (t.int64, cells, wide, wide, *[t.int64] * 4, wide, rows, rows, t.int64, *_memory(t))


suspect = ArrayCode(_suspect, _kinds_of_suspect)
note = ArrayCode(_note, _kinds_of_note)
