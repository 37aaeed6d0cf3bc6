"""A run that writes no result leaves no earlier run's records in its file: a gate would accept them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.gating.gate import nothing_ran
from ptxdiff.records import read, record_files
from tests.support.case_sources import FLIP

NOTHING = {
    "all items are skipped in setup": "import pytest\ndef pytest_runtest_setup(item):\n    pytest.skip('not today')\n",
    "all items are marked": """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.skip(reason='not today'))
""",
    "nothing is run": "def pytest_runtest_protocol(item, nextitem):\n    return True\n",
    "the loop is replaced": "def pytest_runtestloop(session):\n    return True\n",
    "all items are dropped": "def pytest_collection_modifyitems(items):\n    items[:] = []\n",
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("conftest", NOTHING.values(), ids=NOTHING)
def test_a_run_without_results_replaces_the_file(run_cases, pytester, conftest):
    right = FLIP.replace("0x01010181", "0x01010101")
    file = Path(pytester.path, "r.jsonl")
    run_cases(f"--ptx-records={file}", c=right)
    assert not nothing_ran(before := read(file))
    (pytester.path / "conftest.py").write_text(conftest)
    output = run_cases(f"--ptx-records={file}", c=FLIP).stdout.str()
    assert "INTERNALERROR" not in output
    after = read(file)
    assert (nothing_ran(after) != "", after.run.run_id >= before.run.run_id) == (True, True)


def test_a_file_that_is_collected_only_stays(run_cases, pytester):
    file = Path(pytester.path, "r.jsonl")
    run_cases(f"--ptx-records={file}", c=FLIP)
    before = file.read_bytes()
    run_cases(f"--ptx-records={file}", "--collect-only", c=FLIP)
    assert file.read_bytes() == before


def test_a_resumed_file_whose_items_are_collected_only_stays(run_cases, pytester):
    run_cases("--ptx-records=run.jsonl", flip=FLIP)
    kept = (pytester.path / "run.jsonl").read_bytes()
    result = run_cases("--ptx-records=run.jsonl", "--ptx-resume", "--collect-only", flip=FLIP)
    assert (pytester.path / "run.jsonl").read_bytes() == kept
    assert "cut short" not in result.stdout.str()


def test_a_file_that_cannot_be_collected_replaces_the_file(run_cases, pytester):
    file = Path(pytester.path, "r.jsonl")
    run_cases(f"--ptx-records={file}", c=FLIP)
    run_cases(f"--ptx-records={file}", c="case = 1 / 0\n")
    assert nothing_ran(read(file))


@pytest.mark.sample(2)
@pytest.mark.parametrize("conftest", NOTHING.values(), ids=NOTHING)
def test_a_run_without_results_is_the_newest_of_its_folder(run_cases, pytester, conftest):
    right = FLIP.replace("0x01010181", "0x01010101")
    run_cases("--ptx-records=runs", c=right)
    folder = Path(pytester.path, "runs")
    assert not nothing_ran(read(folder))
    (pytester.path / "conftest.py").write_text(conftest)
    run_cases("--ptx-records=runs", c=FLIP)
    assert len(record_files(folder)) == 2
    assert nothing_ran(read(folder))


def test_a_run_of_other_tests_writes_no_file_into_the_folder(run_cases, pytester):
    (pytester.path / "test_other.py").write_text("def test_nothing(): pass\n")
    run_cases("--ptx-records=runs", "test_other.py")
    assert record_files(Path(pytester.path, "runs")) == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("records", [("runs",), ("runs/zz.jsonl.zst", "--ptx-share-texts")], ids=["folder", "as named"])
def test_a_run_whose_file_cannot_be_collected_is_the_newest_of_its_folder(run_cases, pytester, records):
    """`ptxdiff run` chooses the name of the new file, and so names a file."""
    run_cases("--ptx-records=runs", c=FLIP)
    words = (f"--ptx-records={records[0]}", *records[1:])
    run_cases(*words, "--ptx-cases=cases/c.py", "cases", c="case = 1 / 0\n")
    assert nothing_ran(read(Path(pytester.path, "runs")))
