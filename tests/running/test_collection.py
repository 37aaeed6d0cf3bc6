"""`--ptx-lint`: an item for each case file, which fails on the linter's findings there."""

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
