"""Reports of compute-sanitizer become findings; without the tool, one line says so."""

import pytest

from ptxdiff.backends import sanitizer
from ptxdiff.backends.gpu_process import Sanitizer
from ptxdiff.backends.sanitizer import SanitizerReport, findings, parsed
from ptxdiff.jobs import Outcome

# Output of compute-sanitizer on an H200, unchanged.
MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at reads_far+0xa0 in bad_kernels.py:40
=========     by thread (47,0,0) in block (0,0,0)
=========     Access to 0x7fe3628000c0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7fe362800000 of size 192 bytes
========= 
========= Invalid __global__ read of size 4 bytes
=========     at reads_far+0xa0 in bad_kernels.py:40
=========     by thread (111,0,0) in block (0,0,0)
=========     Access to 0x7fe3628000c0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7fe362800000 of size 192 bytes
========= 
========= Error: process didn't terminate successfully
========= Target application returned an error
========= ERROR SUMMARY: 2 errors
"""  # noqa: W291 - as it stands
RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at elementwise_1d+0x150 in templates.py:56
=========     and Write access at elementwise_1d+0x150 in templates.py:56 [256 hazards]
========= 
"""  # noqa: W291
SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at elementwise_1d+0x130 in templates.py:56
=========     by thread (0,0,0) in block (0,0,0)
========= 
"""  # noqa: W291
LATE = """\
========= COMPUTE-SANITIZER
========= Error: No attachable process found. compute-sanitizer timed-out.
========= Default timeout can be adjusted with --launch-timeout. Awaiting target completion.
"""
QUIET = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"

LINE = (
    "memcheck: Invalid __global__ read of size 4 bytes in reads_far+0xa0 (bad_kernels.py:40), 2 times, first by thread "
    "(47,0,0) in block (0,0,0), address 0x7fe3628000c0, is out of bounds, and is 1 bytes after the nearest allocation "
    "at 0x7fe362800000 of size 192 bytes"
)


def test_every_fault_is_read_with_its_place():
    first, second = parsed("memcheck", MEMCHECK)
    assert first == SanitizerReport(
        tool="memcheck",
        kind="Invalid __global__ read of size 4 bytes",
        kernel="reads_far",
        offset="0xa0",
        source="bad_kernels.py:40",
        thread="thread (47,0,0) in block (0,0,0)",
        address="0x7fe3628000c0",
        detail="is out of bounds, and is 1 bytes after the nearest allocation at 0x7fe362800000 of size 192 bytes",
    )
    assert second.thread == "thread (111,0,0) in block (0,0,0)"
    assert second.place == first.place


def test_faults_of_one_place_are_one_finding():
    assert findings("memcheck", MEMCHECK) == (LINE,)
    assert findings("memcheck", QUIET) == ()
    assert findings("memcheck", "") == ()


def test_races_and_barriers_are_read_too():
    (race,) = findings("racecheck", RACECHECK)
    assert race == (
        "racecheck: Error: Race reported between Write access in elementwise_1d+0x150 (templates.py:56), and Write "
        "access at elementwise_1d+0x150 in templates.py:56 [256 hazards]"
    )
    (barrier,) = findings("synccheck", SYNCCHECK)
    assert barrier == (
        "synccheck: Barrier error detected. Divergent thread(s) in warp. in elementwise_1d+0x130 (templates.py:56), "
        "by thread (0,0,0) in block (0,0,0)"
    )


def test_a_fault_without_a_source_line_is_a_finding():
    without = MEMCHECK.replace(" in bad_kernels.py:40", "")
    (found,) = findings("memcheck", without)
    assert found.startswith("memcheck: Invalid __global__ read of size 4 bytes in reads_far+0xa0, 2 times")


def test_a_finding_of_the_tool_makes_one_outcome_fail():
    """A stopped run counts as failed; earlier reports are not repeated."""
    tool = Sanitizer("memcheck")
    (tool.folder / "17.log").write_text(MEMCHECK)
    found = tool.with_findings(Outcome("error", "the process on the GPU aborted (SIGABRT)"))
    assert (found.status, found.words, found.findings, found.evidence) == ("ran", "", (LINE,), "hardware")
    clean = Outcome("ran", evidence="hardware")
    assert tool.with_findings(clean) == clean


def test_what_ran_before_the_tool_attached_is_an_error():
    """The tool says so once. It then lets the process run, unchecked, to its end."""
    tool, ran = Sanitizer("memcheck"), Outcome("ran", evidence="hardware")
    assert tool.with_findings(ran) == ran
    (tool.folder / "18.log").write_text(LATE)
    for _ in range(2):
        outcome = tool.with_findings(ran)
        assert (outcome.status, outcome.findings) == ("error", ())
        assert "did not attach" in outcome.words


def test_the_tool_waits_for_a_process_that_starts_slowly(tmp_path):
    options = sanitizer.command("memcheck", tmp_path / "log")
    assert int(options[options.index("--launch-timeout") + 1]) >= 300


def test_without_the_program_one_line_says_so(run_cases, monkeypatch):
    monkeypatch.setattr(sanitizer, "_program", lambda: None)
    result = run_cases("--ptx-sanitize=memcheck", "--ptx-backend=gpu", flip="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["ERROR: --ptx-sanitize: compute-sanitizer is not installed; it comes with the CUDA toolkit*"]
    )


def test_the_sanitizer_needs_the_gpu_backend(run_cases):
    result = run_cases("--ptx-sanitize=memcheck", "--ptx-backend=emulator", flip="")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --ptx-sanitize needs a GPU*"])
