"""A case whose values another case, or its own run, changes is carried over to no later run, and the run says so."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest

from tests.support.caches import share_caches

HELPER = "MASK = 6\nSTATE = {}\n"
CASE = """
import changed_helper as helper
from ptxdiff import Case, asm
from ptxdiff.references.formats import U8

{before}

def flipped(x):
    {body}
    return x ^ helper.MASK

case = Case(
    inputs={{"x": U8}}, outputs={{"y": U8}}, reference=flipped,
    variants={{"right": asm("xor.b32 $0, $1, 6;", constraints="=r,r")}},
)
"""


def case(body: str = "pass", before: str = "") -> str:
    return CASE.format(body=body, before=before)


@pytest.fixture
def runs(run_cases, pytester, monkeypatch):
    """Run case files as in a new process: the result of pytest, and the records of results by case."""
    share_caches(pytester.path / "cache")
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(pytester.path / "cache"))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.syspath_prepend(str(pytester.path))
    (pytester.path / "changed_helper.py").write_text(HELPER)
    numbers = iter(range(100))

    def run(*arguments: str, **sources: str):
        for known in [n for n in sys.modules if n == "changed_helper" or n.startswith("ptxdiff_folder_")]:
            del sys.modules[known]
        importlib.invalidate_caches()
        file = f"{next(numbers)}.jsonl"
        done = run_cases(f"--ptx-records={file}", *arguments, **sources)
        results = [json.loads(line) for line in Path(file).read_text().splitlines()]
        return done, {r["key"]["case"]: r for r in reversed(results) if r["record"] == "result"}  # the first of each

    return run


def test_a_global_that_another_case_changes(runs):
    sources = {"a": case("helper.MASK = 7"), "b": case()}
    done, first = runs(**sources)
    assert "another" in str(first["b"]["notes"])
    done.stdout.fnmatch_lines(
        ["b::right: not proved: another * values that reference uses *; alone it may get another verdict"]
    )
    done.stdout.fnmatch_lines(["*::right: carried over to no later run: *"])
    _, again = runs(**sources)
    assert not [name for name, r in again.items() if r.get("reused")]


def test_a_global_that_changes_behind_a_reused_result(runs):
    """Looking up kept results runs no code, so states are noted when the first item runs, and not before."""
    runs(a=case())
    _, first = runs(a=case(), b=case("helper.MASK = 7"), c=case())
    assert first["a"].get("reused")
    assert "another" in str(first["c"]["notes"])
    assert not first["a"].get("notes")


HOOKS = ("pytest_runtest_setup(item)", "pytest_runtest_protocol(item)", "pytest_runtestloop()")


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_changes_a_global_before_the_first_item_runs(runs, pytester, hook):
    (pytester.path / "conftest.py").write_text(f"import changed_helper\ndef {hook}:\n    changed_helper.MASK = 7\n")
    _, first = runs(a=case())
    assert "another case or a plugin" in str(first["a"]["notes"])
    assert first["a"]["verdict"] == "fail"


def test_a_hook_of_an_object_of_no_class_of_the_users(runs, pytester):
    (pytester.path / "conftest.py").write_text(
        "import changed_helper\ndef f():\n    changed_helper.MASK = 7\n"
        "f.pytest_runtest_setup = lambda item: f()\n"
        "def pytest_configure(config):\n    config.pluginmanager.register(f)\n"
    )
    _, first = runs(a=case())
    assert "another case or a plugin" in str(first["a"]["notes"])


def test_a_test_changes_a_global_before_the_first_item_runs(runs, pytester):
    (pytester.path / "test_first.py").write_text(
        "import changed_helper\ndef test_first():\n    changed_helper.MASK = 7\n"
    )
    _, first = runs("test_first.py", "cases", a=case())
    assert "another case or a plugin" in str(first["a"]["notes"])


def test_an_attribute_that_the_import_of_another_file_sets(runs):
    done, first = runs(a=case(before="helper.MASK = 7"), b=case())
    assert [r["verdict"] for r in first.values()] == ["fail", "fail"]
    done.stdout.fnmatch_lines(["b::right: not proved: another file *a.py sets MASK of changed_helper*"])
    _, alone = runs("cases/b.py")
    assert alone["b"]["verdict"] == "pass"


def test_cases_that_change_nothing_are_reused_without_a_word(runs):
    """Right twin: values that only their own file sets at its import, and a table that is filled there."""
    sources = {"a": case(before="TABLE = {}\nTABLE['mask'] = helper.MASK\ndef f():\n    pass\nf.mask = 6"), "b": case()}
    done, _ = runs(**sources)
    assert "not proved" not in done.stdout.str()
    assert "carried over" not in done.stdout.str()
    _, again = runs(**sources)
    assert all(r.get("reused") for r in again.values())
