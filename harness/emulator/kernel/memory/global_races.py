"""Data races on global memory: accesses of two threads, one of them a store, that nothing orders.

Each buffer has arrays with an entry for each unit of bytes (the program's smallest access): the last write, the last
read, and the last update by an atomic operation. An entry holds the thread's number in the grid, two flags, and the
time of the frame's clock. `happens_before` says what is ordered within a block, or a cluster. Nothing orders other
blocks; but in a kernel with atomics, fences or acquiring loads races between blocks are not reported, because this
module does not model such order. A write after reads by several blocks of a cluster is not checked. Atomics and strong
stores race with plain accesses, not with each other, nor with strong and volatile loads, which may wait for them.

Where something else than barriers of whole blocks may order threads (`KernelGrid.beyond_block_barriers`), one access
for each unit is not enough: a table of all accesses since the last write decides within a block or a cluster
(`races`, `_judge`), and the arrays only between them.

Loads that are not coherent (`ld.nc`, `ldu`) must not read what the kernel has written, in whatever order.

Two kinds of store are not reported, because Triton generates them and no result depends on their order: a store of
bytes equal to those already there, and a store by the first of the threads that read the place in one instruction. (A
layout that replicates an element loads it in all its threads and stores it from the first.)
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from ptxdiff.emulator.binding.program import Step
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.emulator.kernel.memory import races
from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.kernel.memory.proxy_fences import ProxyFences, Writes
from ptxdiff.emulator.kernel.memory.space import (
    COPIES,
    READERS,
    STRONG_READERS,
    UPDATERS,
    WRITERS,
    Access,
    AccessTable,
    Buffer,
    Place,
    Shadow,
)
from ptxdiff.emulator.kernel.threads import ThreadFrame
from ptxdiff.emulator.numeric.vectorise import Array

_THREAD = 26
_MIXED = np.int64(1 << 25)
"""Flag: several threads of one block read the unit, in different instructions."""
_BLOCKS = np.int64(1 << 24)
"""Flag: several blocks read the unit (in a grid with clusters: blocks of several clusters)."""
_TIME = np.int64((1 << 24) - 1)
_NONE = np.int64(0)
_NOBODY, _SEVERAL = np.int64(-1), np.int64(-2)
"""In place of the cluster whose bulk copies read a unit."""


def shadow_of(frame: ThreadFrame, buffer: Buffer) -> Shadow:
    """The shadow of a buffer, made at its first access."""
    with frame.grid.lock:
        if buffer.shadow is None:
            buffer.shadow = Shadow(len(buffer.bytes), frame.grid.unit("global"))
        return buffer.shadow


# entries, in compiled code -----------------------------------------------------------------------------------------


def _suspect_code(
    entries: Array, offsets: Array, count: Any, unit: Any, lanes: Array, numbers: Array, times: Array, threads: Any,
    several: Any, found: Array,
) -> None:  # fmt: skip
    """Set found[0] if an access of a lane touches a unit whose entry only `_unordered` can clear.

    The others are of the same thread, or of its block before its last barrier. several: flags of entries that stand for
    other threads, too. numbers, times: of each lane of the frame, its thread and its `block_time`.
    """
    for i in range(len(offsets)):
        me, since = numbers[lanes[i]], times[lanes[i]]
        block = me - me % threads
        first = offsets[i] // unit
        for at in range(first, first + count):
            entry = entries[at]
            if entry < 0:
                continue
            thread, flags = entry >> 26, entry & several
            if thread == me and flags == 0:
                continue
            if block <= thread < block + threads and entry & 0xFFFFFF < since and entry & (1 << 24) == 0:
                continue
            found[0] = 1
            return


def _note_readers_code(
    entries: Array, offsets: Array, count: Any, unit: Any, lanes: Array, numbers: Array, times: Array, threads: Any,
    cluster: Any, blocks: Any, now: Any, old: Array,
) -> None:  # fmt: skip
    """Make the entries of units those of the first of the lanes that read them now, with flags for earlier and other
    readers.

    blocks: the flag for readers in several clusters; 0 if it is not used. now: the time of an entry. old: room for an
    entry of each unit of each access.
    """
    apart = True
    for i in range(1, len(offsets)):
        apart &= offsets[i] >= offsets[i - 1] + count * unit
    if apart:  # each unit has one reader, as in most kernels that are elementwise: one pass
        for i in range(len(offsets)):
            me, since = numbers[lanes[i]], times[lanes[i]]
            first = offsets[i] // unit
            for at in range(first, first + count):
                entry, flags = entries[at], 0
                if entry >= 0 and (entry >> 26 != me or entry & (3 << 24) != 0):
                    earlier = entry >> 26
                    recent = earlier // threads == me // threads and entry & 0xFFFFFF >= since
                    if recent and (earlier != me or entry & (1 << 25) != 0):
                        flags |= 1 << 25
                    if entry & (1 << 24) != 0 or earlier // cluster != me // cluster:
                        flags |= blocks
                entries[at] = me << 26 | now | flags
        return
    for i in range(len(offsets)):
        first = offsets[i] // unit
        for k in range(count):
            old[i * count + k] = entries[first + k]
    for back in range(len(offsets)):
        i = len(offsets) - 1 - back
        first = offsets[i] // unit
        for k in range(count):
            entries[first + k] = numbers[lanes[i]] << 26 | now
    for i in range(len(offsets)):
        me, since = numbers[lanes[i]], times[lanes[i]]
        mine = me - me % cluster
        first = offsets[i] // unit
        for k in range(count):
            reader, entry = entries[first + k] >> 26, old[i * count + k]
            flags = 0
            if not mine <= reader < mine + cluster:
                flags |= blocks
            if entry >= 0:
                earlier = entry >> 26
                recent = earlier // threads == reader // threads and entry & 0xFFFFFF >= since
                if recent and (earlier != reader or entry & (1 << 25) != 0):
                    flags |= 1 << 25
                if entry & (1 << 24) != 0 or (earlier != reader and earlier // cluster != reader // cluster):
                    flags |= blocks
            if flags != 0:
                entries[first + k] |= flags


def _finish_readers_code(
    entries: Array, offsets: Array, count: Any, unit: Any, lanes: Array, numbers: Array, now: Any
) -> None:  # fmt: skip
    """Move the entries of units that are those of the lanes to the time `now`."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        for at in range(first, first + count):
            if entries[at] >> 26 == numbers[lanes[i]]:
                entries[at] = entries[at] & ~0xFFFFFF | now


def _note_writers_code(
    entries: Array, offsets: Array, count: Any, unit: Any, lanes: Array, numbers: Array, now: Any
) -> None:  # fmt: skip
    """Make the entries of units those of the last of the lanes that write them now."""
    for i in range(len(offsets)):
        first = offsets[i] // unit
        for at in range(first, first + count):
            entries[at] = numbers[lanes[i]] << 26 | now


def _kinds(lane_arrays: int, integers: int, last: bool) -> Any:
    """Types of an entry array, offsets, two integers, arrays by lane, integers, and a last array that is written."""

    def kinds(t: Any) -> tuple[Any, ...]:
        wide, entries = t.Array(t.int64, 1, "C", readonly=True), t.Array(t.int64, 1, "C")
        written = (entries,) if last else ()
        return entries, wide, t.int64, t.int64, *[wide] * lane_arrays, *[t.int64] * integers, *written

    return kinds


_suspect = ArrayCode(_suspect_code, _kinds(3, 2, True))
_note_readers = ArrayCode(_note_readers_code, _kinds(3, 4, True))
_finish_readers = ArrayCode(_finish_readers_code, _kinds(2, 1, False))
_note_writers = ArrayCode(_note_writers_code, _kinds(2, 1, False))


def _covered(shadow: Shadow, offsets: Array, access: Access) -> tuple[Array, int, int]:
    """Byte offsets as compiled code reads them, the units of an access from each on, and their bytes."""
    return np.ascontiguousarray(offsets, np.int64), max(access.size // shadow.unit, 1), shadow.unit


def _clear(
    frame: ThreadFrame, shadow: Shadow, entries: Array, access: Access, lanes: Array, offsets: Array, several: np.int64
) -> bool:  # fmt: skip
    """Whether no entry of the units of accesses can be of an access that nothing orders before the lanes' now."""
    suspected = np.zeros(1, np.int64)
    _suspect(
        entries, *_covered(shadow, offsets, access), lanes, frame.number, frame.order.block_time, frame.grid.threads,
        several, suspected,
    )  # fmt: skip
    return not suspected[0]


# accesses ----------------------------------------------------------------------------------------------------------


def note_read(frame: ThreadFrame, step: Step, access: Access, lanes: Array, place: Place, buffer: Buffer) -> None:
    """Record a read. Raises MemoryFault if another thread wrote the bytes and nothing orders the two."""
    shadow = shadow_of(frame, buffer)
    lanes = np.ascontiguousarray(lanes, np.int64)
    me = frame.number[lanes][:, None]
    since = frame.order.block_time[lanes][:, None]
    if shadow.writers is not None and not _clear(frame, shadow, shadow.writers, access, lanes, place.offsets, _NONE):
        entry = shadow.writers[shadow.units(place.offsets, access.size)]
        bad = _unordered(frame, entry, me, since, lanes) & (entry >> _THREAD != me)
        _refuse(frame, step, lanes, place, buffer, entry, bad, "reads", "wrote")
    strong = _is_strong_read(frame, step)
    if shadow.updaters is not None and not strong:
        entry = shadow.updaters[shadow.units(place.offsets, access.size)]
        bad = _unordered(frame, entry, me, since, lanes) & ((entry >> _THREAD != me) | (entry & _MIXED != 0))
        _refuse(frame, step, lanes, place, buffer, entry, bad, "reads", "updated")
    if step.node.opcode == "ldu" or "nc" in step.node.modifiers:
        _refuse_stale(frame, step, lanes, place, buffer, shadow, shadow.units(place.offsets, access.size))
    _judge(frame, step, races.STRONG_READ if strong else races.PLAIN_READ, access, lanes, place, buffer)
    if strong:
        _note_last(frame, shadow.made(STRONG_READERS), shadow.units(place.offsets, access.size), me, since)
        return
    threads, cluster = frame.grid.threads, frame.grid.threads * frame.grid.cluster_size
    blocks = _NONE if frame.grid.synchronises else _BLOCKS
    offsets, count, unit = _covered(shadow, place.offsets, access)
    _note_readers(
        shadow.made(READERS), offsets, count, unit, lanes, frame.number, frame.order.block_time, threads, cluster,
        blocks, np.int64(frame.order.clock) & _TIME, np.empty(len(offsets) * count, np.int64),
    )  # fmt: skip


def note_finished_read(frame: ThreadFrame, access: Access, lanes: Array, offsets: Array, buffer: Buffer) -> None:
    """Record that asynchronous copies of lanes have read until now what they began to read before."""
    shadow = buffer.shadow
    if shadow is None or shadow.readers is None:
        return
    # Of a unit that others have read since, the entry is theirs.
    now = np.int64(frame.order.clock) & _TIME
    by = np.ascontiguousarray(lanes, np.int64)
    _finish_readers(shadow.readers, *_covered(shadow, offsets, access), by, frame.number, now)


def check_bulk_read(frame: ThreadFrame, step: Step, lane: int, buffer: Buffer, offsets: Array) -> None:
    """Raise MemoryFault if a lane's bulk copy reads bytes that a thread wrote and nothing orders before it, or no proxy
    fence.

    offsets: of all its bytes, or of one in each 16.
    """
    shadow = buffer.shadow
    if shadow is None or (shadow.writers is None and shadow.updaters is None):
        return
    units = np.unique(offsets // shadow.unit)
    lanes = np.array([lane])
    me, since = frame.number[lanes][:, None], frame.order.block_time[lanes][:, None]
    where = buffer.name or "global memory"
    for entries in (shadow.writers, shadow.updaters):
        if entries is not None:
            entry = entries[units][None]
            bad = _unordered(frame, entry, me, since, lanes, of_team=True) & (entry >> _THREAD != me)
            if bad.any():
                at = int(units[np.flatnonzero(bad[0])[0]]) * shadow.unit - buffer.residue
                text = f"race: {frame.who(lane)} copies from {where} at offset {at}, which another thread wrote, and "
                raise frame.fault(MemoryFault, step, text + "nothing orders them")
    refuse_unfenced(frame, step, lane, buffer, units, "copies from")


def refuse_unfenced(
    frame: ThreadFrame, step: Step, lane: int, buffer: Buffer, units: Array, verb: str, own: bool = False
) -> None:
    """Raise MemoryFault if a lane's bulk copy accesses units that a thread wrote, and no proxy fence lies between.

    own: writes by threads of other teams do not count.
    """
    proxy = frame.proxies.get(id(buffer))
    if proxy is None or not (states := proxy.states[units]).any():
        return
    assert buffer.shadow is not None
    shadow, units = buffer.shadow, units[states != 0]
    writes = _writes_of_team(frame, shadow, units, lane // frame.order.team)
    lacking = proxy.lacking(lane, units, writes, of_warp=False)
    if own:
        lacking &= np.bincount(writes.at, minlength=len(units)) > 0
    if lacking.any():
        at = int(units[np.flatnonzero(lacking)[0]]) * shadow.unit - buffer.residue
        text = (
            f"{frame.who(lane)} {verb} {buffer.name or 'global memory'} at offset {at}, which a thread wrote, and no "
        )
        raise frame.fault(MemoryFault, step, text + "fence.proxy.async lies between")


def alone(frame: ThreadFrame, region: Any) -> AbstractContextManager[Any]:
    """Held while an access to global memory is judged and recorded: blocks of other threads and forks wait."""
    judged = frame.grid.races and isinstance(region, Buffer)
    return shadow_of(frame, region).alone() if judged else nullcontext()


def note_bulk_read(frame: ThreadFrame, lane: int, buffer: Buffer, offsets: Array, size: int) -> None:
    """Record that a bulk copy reads rows of `size` bytes at offsets, for writes by other blocks.

    Writes by the own cluster are not judged by it: a thread that has waited for the copy's mbarrier is behind the read.
    """
    shadow = shadow_of(frame, buffer)
    first, covered = whole(offsets, size, shadow.unit)
    if not covered:
        return
    readers, units = shadow.made(COPIES), shadow.units(first, covered)
    cluster = int(frame.number[lane]) // (frame.grid.threads * frame.grid.cluster_size)
    before = readers[units]
    readers[units] = np.where((before == _NOBODY) | (before == cluster), cluster, _SEVERAL)


def whole(offsets: Array, size: int, unit: int) -> tuple[Array, int]:
    """The units that lie wholly in rows of bytes: the offsets of the first ones, and their bytes in each row.

    Rows begin at the same distance from a unit, as the strides of tensors are multiples of 16.
    """
    first = -(-offsets // unit) * unit
    return first, max(int(offsets[0] + size) // unit * unit - int(first[0]), 0)


def _refuse_copied(
    frame: ThreadFrame, step: Step, access: Access, lanes: Array, place: Place, buffer: Buffer, shadow: Shadow,
    changes: Array,
) -> None:  # fmt: skip
    """Raise MemoryFault if lanes change bytes that a bulk copy of another block reads, in a kernel whose blocks do not
    communicate."""
    if frame.grid.synchronises or shadow.copies is None or not changes.any():
        return
    entry = shadow.copies[shadow.units(place.offsets, access.size)]
    clusters = frame.number[lanes][:, None] // (frame.grid.threads * frame.grid.cluster_size)
    bad = (entry != _NOBODY) & (entry != clusters) & changes[:, None]
    if bad.any():
        at = int(np.flatnonzero(bad.any(axis=1))[0])
        where = f"{buffer.name or 'global memory'} at offset {int(place.offsets[at]) - buffer.residue}"
        text = f"race: {frame.who(int(lanes[at]))} overwrites {where}, which a bulk copy of another block reads, and "
        raise frame.fault(MemoryFault, step, text + "nothing orders them")


def fence(frame: ThreadFrame, lanes: Array) -> None:
    """Record a proxy fence by lanes: what they wrote to global memory, and what happened before them, is visible to the
    async proxy for all that happens after the fence."""
    order = frame.order
    for buffer in frame.grid.memory.buffers:
        proxy = frame.proxies.get(id(buffer))
        if proxy is None:
            continue
        assert buffer.shadow is not None
        proxy.settle()
        units = np.flatnonzero(proxy.states)
        for team in np.unique(lanes // order.team).tolist():
            mine = lanes[lanes // order.team == team]
            writes = _writes_of_team(frame, buffer.shadow, units, team)
            some = np.unique(writes.at)  # nothing orders writes of another team
            some = some[proxy.without(mine, units[some], np.full(len(some), team))]
            if len(some):
                proxy.fence(mine, units[some], _writes_of_team(frame, buffer.shadow, units[some], team))


def _writes_of_team(frame: ThreadFrame, shadow: Shadow, units: Array, team: int) -> Writes:
    """The last write and the last update of some units that threads of a team of the frame made."""
    columns: list[tuple[Array, Array, Array]] = []
    for entries in (shadow.writers, shadow.updaters):
        if entries is not None:
            lanes = (entries[units] >> _THREAD) - frame.number[0]
            at = np.flatnonzero((lanes >= 0) & (lanes // frame.order.team == team))
            columns.append((at, lanes[at], entries[units[at]] & _TIME))
    return Writes(*(np.concatenate(column) for column in zip(*columns, strict=True)))


def _unfenced(frame: ThreadFrame, buffer: Buffer, units: Array) -> None:
    """Record that threads wrote units that a bulk copy may read."""
    if frame.grid.copies_in_bulk:
        if id(buffer) not in frame.proxies:
            frame.proxies[id(buffer)] = ProxyFences(shadow_of(frame, buffer).count, frame.order)
        frame.proxies[id(buffer)].wrote(units)


def _refuse_stale(
    frame: ThreadFrame, step: Step, lanes: Array, place: Place, buffer: Buffer, shadow: Shadow, units: Array
) -> None:
    """Raise MemoryFault for a load through a cache that no store updates, of bytes that the kernel wrote before.

    PTX ISA, ld and ldu: `.nc` loads by a cache that is not coherent, `ldu` loads read-only data. No barrier helps.
    """
    written = np.zeros(units.shape, np.bool_) if shadow.writers is None else shadow.writers[units] >= 0
    if shadow.updaters is not None:
        written |= shadow.updaters[units] >= 0
    if not written.any():
        return
    at = int(np.flatnonzero(written.any(axis=1))[0])
    where = f"{buffer.name or 'global memory'} at offset {int(place.offsets[at]) - buffer.residue}"
    load = "ldu" if step.node.opcode == "ldu" else "ld.nc"
    message = f"reads {where} by {load}, which may give what was there before this kernel wrote it"
    raise frame.fault(MemoryFault, step, f"{frame.who(int(lanes[at]))} {message}")


def note_write(
    frame: ThreadFrame, step: Step, access: Access, lanes: Array, place: Place, buffer: Buffer, changes: Array
) -> None:
    """Record a write. Raises MemoryFault if it changes bytes that another thread wrote or read, and nothing orders the
    two.

    changes: the lanes that write bytes different from those already there.
    """
    shadow = shadow_of(frame, buffer)
    lanes = np.ascontiguousarray(lanes, np.int64)
    _refuse_copied(frame, step, access, lanes, place, buffer, shadow, changes)
    if changes.any():
        me = frame.number[lanes][:, None]
        since = frame.order.block_time[lanes][:, None]
        if shadow.writers is not None and not _clear(
            frame, shadow, shadow.writers, access, lanes, place.offsets, _NONE
        ):
            entry = shadow.writers[shadow.units(place.offsets, access.size)]
            bad = _unordered(frame, entry, me, since, lanes) & (entry >> _THREAD != me) & changes[:, None]
            _refuse(frame, step, lanes, place, buffer, entry, bad, "overwrites", "wrote")
        both = _MIXED | _BLOCKS
        if shadow.readers is not None and not _clear(frame, shadow, shadow.readers, access, lanes, place.offsets, both):
            entry = shadow.readers[shadow.units(place.offsets, access.size)]
            bad = _unordered(frame, entry, me, since, lanes)
            bad &= (entry >> _THREAD != me) | (entry & (_MIXED | _BLOCKS) != 0)
            _refuse(frame, step, lanes, place, buffer, entry, bad & changes[:, None], "overwrites", "read")
        if shadow.updaters is not None:
            entry = shadow.updaters[shadow.units(place.offsets, access.size)]
            bad = _unordered(frame, entry, me, since, lanes) & ((entry >> _THREAD != me) | (entry & _MIXED != 0))
            _refuse(frame, step, lanes, place, buffer, entry, bad & changes[:, None], "overwrites", "updated")
        if shadow.strong_readers is not None:
            entry = shadow.strong_readers[shadow.units(place.offsets, access.size)]
            bad = _unordered(frame, entry, me, since, lanes) & ((entry >> _THREAD != me) | (entry & _MIXED != 0))
            _refuse(frame, step, lanes, place, buffer, entry, bad & changes[:, None], "overwrites", "read")
    _judge(frame, step, races.PLAIN_WRITE, access, lanes, place, buffer, changes)
    now = np.int64(frame.order.clock) & _TIME
    _note_writers(shadow.made(WRITERS), *_covered(shadow, place.offsets, access), lanes, frame.number, now)
    if frame.grid.copies_in_bulk and step.facts.proxy != "async":
        _unfenced(frame, buffer, shadow.units(place.offsets, access.size))


def note_update(frame: ThreadFrame, step: Step, access: Access, lanes: Array, place: Place, buffer: Buffer) -> None:
    """Record an atomic operation; raises MemoryFault where another thread's store is not ordered with it."""
    shadow = shadow_of(frame, buffer)
    _refuse_copied(frame, step, access, lanes, place, buffer, shadow, np.ones(len(lanes), np.bool_))
    units = shadow.units(place.offsets, access.size)
    me = frame.number[lanes][:, None]
    since = frame.order.block_time[lanes][:, None]
    if shadow.writers is not None:
        entry = shadow.writers[units]
        bad = _unordered(frame, entry, me, since, lanes) & (entry >> _THREAD != me)
        _refuse(frame, step, lanes, place, buffer, entry, bad, "updates", "wrote")
    if shadow.readers is not None:
        entry = shadow.readers[units]
        bad = _unordered(frame, entry, me, since, lanes)
        bad &= (entry >> _THREAD != me) | (entry & (_MIXED | _BLOCKS) != 0)
        verb = "overwrites" if step.kind == "st" else "updates"
        _refuse(frame, step, lanes, place, buffer, entry, bad, verb, "read")
    _judge(frame, step, races.STRONG_WRITE, access, lanes, place, buffer)
    if step.facts.proxy != "async":
        _unfenced(frame, buffer, units)
    _note_last(frame, shadow.made(UPDATERS), units, me, since)


def _note_last(frame: ThreadFrame, entries: Array, units: Array, me: Array, since: Array) -> None:
    """Record the last of strong accesses that threads `me` make now."""
    old = entries[units]
    entries[units] = me << _THREAD | np.int64(frame.order.clock) & _TIME
    # Several threads of a block since its last barrier: no later store by one of them is behind them all.
    recent = (old >= 0) & ((old >> _THREAD) // frame.grid.threads == me // frame.grid.threads) & (old & _TIME >= since)
    several = recent & ((old >> _THREAD != me) | (old & _MIXED != 0)) | (entries[units] >> _THREAD != me)
    if several.any():
        entries[units[several]] |= _MIXED


# where other things than barriers of whole blocks order threads ------------------------------------------------------


def _judge(
    frame: ThreadFrame, step: Step, kind: int, access: Access, lanes: Array, place: Place, buffer: Buffer,
    changes: Array | None = None,
) -> None:  # fmt: skip
    """Record an access of a kind of `races` in a kernel with `beyond_block_barriers`.

    Raises MemoryFault if it races with one of another thread of the block, or of the cluster. changes: the lanes that
    store other bytes than those already there.
    """
    if not frame.grid.beyond_block_barriers:
        return
    table = frame.tables.get(id(buffer))
    if table is None:
        table = frame.tables[id(buffer)] = AccessTable(len(buffer.bytes), frame.grid.unit("global"), frame.order, True)
    if not table.written and kind in (races.PLAIN_READ, races.STRONG_READ):
        table.note(kind, place.offsets, access.size, lanes)  # no read races with reads
        return
    units = table.units(place.offsets, access.size)
    before = table.rows_of(units)
    bad = table.note(kind, place.offsets, access.size, lanes)
    for at in np.flatnonzero(bad if changes is None else bad & changes).tolist():
        lane = int(lanes[at])
        for unit, row in zip(units[at].tolist(), before[at], strict=True):
            unordered = _first_unordered(frame, table, row, lane, kind)
            if unordered is None or (unordered[1] == "read" and _was_first_reader(frame, buffer, unit, lane)):
                continue
            other, did = unordered
            verb = {races.PLAIN_WRITE: "overwrites", races.STRONG_WRITE: "updates"}.get(kind, "reads")
            where = f"{buffer.name or 'global memory'} at offset {int(place.offsets[at]) - buffer.residue}"
            text = f"race: {frame.who(lane)} {verb} {where}, which {frame.who(other)} {did}, and nothing orders them"
            raise frame.fault(MemoryFault, step, text)


def _first_unordered(
    frame: ThreadFrame, table: AccessTable, row: Array, lane: int, kind: int
) -> tuple[int, str] | None:
    """A lane of the same block or cluster whose access, in a unit's row, nothing orders before a lane's, and what it
    did."""
    order = frame.order
    team = lane // order.team
    if row[races.TEAM] != team + 1:
        return None
    # What other blocks do, outside a cluster, is judged in `consistency`.
    near = int(order.member[lane]) // order.cluster
    other = table.unordered(row, lane, kind, lambda member: member // order.cluster == near)
    return None if other is None else (team * order.team + other[0], other[1])


def _was_first_reader(frame: ThreadFrame, buffer: Buffer, unit: int, lane: int) -> bool:
    """Whether a lane was the first of the threads that read a unit in one instruction, and no other one read it."""
    assert buffer.shadow is not None
    if buffer.shadow.readers is None:  # all reads were strong
        return False
    entry = int(buffer.shadow.readers[unit])
    return entry >= 0 and entry >> _THREAD == int(frame.number[lane]) and not entry & int(_MIXED)


_STRONG = frozenset({"relaxed", "acquire", "release"})


def is_strong(frame: ThreadFrame, step: Step) -> bool:
    """Whether a load or store is strong (ISA 8.3): two such accesses do not race.

    They have no order by that. As nothing but chance decides which comes first, a relaxed load whose value decides
    nothing (`data_loads`) counts as plain, and so do volatile accesses, except for loads for whose value a loop waits
    (`awaited_loads`), the stores in a kernel with such loads, and volatile loads of global memory (`_is_strong_read`).
    """
    sem, grid = step.bound.modifiers.get("sem"), frame.grid
    if sem == "volatile" and grid.awaited:
        return step.kind == "st" or step.node.offset in grid.awaited
    return sem in _STRONG and step.node.offset not in grid.data_loads


def _is_strong_read(frame: ThreadFrame, step: Step) -> bool:
    """Whether a load is strong, or volatile: such loads may wait for atomic operations."""
    volatile = step.bound.modifiers.get("sem") == "volatile" and step.node.offset not in frame.grid.data_loads
    return volatile or is_strong(frame, step)


def _unordered(
    frame: ThreadFrame, entry: Array, me: Array, since: Array, lanes: Array, of_team: bool = False
) -> Array:  # fmt: skip
    """Whether nothing orders the access in an entry before the current access of threads `me`.

    of_team: also of threads of the own block or cluster where `_judge` decides them.
    """
    order, thread, time = frame.order, entry >> _THREAD, entry & _TIME
    near = thread // frame.grid.threads == me // frame.grid.threads
    unordered: Array = (entry >= 0) & (~(near & (time < since)) | (entry & _BLOCKS != 0))
    if not unordered.any():
        return unordered
    # What blocks outside a cluster do is judged in `consistency`.
    beside = thread // order.cluster == me // order.cluster
    if beside.any():
        bound = order.components(lanes, np.where(beside & unordered, thread % order.team, 0))
        if order.used == 1:  # only barriers of whole blocks ordered threads, so this holds for all readers
            bound = np.where(near & (entry & _MIXED != 0), since, bound)
        unordered &= ~(beside & (time < bound)) | (entry & _BLOCKS != 0)
    if frame.grid.synchronises:
        unordered &= beside
    if frame.grid.beyond_block_barriers and not of_team:
        unordered &= ~beside
    return unordered


def _refuse(
    frame: ThreadFrame, step: Step, lanes: Array, place: Place, buffer: Buffer, entry: Array, bad: Array,
    verb: str, before: str,
) -> None:  # fmt: skip
    if not bad.any():
        return
    at = int(np.flatnonzero(bad.any(axis=1))[0])
    word = int(entry[at][np.flatnonzero(bad[at])[0]])
    thread, threads = word >> _THREAD, frame.grid.threads
    if thread == int(frame.number[lanes[at]]) or (before == "updated" and word & int(_MIXED)):
        other = "which other blocks" if word & int(_BLOCKS) else "which other threads of its block"
    else:
        block = frame.grid.coordinates(thread // threads)
        other = f"which thread {thread % threads} of block {block}"
    where = f"{buffer.name or 'global memory'} at offset {int(place.offsets[at]) - buffer.residue}"
    text = f"race: {frame.who(int(lanes[at]))} {verb} {where}, {other} {before}, and nothing orders them"
    raise frame.fault(MemoryFault, step, text)
