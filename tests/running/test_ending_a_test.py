"""A case's code cannot end its own test, or the run: that is an error of its item, and the records are whole."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ptxdiff.model.load import staying
from ptxdiff.model.variants import CaseError
from ptxdiff.records import read
from tests.support.case_sources import RIGHT

WRONG = RIGHT.replace("0x01010101", "0x03010101").replace("from ptxdiff", "import os, sys, posix, pytest\nfrom ptxdiff")

ENDS = {
    "skip": ("pytest.skip('not today')", "by pytest.skip: not today"),
    "xfail": ("pytest.xfail('known')", "by pytest.xfail: known"),
    "system_exit": ("sys.exit(0)", "by sys.exit: 0"),
    "os_exit": ("os._exit(0)", "calls os._exit(0)"),
    "posix_exit": ("posix._exit(0)", "calls os._exit(0)"),
    "pytest_exit": ("pytest.exit('done', returncode=0)", "Exit"),
}


def test_a_reference_that_ends_its_test_is_an_error(run_cases):
    sources = {name: WRONG.replace("    return x ^ 1", f"    {call}") for name, (call, _) in ENDS.items()}
    run_cases("--ptx-records=run.jsonl", **sources, zz=RIGHT).assert_outcomes(passed=1, failed=len(ENDS))
    found = read(Path("run.jsonl"))
    assert found.end is not None
    verdicts = {r.key.case: r for r in found.results}
    for name, (_, words) in ENDS.items():
        assert verdicts[name].verdict == "error"
        assert words in verdicts[name].words


def test_other_functions_of_a_case_cannot_end_it_either(run_cases):
    text = WRONG.replace(
        "    reference=flipped,", "    reference=flipped, where=Domain('d', lambda v: pytest.skip('d')),"
    )
    text = text.replace("from ptxdiff.references", "from ptxdiff.model.match import Domain\nfrom ptxdiff.references", 1)
    run_cases("--ptx-records=run.jsonl", one=text).assert_outcomes(failed=1)


def test_a_file_that_ends_the_process_when_it_is_imported_is_an_error(run_cases):
    result = run_cases(one=WRONG.replace("def flipped", "os._exit(0)\ndef flipped"), two=RIGHT)
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*cases/one.py:*calls os._exit(0), which would end the whole run*"])


def test_a_fork_may_end_itself():
    """Right twin: libraries fork, and a fork ends so."""
    with staying():
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        with pytest.raises(CaseError, match=r"os\._exit\(7\)"):
            os._exit(7)
    assert os._exit.__module__ == "posix"
