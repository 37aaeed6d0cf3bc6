"""The table of accesses to shared memory finds the races that the whole history of accesses has."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory import races
from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore
from ptxdiff.emulator.kernel.memory.space import Shared

READ, STRONG_READ, WRITE, UPDATE = "plain read", "strong read", "plain write", "strong write"
SIZE, UNIT = 64, 4


class History:
    """Every access so far, each with the moment at which it happened: the definition of a race, without a table."""

    def __init__(self, order: HappensBefore) -> None:
        self.order = order
        self.accesses: list[tuple[int, str, int, int]] = []

    def races(self, kind: str, unit: int, lane: int) -> bool:
        """Whether an access of a lane races with an earlier one."""
        times = self.order.components(np.array([lane]), np.arange(self.order.team)[None])[0]
        return any(
            there == unit
            and {kind, other} & {WRITE, UPDATE}
            and not {kind, other} <= {STRONG_READ, UPDATE}
            and when >= times[by]
            for by, other, there, when in self.accesses
        )


def note(shared: Shared, kind: str, offsets: np.ndarray, lanes: np.ndarray) -> np.ndarray:
    if kind == WRITE:
        return shared.note_write(offsets, UNIT, lanes, np.ones(len(lanes), np.bool_))
    if kind == UPDATE:
        return shared.note_update(offsets, UNIT, lanes)
    return shared.note_read(offsets, UNIT, lanes, kind == STRONG_READ)


@pytest.mark.sample(2)
@pytest.mark.parametrize("apart", [32, 1], ids=["a thread of each warp", "threads of three warps"])
def test_the_table_agrees_with_the_history(apart: int) -> None:
    """Random accesses and meetings of random threads."""
    rng = np.random.default_rng(apart)
    found, missed = 0, 0
    for _ in range(120):
        order = HappensBefore(96, 96)
        shared, history = Shared(1, SIZE, UNIT, True, order), History(order)
        chosen = np.arange(0, 96, apart)
        for _ in range(40):
            some = np.sort(rng.choice(chosen, rng.integers(1, min(len(chosen), 40) + 1), replace=False))
            if rng.random() < 0.6:
                order.barrier(some)
                continue
            kind = str(rng.choice([READ, READ, STRONG_READ, WRITE, UPDATE]))
            unit = int(rng.integers(2)) + (np.arange(len(some)) % 4 if kind == WRITE else 0)
            units = np.broadcast_to(unit, len(some)) if kind != WRITE else np.arange(len(some)) % (SIZE // UNIT)
            if kind == WRITE:
                some, units = some[: SIZE // UNIT], units[: SIZE // UNIT]
            expected = np.array([history.races(kind, int(u), int(lane)) for u, lane in zip(units, some, strict=True)])
            races = note(shared, kind, units * UNIT, some)
            assert not (races & ~expected).any(), "no false alarm"
            history.accesses += [(int(lane), kind, int(u), order.clock) for u, lane in zip(units, some, strict=True)]
            if expected.any():
                found, missed = found + int(races.any()), missed + int(not races.any())
                break
    assert found > 50
    assert missed == 0 if apart == 32 else missed <= found / 20


def test_reads_of_several_warps_are_remembered_until_a_write() -> None:
    order = HappensBefore(128, 128)
    shared = Shared(1, SIZE, UNIT, True, order)
    everyone, same = np.arange(0, 128, 32), np.zeros(4, np.int64)
    note(shared, READ, same, everyone)
    order.barrier(np.array([0, 32, 64]))
    assert note(shared, WRITE, same[:1], everyone[:1]).any(), "thread 96 read, and has not met thread 0"
    order.barrier(everyone)
    assert not note(shared, WRITE, same[:1], everyone[1:2]).any()
    order.barrier(everyone[:2])
    for _ in range(3):
        note(shared, READ, same[:2], everyone[:2])
        order.barrier(everyone[:2])
    assert not note(shared, WRITE, same[:1], everyone[:1]).any()


def test_asynchronous_work_reads_until_it_is_waited_for() -> None:
    order = HappensBefore(64, 64)
    shared = Shared(1, SIZE, UNIT, True, order)
    agent = order.agent("products")
    shared.note_finished_read(np.zeros(1, np.int64), UNIT, np.array([0]), agent)
    times = np.zeros(order.vectors.shape[1], np.int32)
    times[agent] = order.tick()
    assert note(shared, WRITE, np.zeros(1, np.int64), np.array([40])).any()
    order.acquire(np.array([40]), times)
    assert not note(shared, WRITE, np.zeros(1, np.int64), np.array([40])).any()


def test_a_race_is_detected() -> None:
    """Thread 40 reads the word that thread 3 of another warp wrote, without a barrier and with one."""
    order = HappensBefore(64, 64)
    shared = Shared(1, SIZE, UNIT, True, order)
    word = np.array([8])
    note(shared, WRITE, word, np.array([3]))
    assert note(shared, READ, word, np.array([40]))[0]
    order.warp_barriers(np.arange(64) < 32)
    assert not note(shared, READ, word, np.array([4]))[0], "its warp has synced"
    order.block_barriers(np.ones(64, np.bool_))
    assert not note(shared, READ, word, np.array([40]))[0]


def test_one_check_of_a_warpgroup_finds_what_its_four_warps_find() -> None:
    """After random writes and meetings: `written_by_anybody`, of a warpgroup whose warps know the same."""
    rng, compared, raced = np.random.default_rng(5), 0, 0
    units = np.arange(SIZE // UNIT) * UNIT
    for _ in range(200):
        order = HappensBefore(256, 256)
        shared = Shared(1, SIZE, UNIT, True, order)
        for _ in range(int(rng.integers(1, 12))):
            what = rng.random()
            if what < 0.5:
                lanes = rng.integers(0, 256, 6)
                note(shared, WRITE, rng.choice(units, 6, replace=False), lanes)
            elif what < 0.7:
                order.barrier(np.arange(128) + 128 * int(rng.integers(2)))
            elif what < 0.8:
                order.block_barriers(np.ones(256, np.bool_))
            elif what < 0.9:
                order.warp_barriers(np.arange(256) // 32 == rng.integers(8))
            else:
                order.barrier(np.sort(rng.choice(256, 40, replace=False)))
        for group in (0, 128):
            warps = group + 32 * np.arange(4)
            if len({(order.vector[w], order.block_time[w]) for w in warps.tolist()}) > 1:
                continue
            each = [shared.written_by_others(units, UNIT, np.full(len(units), warp)) for warp in warps]
            together = shared.written_by_anybody(units, UNIT, np.full(len(units), group))
            np.testing.assert_array_equal(together, np.any(each, axis=0))
            compared, raced = compared + 1, raced + int(together.any())
    assert min(raced, compared - raced) > 40


def test_python_records_what_compiled_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba the same text runs in Python: every table is equal after every access."""
    machine_code, interpreted, calls = races.note.compiled(), races.note.interpreted, 0

    def both(*arguments: object) -> None:
        nonlocal calls
        calls += 1
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        interpreted(*copies)
        machine_code(*arguments)
        for ours, theirs in zip(copies, arguments, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    monkeypatch.setattr(races, "note", both)
    rng = np.random.default_rng(5)
    for trial in range(12):
        order = HappensBefore(96, 96)
        shared = Shared(1, 256, UNIT, True, order)
        shared.exact = bool(trial % 2)
        for _ in range(25):
            some = np.sort(rng.choice(96, rng.integers(1, 97), replace=False))
            if rng.random() < 0.3:
                order.barrier(some)
                continue
            size = int(rng.choice([4, 8, 16]))
            offsets = rng.integers(0, 4 if trial % 3 else 16, len(some)) * 16
            match rng.integers(4):
                case 0:
                    shared.note_write(offsets, size, some, rng.random(len(some)) < 0.7)
                case 1:
                    shared.note_update(offsets, size, some)
                case kind:
                    shared.note_read(offsets, size, some, bool(kind == 3))
    assert calls > 150


def test_quiet_accesses_are_recorded_as_any_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads and writes of whole chunks that a barrier of the block orders take a short way: every table is equal after
    the long one."""
    quiet: Counter[str] = Counter()
    short = {name: getattr(races, name) for name in ("_quiet_read", "_quiet_write")}
    counted = {
        name: lambda *given, name=name: bool(found := short[name](*given)) and not quiet.update({name: 1}) and found
        for name in short
    }
    interpreted = races.note.interpreted

    def both(*arguments: object) -> None:
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arguments]
        for name in short:
            monkeypatch.setattr(races, name, lambda *given: False)
        interpreted(*copies)
        for name in short:
            monkeypatch.setattr(races, name, counted[name])
        interpreted(*arguments)
        for ours, theirs in zip(copies, arguments, strict=True):
            np.testing.assert_array_equal(ours, theirs)

    monkeypatch.setattr(races, "note", both)
    rng = np.random.default_rng(8)
    for trial in range(40):
        order = HappensBefore(192, 96)
        shared = Shared(2, 256, UNIT, True, order)
        shared.exact = bool(trial % 2)
        agent = order.agent("copies")
        for _ in range(25):
            block = int(rng.integers(2))
            lanes = np.sort(rng.choice(96, rng.integers(1, 9), replace=False)) + 96 * block
            what = rng.random()
            if what < 0.3:
                order.block_barriers(np.arange(192) // 96 == block)
                continue
            if what < 0.4:
                order.barrier(lanes)
                continue
            offsets = rng.integers(0, 4, len(lanes)) * 16 + 256 * block
            if what < 0.45:
                shared.note_landing(offsets, 16, lanes, agent)
            elif what < 0.5:
                shared.note_update(offsets, int(rng.choice([4, 16])), lanes)
            elif what < 0.7:
                shared.note_write(offsets, 16, lanes, rng.random(len(lanes)) < 0.7)
            else:
                shared.note_read(offsets, 16, lanes, what > 0.95)
    assert min(quiet["_quiet_read"], quiet["_quiet_write"]) > 100


def test_whole_chunks_and_their_units_agree_with_the_history() -> None:
    """Accesses of 4, 8 and 16 bytes of two blocks: one unit of a chunk may race though all others are ordered."""
    rng, found, one_unit = np.random.default_rng(11), 0, 0
    lanes_of_block = 96
    for trial in range(300):
        order = HappensBefore(2 * lanes_of_block, lanes_of_block)
        shared, histories = Shared(2, SIZE, UNIT, True, order), [History(order), History(order)]
        for _ in range(30):
            block = int(rng.integers(2))
            if rng.random() < 0.5:
                some = np.sort(rng.choice(3, rng.integers(1, 4), replace=False)) * 32 + block * lanes_of_block
                order.barrier(some)
                continue
            kind, size = str(rng.choice([READ, WRITE, UPDATE])), int(rng.choice([4, 8, 16]))
            lane = int(rng.integers(3)) * 32 + block * lanes_of_block
            # Mostly one chunk, which is split and joined again and again.
            offset = int(rng.integers(16 // size)) * size + (trial % 4 == 0) * 16 * int(rng.integers(SIZE // 16))
            units = offset // UNIT + np.arange(size // UNIT)
            expected = [histories[block].races(kind, int(unit), lane) for unit in units]
            where, by = np.array([offset + block * SIZE]), np.array([lane])
            if kind == WRITE:
                races = shared.note_write(where, size, by, np.ones(1, np.bool_))
            else:
                races = (shared.note_read if kind == READ else shared.note_update)(where, size, by)
            assert races[0] == any(expected)
            member = lane % lanes_of_block
            histories[block].accesses += [(member, kind, int(unit), order.clock) for unit in units]
            if any(expected):
                found, one_unit = found + 1, one_unit + (not all(expected))
                break
    assert found > 100
    assert one_unit > 10


def test_reads_behind_a_barrier_race_as_if_every_unit_were_looked_at() -> None:
    """After random writes of threads and of asynchronous work: a barrier of all threads orders the first kind only."""
    rng, compared, raced = np.random.default_rng(7), 0, 0
    units = np.arange(SIZE // UNIT) * UNIT
    for trial in range(300):
        order = HappensBefore(128, 64)
        shared = Shared(2, SIZE, UNIT, True, order)
        agent = order.agent("copies")
        for _ in range(int(rng.integers(1, 8))):
            order.tick()
            block = int(rng.integers(2))
            some, lanes = rng.choice(units, 4, replace=False) + block * SIZE, block * 64 + rng.integers(0, 64, 4)
            what = rng.random()
            if what < 0.4:
                note(shared, WRITE, some, lanes)
            elif what < 0.6 and trial % 2:
                shared.note_landing(some, UNIT, lanes, agent)
            elif what < 0.7:
                shared.note_landing(some, UNIT, lanes)
            else:
                order.block_barriers(np.arange(128) // 64 == block if what < 0.8 else np.ones(128, np.bool_))
        for kind, races_of in (
            (races.FOREIGN, shared.written_by_others),
            (races.ANYBODY, shared.written_by_anybody),
        ):
            lanes = np.repeat(rng.integers(0, 64), len(units))
            expected = shared.note(kind, units, UNIT, lanes)
            np.testing.assert_array_equal(races_of(units, UNIT, lanes), expected)
            compared, raced = compared + 1, raced + int(expected.any())
    assert min(raced, compared - raced) > 100


def test_the_table_keeps_its_records_as_it_grows() -> None:
    """Accesses of four bytes split one chunk of 16 after the other, more than a new table has room for."""
    order = HappensBefore(64, 64)
    shared = Shared(1, 1024, UNIT, True, order)
    everywhere = np.arange(0, 1024, UNIT)
    for offset in everywhere:
        assert not note(shared, WRITE, np.array([offset]), np.array([0])).any()
    for offset in everywhere:
        assert note(shared, READ, np.array([offset]), np.array([32])).all()
