"""Pieces made in forks equal those made here, and a piece that a fork loses is made here."""

from __future__ import annotations

import os
import threading

import pytest

from ptxdiff.reports.forked import EACH, beside, made_in_forks

GIVEN = list(range(3 * EACH + 1))


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    """Three processors and no other thread, on any machine."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2})
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def test_all_pieces_come_in_order_from_three_processes():
    made = made_in_forks(lambda n: (n, os.getpid(), "x" * 5000), GIVEN)
    assert [n for n, _, _ in made] == GIVEN
    assert len({pid for _, pid, _ in made}) == 3
    assert all(pid == os.getpid() for _, pid, _ in made[::3])


def test_a_piece_that_a_fork_does_not_deliver_is_made_here():
    """The fork ends, raises, or makes a piece that does not pickle."""
    here = os.getpid()

    def made(n):
        if os.getpid() != here and n == 4:
            os._exit(0)
        if os.getpid() != here and n == 5:
            raise ValueError(n)
        return n * n

    assert made_in_forks(made, GIVEN) == [n * n for n in GIVEN]
    assert [f() for f in made_in_forks(lambda n: lambda: n, GIVEN)] == GIVEN


@pytest.mark.parametrize("bad", [3, 4])
def test_an_error_is_raised_here(bad, monkeypatch):
    def made(n):
        if n == bad:
            raise ValueError(f"piece {n}")
        return n

    fork, forks = os.fork, []
    monkeypatch.setattr(os, "fork", lambda: forks.append(fork()) or forks[-1])
    with pytest.raises(ValueError, match=f"piece {bad}"):
        made_in_forks(made, GIVEN)
    assert forks
    for pid in forks:
        with pytest.raises(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # it is no longer a child process


@pytest.mark.parametrize("why", ["few pieces", "threads", "one processor"])
def test_no_fork_is_made(why, monkeypatch):
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    if why == "threads":
        monkeypatch.setattr(threading, "active_count", lambda: 2)
    if why == "one processor":
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    given = GIVEN[:EACH] if why == "few pieces" else GIVEN
    assert made_in_forks(lambda n: -n, given) == [-n for n in given]


def test_other_work_is_done_in_another_process(tmp_path):
    place = tmp_path / "process"
    assert beside(os.getpid, lambda: place.write_text(str(os.getpid()))) == os.getpid()
    assert place.read_text() != str(os.getpid())


def test_an_error_of_the_work_is_raised_and_one_of_the_other_is_not(tmp_path):
    def fails():
        raise ValueError("no page")

    assert beside(lambda: 7, fails) == 7
    with pytest.raises(ValueError, match="no page"):
        beside(fails, lambda: None)


def test_a_process_with_threads_does_its_own_work_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert beside(lambda: 7, lambda: (tmp_path / "made").write_text("")) == 7
    assert not (tmp_path / "made").exists()
