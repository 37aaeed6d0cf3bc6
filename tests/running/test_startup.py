"""A run of cases alone is spared what only tests need; a run with tests keeps it."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from ptxdiff import plugin
from ptxdiff.locations import ROOT
from ptxdiff.running import collection
from ptxdiff.running.collection import VariantItem


class Plugins:
    """A manager of plugins, which notes those that are unregistered."""

    def __init__(self, *names):
        self.names, self.gone = names, []

    def has_plugin(self, name):
        return name in self.names

    def unregister(self, *, name):
        self.gone.append(name)


def finished(monkeypatch, items, *, imported=False):
    """Whether garbage is collected less often after a collection of these items; the plugins that were unregistered."""
    seldom, plugins = [], Plugins("hypothesispytest")
    monkeypatch.setattr(collection, "collect_seldom", lambda: seldom.append(True))
    if imported:
        monkeypatch.setitem(sys.modules, "hypothesis", object())
    else:
        monkeypatch.delitem(sys.modules, "hypothesis", raising=False)
    monkeypatch.setattr(collection, "atexit", SimpleNamespace(register=lambda *_: None))
    option = SimpleNamespace(collectonly=True)  # the state of cases is noted before items run
    config = SimpleNamespace(pluginmanager=plugins, option=option, stash=pytest.Stash())
    plugin.pytest_collection_finish(Session(items=items, config=config))
    return bool(seldom), plugins.gone


class Session(SimpleNamespace):
    """What the plugin asks a session for."""


CASE, TEST = object.__new__(VariantItem), object.__new__(pytest.Function)


def test_a_run_of_cases_alone_collects_seldom(monkeypatch):
    assert finished(monkeypatch, [CASE, CASE]) == (True, ["hypothesispytest"])
    assert finished(monkeypatch, [CASE], imported=True) == (True, [])


@pytest.mark.parametrize("items", [[TEST], [CASE, TEST]])
def test_tests_keep_the_collector_and_the_summary_of_hypothesis(monkeypatch, items):
    assert finished(monkeypatch, items) == (False, [])


def test_a_run_without_items_is_left_alone(monkeypatch):
    assert finished(monkeypatch, []) == (False, [])


def test_a_run_without_case_files_imports_nothing(monkeypatch):
    monkeypatch.delitem(sys.modules, "ptxdiff.running.collection")
    assert finished(monkeypatch, [CASE]) == (False, [])


def test_items_are_freed_as_the_process_ends(pytester, monkeypatch):
    """Not before: who calls pytest may look at them. Items of tests may be anybody's, also then."""
    cases = pytester.mkdir("cases")
    (cases / "one.py").write_text((ROOT / "cases" / "copysign.py").read_text())
    pytester.makepyfile("def test_it():\n    pass\n")
    registered = []
    monkeypatch.setattr(collection, "atexit", SimpleNamespace(register=lambda *call: registered.append(call)))

    def collected(*words):
        items, _ = pytester.inline_genitems("--ptx-backend=emulator", "--ptx-target=sm_90a", *words)
        return items

    collected("cases", "test_items_are_freed_as_the_process_ends.py")
    assert registered == []  # the process runs tests, too
    items = collected("cases")
    assert items
    assert all("emulator" in item.keywords and item.name and item.item.target == "sm_90a" for item in items)
    [(free, session)] = registered
    of = session()
    free(session)
    assert (of.items, of._collection_cache) == ([], {})
    assert all(vars(item) == {} for item in items)
    free(lambda: None)  # the session is gone
