"""Results wait for a look at the harness's files, which comes after them: none is stored after an edit."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from ptxdiff.running import reuse


class Store(list):
    """In the place of the folder of results: the keys that were stored."""

    def put(self, data, *key):
        self.append(key)


class Stage:
    """A process that stores results. now: the time. edited: whether a file of the harness is newer than the process."""

    def __init__(self, monkeypatch):
        self.now, self.edited, self.looks, self.stored = 100.0, False, 0, Store()
        self.seconds = 0.0  # that a look takes
        monkeypatch.setattr(reuse, "_kept", self.stored)
        monkeypatch.setattr(reuse, "_waiting", [])
        monkeypatch.setattr(reuse, "_waits_until", 0.0)
        monkeypatch.setattr(reuse, "_edited_meanwhile", self.look)
        monkeypatch.setattr(reuse, "_read_by", lambda item: {})
        monkeypatch.setattr(reuse, "_key", lambda item, settings: (item.name, *settings))
        monkeypatch.setattr(reuse, "time", SimpleNamespace(monotonic=lambda: self.now))

    def look(self):
        self.looks += 1
        self.now += self.seconds
        return self.edited

    def keep(self, name, verdict="pass", backend="emulator"):
        found = SimpleNamespace(results=[SimpleNamespace(verdict=verdict)], texts={}, sent=[])
        reuse.keep(SimpleNamespace(backend=backend, name=name), found, "a run", "quick")


@pytest.fixture
def stage(monkeypatch):
    return Stage(monkeypatch)


def test_items_one_after_the_other_share_a_look(stage):
    for number in range(10):
        stage.keep(number)
    assert stage.looks == 1
    reuse.store_waiting()
    assert stage.looks == 2
    assert stage.stored == [(number, "quick") for number in range(10)]


def test_results_are_stored_while_a_run_goes_on(stage):
    for number in range(3):
        stage.keep(number)
        stage.now += 1
    assert len(stage.stored) == 3


def test_looks_take_a_small_part_of_a_run_also_where_one_is_slow(stage):
    stage.seconds, began = 0.1, stage.now
    for number in range(1000):
        stage.keep(number)
        stage.now += 0.1
    assert stage.looks > 10
    assert stage.looks * stage.seconds < 0.03 * (stage.now - began)


def test_results_wait_for_seconds_at_most(stage):
    stage.seconds = 60.0
    stage.keep("first")
    stage.now += 10.0
    stage.keep("second")
    assert len(stage.stored) == 2


def test_an_edit_after_a_look_drops_the_results_since_then(stage):
    """With a look before the results, those of edited code could be stored under the key of the code before it."""
    stage.keep("before")
    stage.keep("between")
    stage.edited = True
    stage.keep("after")
    reuse.store_waiting()
    assert stage.stored == [("before", "quick")]
    stage.edited = False
    reuse.store_waiting()
    assert stage.stored == [("before", "quick")]


def test_nothing_is_looked_at_for_what_is_not_stored(stage):
    stage.keep("failed to run", verdict="error")
    stage.keep("on a GPU", backend="gpu")
    reuse.store_waiting()
    assert (stage.stored, stage.looks) == ([], 0)


def test_a_session_stores_what_waits_at_its_end(run_cases, monkeypatch):
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    stored = Store()
    monkeypatch.setattr(reuse, "_kept", SimpleNamespace(get=lambda *key: None, put=stored.put))
    monkeypatch.setattr(reuse, "_edited_meanwhile", lambda: False)
    monkeypatch.setattr(reuse, "_waits_until", float("inf"))
    run_cases(one=CASE)
    assert len(stored) == 2
    reuse.store_waiting()
    assert len(stored) == 2  # nothing waits any more


CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

case = Case(
    inputs={"x": U8}, outputs={"y": U8}, reference=lambda x: x ^ 6,
    variants={
        "xor": asm("xor.b32 $0, $1, 6;", constraints="=r,r"),
        "two": asm("xor.b32 $0, $1, 4; xor.b32 $0, $0, 2;", constraints="=r,r"),
    },
)
"""
