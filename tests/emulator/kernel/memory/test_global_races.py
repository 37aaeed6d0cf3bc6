"""Entries of global memory, made and cleared in compiled code, are those that arrays of all units give."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory import global_races as races
from ptxdiff.emulator.kernel.memory.array_code import ArrayCode
from ptxdiff.emulator.kernel.memory.space import Buffer

THREADS, LANES, UNITS, UNIT = 4, 16, 12, 4
MIXED, BLOCKS, TIME = 1 << 25, 1 << 24, (1 << 24) - 1


def units_of(offsets: np.ndarray, count: int) -> np.ndarray:
    return offsets[:, None] // UNIT + np.arange(count)


def readers_by_arrays(
    entries: np.ndarray, offsets: np.ndarray, count: int, me: np.ndarray, since: np.ndarray, cluster: int, blocks: int,
    now: int,
) -> np.ndarray:  # fmt: skip
    """The first of the lanes that read a unit, at `now`, with flags for other readers since a lane's last barrier."""
    entries, units, me, since = entries.copy(), units_of(offsets, count), me[:, None], since[:, None]
    old = entries[units]
    for row, thread in zip(units[::-1], me[::-1], strict=True):
        entries[row] = thread << 26 | now
    first, valid = entries[units] >> 26, old >= 0
    before = valid & (old >> 26 != first)
    recent = valid & (old >> 26 >> 2 == first >> 2) & (old & TIME >= since) & (before | (old & MIXED != 0))
    far = (before & ((old >> 26) // cluster != first // cluster)) | (valid & (old & BLOCKS != 0))
    far |= first // cluster != me // cluster
    np.bitwise_or.at(entries, units, np.where(recent, MIXED, 0) | np.where(far, blocks, 0))
    return entries


def drawn(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Entries, offsets of accesses, their units, lanes, the lanes' threads and last barriers."""
    entries = rng.integers(0, LANES, UNITS) << 26 | rng.integers(0, 9, UNITS)
    entries |= np.where(rng.random(UNITS) < 0.3, MIXED, 0) | np.where(rng.random(UNITS) < 0.2, BLOCKS, 0)
    entries[rng.random(UNITS) < 0.2] = -1
    count = int(rng.choice([1, 2, 4]))
    lanes = np.sort(rng.choice(LANES, int(rng.integers(1, LANES)), replace=False))
    offsets = rng.integers(0, UNITS // count, len(lanes)) * count * UNIT
    return entries, offsets, np.array(count), lanes, np.arange(LANES), rng.integers(0, 9, LANES)


@pytest.mark.parametrize("way", ["compiled", "interpreted"])
def test_entries_are_those_of_arrays(way: str) -> None:
    rng, flags = np.random.default_rng(6), {MIXED: 0, BLOCKS: 0}

    def code(of: ArrayCode) -> object:
        return of.compiled() if way == "compiled" else of.interpreted

    note, finish, write = (code(x) for x in (races._note_readers, races._finish_readers, races._note_writers))
    for _ in range(900 if way == "compiled" else 60):
        entries, offsets, count, lanes, numbers, times = drawn(rng)
        if rng.random() < 0.5:  # units of one reader each
            offsets = np.unique(offsets)
            lanes = lanes[: len(offsets)]
        cluster, blocks, now, n = int(rng.choice([4, 8])), int(rng.choice([BLOCKS, 0])), 9, int(count)
        units = units_of(offsets, n)
        expected = readers_by_arrays(entries, offsets, n, lanes, times[lanes], cluster, blocks, now)
        got, room = entries.copy(), np.empty(len(lanes) * n, np.int64)
        note(got, offsets, n, UNIT, lanes, numbers, times, THREADS, cluster, blocks, now, room)  # type: ignore[operator]
        np.testing.assert_array_equal(got, expected)
        for flag in flags:
            flags[flag] += int((got & flag != 0).sum() > (entries & flag != 0).sum())

        got, expected = entries.copy(), entries.copy()
        for row, lane in zip(units, lanes, strict=True):
            mine = expected[row] >> 26 == lane
            expected[row[mine]] = expected[row[mine]] & ~TIME | now
        finish(got, offsets, n, UNIT, lanes, numbers, now)  # type: ignore[operator]
        np.testing.assert_array_equal(got, expected)

        expected[units] = (lanes << 26 | now)[:, None]
        write(got, offsets, n, UNIT, lanes, numbers, now)  # type: ignore[operator]
        np.testing.assert_array_equal(got, expected)
    assert way == "interpreted" or min(flags.values()) > 20


def test_what_is_not_suspected_is_ordered() -> None:
    """By an entry's thread, its flags and its time; a suspicion says that one of the accesses may not be."""
    rng, seen, suspect = np.random.default_rng(4), {True: 0, False: 0}, races._suspect.compiled()
    for _ in range(1500):
        entries, offsets, count, lanes, numbers, times = drawn(rng)
        lanes, offsets = lanes[:1], offsets[:1]
        units, several = units_of(offsets, int(count)), int(rng.choice([0, MIXED | BLOCKS]))
        wrong = False
        for row, lane in zip(units, lanes, strict=True):
            for entry in entries[row].tolist():
                same = entry >> 26 == lane and not entry & several
                near = (entry >> 26) // THREADS == lane // THREADS
                ordered = near and entry & TIME < times[lane] and not entry & BLOCKS
                wrong |= entry >= 0 and not same and not ordered
        found = np.zeros(1, np.int64)
        suspect(entries, offsets, int(count), UNIT, lanes, numbers, times, THREADS, several, found)
        assert bool(found[0]) == wrong
        seen[wrong] += 1
    assert min(seen.values()) > 50


@pytest.mark.parametrize(("offset", "size", "read"), [(8, 16, []), (8, 40, [1, 2]), (0, 32, [0, 1])])
def test_a_bulk_copy_reads_the_units_that_lie_wholly_in_its_rows(offset: int, size: int, read: list[int]) -> None:
    """Another block may write the other half of a unit."""
    grid = SimpleNamespace(threads=1, cluster_size=1, lock=nullcontext(), unit=lambda space: 16)
    buffer = Buffer(np.zeros(64, np.uint8))
    races.note_bulk_read(SimpleNamespace(grid=grid, number=[3]), 0, buffer, np.array([offset]), size)  # type: ignore[arg-type]
    noted = buffer.shadow.copies if buffer.shadow is not None else None
    assert ([] if noted is None else np.flatnonzero(noted == 3).tolist()) == read
