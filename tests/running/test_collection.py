"""`--ptx-lint`: an item for each case file, which fails on the linter's findings there."""

from types import SimpleNamespace

import pytest

from ptxdiff.records import read
from ptxdiff.running.collection import only_fused
from tests.support.case_sources import FLIP

FLUSHED = FLIP.replace("variants={", 'variants={"planted": asm(".reg .b32 t; not.b32 t, $1; mov.b32 $0, t;"), ')


def test_without_the_option_nothing_is_linted(run_cases):
    assert "lint" not in run_cases("--collect-only", "-q", flip=FLIP).stdout.str()


def test_a_case_file_without_findings_passes(run_cases):
    run_cases("--ptx-lint", "-k", "lint", flip=FLIP).assert_outcomes(passed=1, deselected=2)


def test_a_finding_fails_the_item_and_is_printed(run_cases):
    assert FLUSHED != FLIP
    result = run_cases("--ptx-lint", "-k", "lint", flip=FLUSHED)
    result.assert_outcomes(failed=1, deselected=3)
    result.stdout.fnmatch_lines(["cases/flip.py:*: warning [[]declaration-outside-braces[]] t is declared*"])


def test_settings_hold_for_the_item(run_cases, pytester):
    pytester.makepyprojecttoml('[tool.ptxdiff.lint]\nignore = ["declaration-outside-braces"]\n')
    run_cases("--ptx-lint", "-k", "lint", flip=FLUSHED).assert_outcomes(passed=1, deselected=3)
    pytester.makepyprojecttoml('[tool.ptxdiff.lint]\nexclude = ["cases"]\n')
    result = run_cases("--ptx-lint", "-k", "lint", "-rs", flip=FLUSHED)
    result.assert_outcomes(skipped=1, deselected=3)
    result.stdout.fnmatch_lines(["*excluded by 'cases' in *"])


def _result(input_set, fusion, verdict, findings=()):
    return SimpleNamespace(key=SimpleNamespace(input_set=input_set, fusion=fusion), verdict=verdict, findings=findings)


@pytest.mark.parametrize(
    ("results", "hint"),
    [
        ([("edges/1", False, "pass"), ("edges/1+shuffled", True, "fail")], True),
        ([("edges/1", False, "pass"), ("random/1", True, "fail")], False),  # not the same inputs
        ([("edges/1", False, "fail"), ("edges/1+shuffled", True, "fail")], False),
        ([("edges/1", True, "fail"), ("random/1", True, "pass")], False),  # none ran without fusion
        ([("edges/1", False, "pass"), ("random/1", False, "error"), ("edges/1", True, "fail")], False),
        ([("edges/1", False, "pass")], False),
    ],
)
def test_a_failure_by_fusion_alone_says_so(results, hint):
    assert ("with fusion off" in only_fused([_result(*r) for r in results])) == hint


def test_a_race_by_fusion_alone_is_not_said_to_pass_by_another_reference():
    """Triton fuses x * x into the first sum over a warp, whose other summand is another lane's x * x."""
    race = "line 88, column 2: race: thread 32 and another thread store different values to one address at once"
    hint = only_fused([_result("edges/1", False, "pass"), _result("edges/1", True, "fail", (race,))])
    assert "enable_fp_fusion=False" in hint
    assert "either" not in hint


def test_a_target_under_two_names_is_run_once(run_cases, pytester):
    """Two items of one target would have two results with one key, and no report reads such records."""
    names = ("--ptx-target=hopper", "--ptx-target=sm_90", "--ptx-target=H100", "--ptx-records=r.jsonl")
    run_cases(*names, flip=FLIP).assert_outcomes(passed=1, failed=1)  # "wrong" fails
    assert read(pytester.path / "r.jsonl").results
