"""Blocks in forks of this process: the bits, the findings and the errors are those of threads."""

from __future__ import annotations

import contextlib
import os
import threading

import numpy as np
import pytest

from ptxdiff.emulator.errors import MemoryFault, PtxError, TimeLimit, UndefinedBits
from ptxdiff.emulator.kernel import run as run_module
from ptxdiff.emulator.kernel.memory import global_races as races
from ptxdiff.emulator.kernel.run import Buffer, Executed, run_kernel
from ptxdiff.emulator.machine import forks, parallel
from ptxdiff.emulator.machine.forks import Failed, for_each, shared_zeros
from tests.emulator.kernel.test_run import module

BLOCKS = 6
ADD = "ld.global.u32 %r7, [%rd11]; add.u32 %r7, %r7, 5; st.global.u32 [%rd12], %r7;"
FIRST = "ld.param.u64 %rd6, [p1]; setp.eq.u32 %p1, %r1, 0;"  # the first word of y; the first thread of each block
BOTH_WRITE = f"{ADD} {FIRST} add.u32 %r8, %r2, 100; @%p1 st.global.u32 [%rd6], %r8;"
READS_ANOTHERS = f"{ADD} {FIRST} xor.b32 %r8, %r4, 64; mul.wide.u32 %rd7, %r8, 4; add.s64 %rd7, %rd2, %rd7;"
READS_ANOTHERS += " ld.global.u32 %r9, [%rd7];"
OUTSIDE = "setp.eq.u32 %p1, %r2, 4; @%p1 add.s64 %rd12, %rd12, 4096; ld.global.u32 %r7, [%rd11];"
OUTSIDE += " st.global.u32 [%rd12], %r7;"


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Have each kernel run in two processes, whatever it does; returns the ids of the forks."""
    pids: list[int] = []
    fork = os.fork
    monkeypatch.setattr(os, "fork", lambda: pids.append(fork()) or pids[-1])
    monkeypatch.setattr(forks, "cores", lambda: 2)
    monkeypatch.setattr(run_module, "LANES", 64)  # a block a piece
    monkeypatch.setattr(run_module, "_forks_pay", lambda grid, total: True)
    return pids


def launched(
    body: str, y: np.ndarray | None = None, limit: float | None = 60, blocks: int = BLOCKS, **options: bool
) -> np.ndarray:
    x = np.arange(64 * blocks, dtype=np.uint32)
    y = np.zeros_like(x) if y is None else y
    buffers = [Buffer(x, "x"), Buffer(y, "y", **options)]
    executed = run_kernel(module(body), [*buffers, 0], (blocks,), limit=limit)
    assert executed == Executed(executed.thread_instructions, blocks, 64)
    assert executed.thread_instructions >= 64 * blocks * 14
    return y


def test_forks_write_to_the_buffers_of_the_launch(forked: list[int]) -> None:
    np.testing.assert_array_equal(launched(ADD, defined=False), np.arange(64 * BLOCKS) + 5)
    assert forked


@pytest.mark.parametrize(
    ("body", "words"),
    [(BOTH_WRITE, "race: thread 0 of block .* overwrites y"), (READS_ANOTHERS, "race: .* (reads|overwrites) y")],
    ids=["two blocks write", "a block reads what another writes"],
)
def test_a_race_between_blocks_of_different_forks_is_found(body: str, words: str, forked: list[int]) -> None:
    """The blocks of one process do not race: 0, 2 and 4 run here, 1, 3 and 5 in the fork."""
    apart = body.replace("%r1, 0;", "%r1, 0; setp.lt.and.u32 %p1, %r2, 2, %p1;")
    for one in {body, apart}:
        with pytest.raises(MemoryFault, match=words):
            launched(one)
    assert forked


def test_a_race_of_two_accesses_at_once_is_found(forked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Both blocks would look before either has an entry, if one did not wait for the other."""
    monkeypatch.setattr(run_module, "_forks_pay", lambda grid, total: False)
    monkeypatch.setattr(parallel, "cores", lambda: 2)
    both, note = threading.Barrier(2), races._note_writers

    def late(*entries: object) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.3)
        note(*entries)

    monkeypatch.setattr(races, "_note_writers", late)
    with pytest.raises(MemoryFault, match=r"race: thread 0 of block .* overwrites y"):
        launched(f"{FIRST} add.u32 %r8, %r2, 100; @%p1 st.global.u32 [%rd6], %r8;", blocks=2)


def test_a_race_that_only_forks_met_is_reported(forked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    def without(grid: object, *, in_forks: bool) -> Executed:
        if in_forks:
            raise Failed(MemoryFault("race: met once"))
        return Executed(0, BLOCKS, 64)

    monkeypatch.setattr(run_module, "_run_grid", without)
    y = np.ones(64 * BLOCKS, np.uint32)
    with pytest.raises(MemoryFault, match="met once"):
        launched(ADD, y)
    assert (y == 1).all()


@pytest.mark.parametrize(
    ("body", "kind"),
    [(OUTSIDE, MemoryFault), ("ld.global.u32 %r7, [%rd12]; st.global.u32 [%rd12], %r7;", UndefinedBits)],
    ids=["out of bounds", "undefined bits"],
)
def test_errors_are_those_of_threads(
    body: str, kind: type[PtxError], forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(kind) as in_forks:
        launched(body, defined=False)
    assert forked
    monkeypatch.setattr(run_module, "_forks_pay", lambda grid, total: False)
    with pytest.raises(kind) as in_threads:
        launched(body, defined=False)
    assert str(in_forks.value) == str(in_threads.value)


def test_an_endless_loop_in_a_fork_ends(forked: list[int]) -> None:
    odd = f"{ADD} and.b32 %r8, %r2, 1; setp.eq.u32 %p1, %r8, 1; L: @%p1 bra L;"
    with pytest.raises(TimeLimit, match=r"0\.5 s"):
        launched(odd, limit=0.5)
    assert_ended(forked)


def test_a_grid_whose_fork_dies_runs_here(forked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    here, run_blocks = os.getpid(), run_module._run_blocks

    def dies(*given: object) -> None:
        run_blocks(*given)  # type: ignore[arg-type]
        if os.getpid() != here:
            os._exit(3)

    monkeypatch.setattr(run_module, "_run_blocks", dies)
    np.testing.assert_array_equal(launched(ADD), np.arange(64 * BLOCKS) + 5)
    assert_ended(forked)


@pytest.mark.parametrize("place", ["os.fork", "tempfile.mkstemp"])
def test_a_grid_runs_here_where_no_fork_can_be_made(
    place: str, forked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*given: object) -> int:
        raise OSError("no more")

    monkeypatch.setattr(place, refused)
    np.testing.assert_array_equal(launched(ADD), np.arange(64 * BLOCKS) + 5)
    assert not forked


def assert_ended(pids: list[int]) -> None:
    assert pids
    for pid in pids:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def test_the_earliest_error_is_raised_and_no_fork_is_left(forked: list[int]) -> None:
    def work(start: int) -> int:
        if start in (3, 4):
            raise ValueError(start)
        return start

    assert for_each(work, [0, 1, 2]) == 3
    with pytest.raises(Failed, match="3"):
        for_each(work, range(8))

    def interrupted(start: int) -> int:
        if start == 0:
            raise KeyboardInterrupt
        return int(threading.Event().wait(60))

    with pytest.raises(KeyboardInterrupt):
        for_each(interrupted, [0, 1])
    assert_ended(forked)


def test_entries_that_another_fork_made_are_kept(forked: list[int]) -> None:
    counts, lock = shared_zeros(1, np.int64), forks.Lock()

    def work(start: int) -> int:
        for _ in range(2000):
            with lock.held():
                counts[0] += 1
        return 1

    assert for_each(work, [0, 1]) == 2
    assert counts[0] == 4000


@pytest.mark.parametrize(("name", "safe"), [("other", False), ("ptxdiff-compile", True)])
def test_a_process_with_threads_of_others_is_not_forked(name: str, safe: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "cores", lambda: 2)
    running = [threading.current_thread()]
    monkeypatch.setattr(threading, "enumerate", lambda: running)
    assert forks.possible()
    running.append(threading.Thread(name=name))
    assert forks.possible() == safe
