"""Processes that run cases collect garbage less often; what they make is still collected, and tests are left alone."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from harness import plugin
from harness.processes import garbage
from harness.running.collection import VariantItem

SCRIPT = """
import gc, weakref
from harness.processes.garbage import THRESHOLDS, collect_seldom

class Cycle:
    def __init__(self):
        self.me = self

before = Cycle()
collect_seldom()
assert gc.get_threshold() == THRESHOLDS and gc.get_freeze_count() > 1000
later = weakref.ref(Cycle())
assert later() is not None
gc.collect()
assert later() is None
for _ in range(20 * THRESHOLDS[0]):  # without an explicit collection, too
    Cycle()
assert gc.get_stats()[0]["collections"] > 0 and gc.get_count()[0] <= THRESHOLDS[0] + 1
print("done")
"""


def test_what_is_made_later_is_collected():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")


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
    monkeypatch.setattr(garbage, "collect_seldom", lambda: seldom.append(True))
    if imported:
        monkeypatch.setitem(sys.modules, "hypothesis", object())
    else:
        monkeypatch.delitem(sys.modules, "hypothesis", raising=False)
    config = SimpleNamespace(pluginmanager=plugins)
    plugin.pytest_collection_finish(SimpleNamespace(items=items, config=config))
    return bool(seldom), plugins.gone


CASE, TEST = object.__new__(VariantItem), object.__new__(pytest.Function)


def test_a_run_of_cases_alone_collects_seldom(monkeypatch):
    assert finished(monkeypatch, [CASE, CASE]) == (True, ["hypothesispytest"])
    assert finished(monkeypatch, [CASE], imported=True) == (True, [])


@pytest.mark.parametrize("items", [[TEST], [CASE, TEST]])
def test_tests_keep_the_collector_and_the_summary_of_hypothesis(monkeypatch, items):
    assert finished(monkeypatch, items) == (False, [])


def test_a_run_without_case_files_is_left_alone(monkeypatch):
    monkeypatch.delitem(sys.modules, "harness.running.collection")
    assert finished(monkeypatch, []) == (False, [])
