"""With pytest-xdist, the controller reuses known results, workers run the others, and an item that was not run never
passes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ptxdiff.running import xdist
from tests.support.caches import share_caches

CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8
from ._helper import mask

case = Case(
    inputs={{"x": U8}}, outputs={{"y": U8}}, reference=lambda x: x ^ mask(),
    variants={{
        "one": asm("xor.b32 $0, $1, {one};", constraints="=r,r"),
        "other": asm("xor.b32 $0, 6, $1;", constraints="=r,r"),
    }},
)
"""
RIGHT, WRONG = CASE.format(one=6), CASE.format(one=7)
HELPER = "def mask():\n    return 6\n"
SPREAD = ("-n", "2", "--dist=loadgroup")


@pytest.fixture
def runs(run_cases, pytester, monkeypatch):
    """Run two case files and their helper. Returns pytest's result, and the results' records by variant."""
    share_caches(pytester.path / "cache")
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(pytester.path / "cache"))
    numbers = iter(range(100))

    def run(*arguments: str, first: str = RIGHT, second: str = RIGHT, helper: str = HELPER, whole: bool = True):
        file = Path(pytester.path / f"{next(numbers)}.jsonl")
        done = run_cases(*arguments, f"--ptx-records={file}", "cases", _helper=helper, first=first, second=second)
        found = [json.loads(line) for line in file.read_text().splitlines()]
        assert (found[-1]["record"] == "end") == whole
        return done, {f"{r['key']['case']} {r['key']['variant']}": r for r in found if r["record"] == "result"}

    return run


@pytest.fixture
def started(monkeypatch):
    """The number of workers that got the remaining items, one number for each run."""
    found = []
    start = xdist.Settling._started

    def noted(self, session, workers):
        found.append((workers, sorted(self.rest)))
        return start(self, session, workers)

    monkeypatch.setattr(xdist.Settling, "_started", noted)
    return found


def test_an_unchanged_run_starts_no_worker(runs, started):
    done, before = runs()
    done.assert_outcomes(passed=4)
    done, after = runs(*SPREAD)
    done.assert_outcomes(passed=4)
    assert started == []
    assert "bringing up" not in done.stdout.str()
    assert all(r["reused"] for r in after.values())
    assert {n: r["outputs_digest"] for n, r in after.items()} == {n: r["outputs_digest"] for n, r in before.items()}


def test_wrong_code_written_since_fails_in_the_workers(runs, started):
    """The edited file runs again as a whole, the other not at all. All results are in the records of a run that
    ended."""
    runs()
    done, after = runs(*SPREAD, second=WRONG)
    done.assert_outcomes(passed=3, failed=1)
    assert done.ret == 1
    rest = ["second::one[sm_100a-emulator]", "second::other[sm_100a-emulator]"]
    assert started == [(2, rest)]
    assert after["second one"]["verdict"] == "fail"
    assert {n for n, r in after.items() if "reused" in r} == {"first one", "first other"}


def test_an_edited_helper_settles_nothing(runs, started):
    """The case files are the same bytes, but a module that they import has changed."""
    runs()
    done, after = runs("-n", "1", helper=HELPER.replace("6", "7"))  # more workers would only wait
    done.assert_outcomes(failed=4)
    assert started == []
    assert not any("reused" in r for r in after.values())


def test_an_item_that_no_worker_ran_is_a_failure(runs, monkeypatch):
    """The workers collect fewer items than they were given, as from a file that makes other variants each time."""
    runs()
    configure_node = xdist.Settling.pytest_configure_node

    def less(self, node):
        configure_node(self, node)
        del node.workerinput[xdist.ONLY][0]

    monkeypatch.setattr(xdist.Settling, "pytest_configure_node", less)
    done, after = runs(*SPREAD, first=WRONG)
    assert done.ret == 1
    assert after["first one"]["verdict"] == "error"
    assert "no worker of pytest-xdist ran it" in after["first one"]["words"]


def test_a_settled_failure_stops_the_run(runs):
    """With -x, before any of the remaining items is reported."""
    runs(first=WRONG)
    done, after = runs(*SPREAD, "-x", first=WRONG, second=WRONG, whole=False)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    assert set(after) == {"first one"}


class Asked:
    """A stand-in for pytest's config, with what `settles` reads."""

    def __init__(self, **changed):
        plain = {
            "dist": "loadgroup", "tx": ["popen"] * 2, "collectonly": False, "ptx_fresh": False, "ptx_replay": None,
            "ptx_dump": None, "ptx_timing": False, "usepdb": False, "ptx_backend": ["emulator"],
        }  # fmt: skip
        self.option = type("Option", (), plain | changed)
        self.args = ["cases"]
        self.rootpath = Path("/root")
        self.invocation_params = type("Params", (), {"dir": Path("/root")})


@pytest.mark.parametrize(
    "changed",
    [
        {"ptx_fresh": True}, {"ptx_replay": "token"}, {"ptx_dump": "folder"}, {"ptx_timing": True}, {"dist": "each"},
        {"collectonly": True}, {"usepdb": True}, {"tx": ["popen", "ssh=host"]},
    ],
    ids=str,
)  # fmt: skip
def test_runs_in_which_the_controller_settles_nothing(monkeypatch, changed):
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    monkeypatch.setattr(xdist._runs, "get", lambda *parts: b"")
    assert xdist.settles(Asked())
    assert not xdist.settles(Asked(**changed))
    monkeypatch.setenv("PTXDIFF_REUSE", "0")
    assert not xdist.settles(Asked())


def test_items_of_a_first_run_or_another_harness_go_to_the_workers(monkeypatch, tmp_path):
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path))
    assert not xdist.settles(Asked())
    xdist.remember(Asked())
    assert xdist.settles(Asked())
    monkeypatch.setattr(xdist, "harness", lambda: "another")
    assert not xdist.settles(Asked())


def test_tests_are_left_to_the_workers(run_cases, pytester, monkeypatch):
    """If a folder of cases holds a test module, the controller would import that module and its imports."""
    monkeypatch.setattr(xdist, "settles", lambda config: pytest.fail("asked of a run of tests"))
    module = f"import os\n\ndef test_here():\n    assert os.getpid() != {os.getpid()}\n"
    done = run_cases("-n", "1", _helper=HELPER, first=RIGHT, test_more=module)
    assert done.parseoutcomes()["passed"] == 3
