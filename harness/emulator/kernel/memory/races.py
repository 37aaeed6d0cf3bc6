"""Decide whether accesses to a unit of memory race: in compiled code, one access after the other.

Shared memory has such a table of units (`space.AccessTable`), and so has global memory within a block or a cluster
where other things than barriers of whole blocks order threads (`global_races`).

Of each unit of bytes a row of the table `units` keeps the last plain write, the reads since, and the strong writes
since (atomic operations, and volatile, relaxed and release stores). Two accesses race if one of them writes, not both
are strong, and the one recorded is not ordered before the other (`ptxdiff.emulator.kernel.memory.happens_before`).

The units of a chunk of 16 bytes have one row together until an access of fewer bytes: then `split` says so, and each
unit gets its own, from `parts` on. A plain write of the whole chunk joins them again.

Reads and strong writes are sets: the members of one warp as a mask and one time, or a slot of the table `sets` with
such a mask and time for each warp. Those that are ordered before a new one of the set are replaced by it, as whoever is
ordered after it is ordered after them. If lanes of one warp access at different times and nothing orders them, the
first time stands for all, which can only miss a race.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.machine.large_arrays import zeros
from ptxdiff.emulator.numeric.bits import clz64
from ptxdiff.emulator.numeric.vectorise import Array, in_place

WRITER, WRITTEN, READ, UPDATED, READ_STRONGLY, TEAM, FIELDS = 0, 1, 2, 5, 8, 11, 12
SETS = [READ, UPDATED, READ_STRONGLY]
"""Columns of a unit: the last plain write (its member + 1, time); plain reads, strong writes and strong reads (warp +
1, mask, time each); the team (+ 1) of all these, as a row forgets one team when another accesses its bytes.

0 stands for none, so that the table of a new frame takes no memory yet. A warp of -1 stands for several: the mask is
then the number of a slot. A warp of -2 stands for several that only a barrier of the whole block can order, so that
nobody has to know which.
"""
PLAIN_READ, STRONG_READ, PLAIN_WRITE, STRONG_WRITE, LANDED, LANDING, FOREIGN, ANYBODY = 0, 1, 2, 3, 4, 5, 6, 7
"""Kinds of access. LANDED: a read that is recorded when it is over, without a check. LANDING: such a write. FOREIGN: a
read that is not recorded, and does not race with writes of its own warp. ANYBODY: one that races with those, too: what
several warps read together, if all know the same."""
CHUNK = 16
"""Bytes."""


@in_place
def _later(
    members: Any, mask: int, time: int, who: int, own: int, block: int, since: int, warp_since: int, row: int,
    rows: Any, threads: int,
) -> bool:  # fmt: skip
    """Whether some of the members (32 from `members` on, those of a mask) accessed at a time that is not ordered before
    a thread. who: the number under which the thread accesses, own: its own, block: the first one of its block."""
    if block <= members < block + threads and (time < since or (members >> 5 == own >> 5 and time < warp_since)):
        return False
    left = mask & 0xFFFFFFFF
    while left != 0:
        last = 63 - clz64(left)
        member = members + last
        if member != who and member != own and time >= rows[row, member]:
            return True
        left ^= 1 << last
    return False


@in_place
def _clash(
    warp: int, mask: int, time: int, who: int, own: int, block: int, since: int, warp_since: int, row: int,
    rows: Any, threads: int, sets: Any,
) -> bool:  # fmt: skip
    """`_later` for a set of a unit."""
    if warp == 0:
        return False
    if warp == -2:
        return time >= since
    if warp > 0:
        return _later(warp * 32 - 32, mask, time, who, own, block, since, warp_since, row, rows, threads)
    for one in range(sets.shape[1]):
        there, when = sets[mask, one, 0], sets[mask, one, 1]
        if there != 0 and _later(one * 32, there, when, who, own, block, since, warp_since, row, rows, threads):
            return True
    return False


@in_place
def _slot(free: Any) -> int:
    """Take a free slot."""
    if free[0] > 0:
        free[0] -= 1
        again: int = free[2 + free[0]]
        return again
    free[1] += 1
    unused: int = free[1] - 1
    return unused


@in_place
def _record(
    column: int, at: int, member: int, own: int, block: int, since: int, warp_since: int, row: int, rows: Any,
    threads: int, exact: int, now: int, units: Any, sets: Any, free: Any,
) -> None:  # fmt: skip
    """Add an access to the set of a unit that begins at a column."""
    warp, bit = member >> 5, 1 << (member & 31)
    held, mask, time = units[at, column], units[at, column + 1], units[at, column + 2]
    if held == warp + 1 and time == now:
        units[at, column + 1] = mask | bit
    elif held == -2:
        units[at, column + 2] = now
    elif held == -1:
        mask_there, time_there = sets[mask, warp, 0], sets[mask, warp, 1]
        if mask_there == 0 or time_there == now:
            sets[mask, warp, 0], sets[mask, warp, 1] = mask_there | bit, now
        elif _later(warp * 32, mask_there, time_there, member, own, block, since, warp_since, row, rows, threads):
            sets[mask, warp, 0] = mask_there | bit
        else:
            sets[mask, warp, 0], sets[mask, warp, 1] = bit, now
    elif held == 0 or not _later(held * 32 - 32, mask, time, member, own, block, since, warp_since, row, rows, threads):
        units[at, column], units[at, column + 1], units[at, column + 2] = warp + 1, bit, now
    elif held == warp + 1:
        units[at, column + 1] = mask | bit
    elif not exact:
        units[at, column], units[at, column + 2] = -2, now
    else:
        slot = _slot(free)
        sets[slot, held - 1, 0], sets[slot, held - 1, 1] = mask, time
        sets[slot, warp, 0], sets[slot, warp, 1] = bit, now
        units[at, column], units[at, column + 1] = -1, slot


@in_place
def _split(chunk: int, first: int, per: int, units: Any, sets: Any, free: Any) -> None:
    """Give each unit of a chunk its own row."""
    for number in range(per):
        at = first + number
        for column in range(units.shape[1]):
            units[at, column] = units[chunk, column]
        for column in (2, 5, 8):
            if number > 0 and units[chunk, column] == -1:
                slot = _slot(free)
                for one in range(sets.shape[1]):
                    sets[slot, one, 0] = sets[units[chunk, column + 1], one, 0]
                    sets[slot, one, 1] = sets[units[chunk, column + 1], one, 1]
                units[at, column + 1] = slot


@in_place
def _empty(at: int, units: Any, sets: Any, free: Any) -> None:
    """Forget the reads and strong writes of a unit."""
    for column in (2, 5, 8):
        if units[at, column] == -1:
            slot = units[at, column + 1]
            for one in range(sets.shape[1]):
                sets[slot, one, 0] = 0
            free[2 + free[0]] = slot
            free[0] += 1
        units[at, column] = 0


@in_place
def _visit(
    kind: int, at: int, team: int, member: int, own: int, block: int, since: int, warp_since: int, row: int, rows: Any,
    threads: int, exact: int, now: int, units: Any, sets: Any, free: Any,
) -> bool:  # fmt: skip
    """Check one access to a row of `units` and record it, except a plain write; returns whether it races."""
    if units[at, 11] != team:
        if units[at, 11] != 0:
            _empty(at, units, sets, free)
            units[at, 0] = 0
        units[at, 11] = team
    if kind == 5:
        units[at, 0], units[at, 1] = member + 1, now
        return False
    bad = False
    if kind != 4:
        writer, when = units[at, 0] - 1, units[at, 1]
        alone = kind != 7 and (writer == member or writer == own or (kind == 6 and writer >> 5 == own >> 5))  # noqa: SIM109
        if writer >= 0 and not alone:  # noqa: SIM102 (numba compiles it as it is)
            if not (
                block <= writer < block + threads
                and (when < since or (kind != 7 and writer >> 5 == own >> 5 and when < warp_since))
            ):
                bad |= when >= rows[row, writer]
    if (kind == 0 or kind == 2) and units[at, 5] != 0:  # a strong access does not race with a strong write
        bad |= _clash(
            units[at, 5], units[at, 6], units[at, 7], member, own, block, since, warp_since, row, rows, threads, sets
        )
    if kind == 2 and units[at, 8] != 0:
        bad |= _clash(
            units[at, 8], units[at, 9], units[at, 10], member, own, block, since, warp_since, row, rows, threads, sets
        )
    if (kind == 2 or kind == 3) and units[at, 2] != 0:  # no read races with a read
        bad |= _clash(
            units[at, 2], units[at, 3], units[at, 4], member, own, block, since, warp_since, row, rows, threads, sets
        )
    if kind == 0 or kind == 4:
        _record(2, at, member, own, block, since, warp_since, row, rows, threads, exact, now, units, sets, free)
    elif kind == 1:
        _record(8, at, member, own, block, since, warp_since, row, rows, threads, exact, now, units, sets, free)
    elif kind == 3:
        _record(5, at, member, own, block, since, warp_since, row, rows, threads, exact, now, units, sets, free)
    return bad


@in_place
def _quiet_read(
    at: int, team: int, warp: int, bit: int, block: int, since: int, now: int, threads: int, units: Any
) -> bool:  # fmt: skip
    """Record a thread's own plain read of a row of `units`, if a barrier of its block orders all before it that counts;
    returns whether it did. It does what `_visit` would: most reads are such, and need less of it."""
    if units[at, 11] != team or units[at, 5] != 0:
        return False
    writer = units[at, 0] - 1
    if writer >= 0 and not (block <= writer < block + threads and units[at, 1] < since):
        return False
    held = units[at, 2]
    if held == warp + 1 and units[at, 4] == now:
        units[at, 3] |= bit
    elif held == -2:
        units[at, 4] = now
    elif held == 0 or (held > 0 and block <= held * 32 - 32 < block + threads and units[at, 4] < since):
        units[at, 2], units[at, 3], units[at, 4] = warp + 1, bit, now
    else:
        return False
    return True


@in_place
def _quiet_write(at: int, team: int, block: int, since: int, threads: int, units: Any) -> bool:
    """Whether a thread's plain write to a row of `units` races with nothing, as a barrier of its block orders all
    before it: what `_visit` would find."""
    if units[at, 11] != team or units[at, 5] != 0 or units[at, 8] != 0:
        return False
    writer, held = units[at, 0] - 1, units[at, 2]
    if writer >= 0 and not (block <= writer < block + threads and units[at, 1] < since):
        return False
    if held == 0:
        return True
    if held == -2 or (held > 0 and block <= held * 32 - 32 < block + threads):
        ordered: bool = units[at, 4] < since
        return ordered
    return False


@in_place
def _overwrite(at: int, member: int, now: int, bad: bool, units: Any, sets: Any, free: Any) -> None:
    """Record a plain write."""
    units[at, 0], units[at, 1] = member + 1, now
    if not bad:  # else the bytes are those already there, so it is no race; what was before still counts
        _empty(at, units, sets, free)


def _note(
    kind: Any, offsets: Array, unit: Any, count: Any, agent: Any, lanes: Array, members: Array, block_times: Array,
    warp_times: Array, row_of: Array, rows: Array, threads: Any, size_of_team: Any, exact: Any, now: Any, units: Array,
    split: Array, parts: Array, sets: Array, free: Array, bad: Array,
) -> None:  # fmt: skip
    """Record accesses of `count` units from byte offsets on, which are multiples of their size.

    agent: the member under whose number they are recorded (-1: each lane's own). lanes: whose knowledge counts; of all
    lanes their members, and that knowledge (see `HappensBefore`). exact: whether anything orders less than a whole
    block. free: how many slots of `sets` are free again, the first that was never used, and those free again. bad (all
    False before): which accesses race with one recorded before.
    """
    # Units and their chunks are powers of two, and neighbours share a block: divisions would take most of the time.
    per, shift = 16 // unit, 0
    while unit >> shift > 1:
        shift += 1
    chunks = count // per
    last, team_end, block_end = -1, 0, 0
    team, own, block, since, warp_since, row, member = 0, 0, 0, 0, 0, 0, 0
    for i in range(len(offsets)):
        lane, chunk = lanes[i], offsets[i] >> 4
        if lane != last:
            last = lane
            own, since, warp_since, row = members[lane], block_times[lane], warp_times[lane], row_of[lane]
            member = own if agent < 0 else agent
            if not team_end - size_of_team <= lane < team_end:
                team = lane // size_of_team + 1
                team_end = team * size_of_team
            if not block_end - threads <= own < block_end:
                block_end = own - own % threads + threads
            block = block_end - threads
        if chunks == 0:
            if split[chunk] == 0:
                split[chunk] = 1
                _split(chunk, parts[chunk], per, units, sets, free)
            first = parts[chunk] + ((offsets[i] & 15) >> shift)
            for at in range(first, first + count):
                bad[i] |= _visit(
                    kind, at, team, member, own, block, since, warp_since, row, rows, threads, exact, now, units, sets,
                    free,
                )  # fmt: skip
        for number in range(chunk, chunk + chunks):
            if split[number] == 0:
                if kind == 0 and agent < 0:
                    if _quiet_read(number, team, own >> 5, 1 << (own & 31), block, since, now, threads, units):
                        continue
                elif kind == 2 and _quiet_write(number, team, block, since, threads, units):
                    continue
                bad[i] |= _visit(
                    kind, number, team, member, own, block, since, warp_since, row, rows, threads, exact, now, units,
                    sets, free,
                )  # fmt: skip
                continue
            for at in range(parts[number], parts[number] + per):
                bad[i] |= _visit(
                    kind, at, team, member, own, block, since, warp_since, row, rows, threads, exact, now, units, sets,
                    free,
                )  # fmt: skip
    if kind != 2:
        return
    for i in range(len(offsets)):
        member, chunk = members[lanes[i]] if agent < 0 else agent, offsets[i] >> 4
        if chunks == 0:
            first = parts[chunk] + ((offsets[i] & 15) >> shift)
            for at in range(first, first + count):
                _overwrite(at, member, now, bad[i], units, sets, free)
        for number in range(chunk, chunk + chunks):
            if split[number] == 0:
                _overwrite(number, member, now, bad[i], units, sets, free)
                continue
            for at in range(parts[number], parts[number] + per):
                _overwrite(at, member, now, bad[i], units, sets, free)
            if not bad[i]:
                split[number] = 0
                units[number, 0], units[number, 1], units[number, 2], units[number, 5] = member + 1, now, 0, 0
                units[number, 8], units[number, 11] = 0, lanes[i] // size_of_team + 1


def _kinds_of_note(t: Any) -> tuple[Any, ...]:
    wide, rows = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int32, 2, "C", readonly=True)
    units, sets = (t.Array(t.int32, n, "C") for n in (2, 3))
    parted, free, flags = (t.Array(one, 1, "C") for one in (t.uint8, t.int64, t.bool_))
    return (
        t.int64, wide, *[t.int64] * 3, *[wide] * 5, rows, *[t.int64] * 4, units, parted, wide, sets, free, flags
    )  # fmt: skip


note = ArrayCode(_note, _kinds_of_note)


# ---- Counts and states of the units of shared memory, which ranges of bytes set and test -----------------------------
#
# An access covers neighbouring units from its byte offset on. One pass over the offsets needs neither a table of all
# units nor an array for each intermediate result, which took most of the time of copies and of products of matrices.


def _add(marks: Array, offsets: Array, count: Any, unit: Any, by: Any) -> None:
    """Add `by` to the marks of `count` units from each offset on."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        if count == 4:  # without a loop, twice as fast
            marks[first] += by
            marks[first + 1] += by
            marks[first + 2] += by
            marks[first + 3] += by
            continue
        for at in range(first, first + count):
            marks[at] += by


def _set(marks: Array, offsets: Array, count: Any, unit: Any, to: Any) -> None:
    """Set the marks of `count` units from each offset on."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        for at in range(first, first + count):
            marks[at] = to


def _first(marks: Array, offsets: Array, count: Any, unit: Any, found: Array) -> None:
    """Set found[0] to the number of the first offset from which on any of `count` units is marked."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        if count == 4 and marks[first] | marks[first + 1] | marks[first + 2] | marks[first + 3] == 0:
            continue
        for at in range(first, first + count):
            if marks[at] != 0:
                found[0] = i
                return


def _kinds(last: str) -> Any:
    def kinds(t: Any) -> tuple[Any, ...]:
        wide = t.Array(t.int64, 1, "C", readonly=True)
        written = t.Array(t.int64, 1, "C") if last == "found" else t.int64
        return t.Array(t.int32, 1, "C", readonly=last == "found"), wide, t.int64, t.int64, written

    return kinds


_add_counts = ArrayCode(_add, _kinds("by"))
_set_states = ArrayCode(_set, _kinds("to"))
_first_count = ArrayCode(_first, _kinds("found"))


class _Marks:
    """A mark for each unit of some bytes. `marks`: the array of them. `unit`: bytes."""

    unit: int
    marks: Array

    def _covered(self, offsets: Array, size: int) -> tuple[Array, int, int]:
        return np.ascontiguousarray(offsets.reshape(-1), np.int64), max(size // self.unit, 1), self.unit


class UnitCounts(_Marks):
    """How much work in flight each unit belongs to."""

    def __init__(self, size: int, unit: int) -> None:
        self.unit, self.marks = unit, zeros(size // unit, np.int32)
        self._sum = 0

    def add(self, offsets: Array, size: int, by: int) -> None:
        """Add `by` for accesses of `size` bytes at byte offsets, once for each time that an offset occurs."""
        covered = self._covered(offsets, size)
        self._sum += by * offsets.size * covered[1]
        _add_counts(self.marks, *covered, by)

    def first(self, offsets: Array, size: int) -> int:
        """The number of the first access that touches a unit with a count; -1: none does."""
        if not self._sum:
            return -1
        first_index = np.full(1, -1)
        _first_count(self.marks, *self._covered(offsets, size), first_index)
        return int(first_index[0])


class UnitStates(_Marks):
    """A state of each unit, 0 for none, in an array of 32-bit integers that others may read and write too."""

    def __init__(self, states: Array, unit: int) -> None:
        self.unit, self.marks = unit, states

    def set(self, offsets: Array, size: int, to: int) -> None:
        """Set the state of the units that accesses of `size` bytes at byte offsets touch."""
        _set_states(self.marks, *self._covered(offsets, size), to)

    def first(self, offsets: Array, size: int) -> int:
        """The number of the first access that touches a unit with a state; -1: none does."""
        first_index = np.full(1, -1)
        _first_count(self.marks, *self._covered(offsets, size), first_index)
        return int(first_index[0])
