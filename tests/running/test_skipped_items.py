"""Items that a conftest skips, or whose failure it hides: the records and the exit code say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxdiff.records import read
from tests.support.case_sources import FLIP

SKIPPING = {
    "a mark": """
import pytest
def pytest_collection_modifyitems(items):
    for item in items:
        if "::wrong" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason="not today"))
""",
    "a call in setup": """
import pytest
def pytest_runtest_setup(item):
    if "::wrong" in item.nodeid:
        pytest.skip("not today")
""",
    "a call before the run": """
import pytest
@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    if "::wrong" in item.nodeid:
        pytest.skip("not today")
""",
}
HIDING = {
    "passed": """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.when == "call":
        report.outcome = "passed"
""",
    "skipped": """
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.failed:
        report.outcome, report.longrepr = "skipped", ("a.py", 1, "Skipped: not today")
""",
    "a mark": SKIPPING["a mark"].replace("skip(", "xfail("),
}


def records(pytester):
    return read(Path(pytester.path, "r.jsonl"))


@pytest.mark.sample(2)
@pytest.mark.parametrize("conftest", SKIPPING.values(), ids=SKIPPING)
def test_a_skipped_item_is_a_result_that_was_not_run(run_cases, pytester, conftest):
    (pytester.path / "conftest.py").write_text(conftest)
    result = run_cases("--ptx-records=r.jsonl", flip=FLIP)
    assert result.ret == 0
    run = records(pytester)
    (skipped,) = [r for r in run.results if r.key.variant == "wrong"]
    assert (skipped.verdict, skipped.words.removeprefix("skipped by pytest: ")) == ("not run", "Skipped: not today")
    assert run.end is not None
    assert run.end.verdicts["not run"] == 1


@pytest.mark.sample(2)
@pytest.mark.parametrize("workers", [(), ("-n2", "--dist=loadgroup")], ids=["alone", "xdist"])
def test_a_resumed_run_asks_for_skipped_items_again(run_cases, pytester, workers):
    (pytester.path / "conftest.py").write_text(SKIPPING["a call in setup"])
    run_cases("--ptx-records=r.jsonl", *workers, flip=FLIP)
    assert {r.verdict for r in records(pytester).results if r.key.variant == "wrong"} == {"not run"}
    (pytester.path / "conftest.py").write_text("import pytest\n")
    run_cases("--ptx-records=r.jsonl", "--ptx-resume", "-k", "wrong", flip=FLIP)
    assert "fail" in {r.verdict for r in records(pytester).results if r.key.variant == "wrong"}


@pytest.mark.parametrize("conftest", HIDING.values(), ids=HIDING)
def test_a_run_with_hidden_failures_does_not_exit_as_passed(run_cases, pytester, conftest):
    (pytester.path / "conftest.py").write_text(conftest)
    result = run_cases("--ptx-records=r.jsonl", flip=FLIP)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["1 item was reported as passed or skipped by *, but failed: flip::wrong*"])


def test_a_run_of_right_code_exits_as_passed_with_such_a_conftest(run_cases, pytester):
    (pytester.path / "conftest.py").write_text(HIDING["passed"])
    assert run_cases("--ptx-records=r.jsonl", flip=FLIP.replace("0x01010181", "0x01010101")).ret == 0
