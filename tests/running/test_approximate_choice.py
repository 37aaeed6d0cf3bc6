"""The choice of bits for approximate instructions in the emulator: caches, resumed runs and repeat commands keep it."""

from __future__ import annotations

import json
import re

import pytest

from ptxdiff.diskcache import cache_folder
from ptxdiff.records import read
from ptxdiff.reports import html
from ptxdiff.reports.history import history
from tests.support.running.repeated_runs import runs  # noqa: F401

CASE = """
import numpy as np
from ptxdiff import Case, asm, numpy_reference, relative
from ptxdiff.references.formats import F16
from {helper} import mask

@numpy_reference
def tanh(x):
    with np.errstate(invalid="ignore"):
        y = np.tanh(x.astype(np.uint16).view(np.float16).astype(np.float64))
        return y.astype(np.float16).view(np.uint16).astype(np.int64)

case = Case(
    inputs={{"x": F16}}, outputs={{"y": F16}}, reference=tanh, match=relative(2.0**-20), ftz="never",
    variants={{"approx": asm("tanh.approx.f16 $0, $1;", constraints="=h,h", pack=1)}},
)
"""
"""A policy of nearly exact results: the unit's bits fail, and the model that rounds to nearest passes."""
PLAIN = CASE.replace("from {helper} import mask\n", "").format()


def results(found):
    return [r for r in found if r["record"] == "result"]


def verdict(found):
    return "fail" if any(r["verdict"] == "fail" for r in results(found)) else "pass"


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", ["hopper", "rounded"])
def test_a_result_of_the_other_choice_is_not_reused(runs, first):  # noqa: F811
    """A pass of the rounded model, reused for the unit's bits, would be a wrong pass."""
    verdicts = {"hopper": "fail", "rounded": "pass"}
    (second,) = verdicts.keys() - {first}
    for choice, known in ((first, False), (second, False), (first, True), (second, True)):
        _, ran, found = runs("--ptx-target=sm_90a", f"--ptx-approximate={choice}", case=CASE)
        assert verdict(found) == verdicts[choice]
        assert (ran == []) == known
        assert {bool(r.get("reused")) for r in results(found)} == {known}


def test_by_default_the_units_bits(runs):  # noqa: F811
    runs("--ptx-target=sm_90a", "--ptx-approximate=hopper", case=CASE)
    _, ran, found = runs("--ptx-target=sm_90a", case=CASE)
    assert verdict(found) == "fail"
    assert ran == []


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_rounded_results_have_the_evidence_model(runs, target):  # noqa: F811
    """On Hopper too, although the ledger confirms its bits. The records name the choice, and the experiment is another
    one."""
    identities = set()
    for choice in ("hopper", "rounded"):
        _, _, found = runs(f"--ptx-target={target}", f"--ptx-approximate={choice}", case=CASE)
        evidence = "model" if choice == "rounded" or target == "sm_100a" else "confirmed"
        assert {r["evidence"] for r in results(found)} == {evidence}
        said = [any("rounded to nearest, which no GPU does" in n for n in r.get("notes", ())) for r in results(found)]
        assert set(said) == {choice == "rounded"}
        assert found[0]["environment"]["approximate"] == choice
        identities |= {(r["identity"], choice) for r in results(found)}
    assert len({i for i, _ in identities}) == len(identities)


def test_a_run_is_resumed_with_the_same_choice_only(run_cases, pytester):
    options = ("--ptx-target=sm_90a", "--ptx-records=run.jsonl")
    first = run_cases(*options, "--ptx-approximate=rounded", case=PLAIN)
    first.assert_outcomes(passed=1)
    again = run_cases(*options, "--ptx-resume", case=PLAIN)
    again.stderr.fnmatch_lines(["*run.jsonl was begun with approximate rounded; here is hopper; start a new*"])
    assert json.loads((pytester.path / "run.jsonl").read_text().splitlines()[0])["environment"]["approximate"]


@pytest.mark.slow
def test_the_command_that_repeats_a_failure_names_the_choice(run_cases):
    wrong = PLAIN.replace("relative(2.0**-20)", "exact()").replace("relative", "exact")
    found = run_cases("--ptx-target=sm_90a", "--ptx-approximate=rounded", case=wrong)
    found.stdout.fnmatch_lines(["*repeat *pytest *approx*--ptx-approximate=rounded --ptx-replay=*"])
    found = run_cases("--ptx-target=sm_90a", case=PLAIN)
    found.stdout.fnmatch_lines(["*repeat *pytest *approx*sm_90a-emulator]' --ptx-replay=*"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--ptx-approximate=exact"], "*--ptx-approximate*invalid choice: 'exact'*"),
        (["--ptx-approximate=rounded", "--ptx-backend=assembler"], "*--ptx-approximate is for the emulator, but*"),
    ],
)
def test_wrong_choices_are_usage_errors(run_cases, words, message):
    found = run_cases(*words, case=PLAIN)
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([message])


@pytest.mark.sample(2)
@pytest.mark.parametrize("choice", ["hopper", "rounded"])
def test_the_report_shows_which_targets_rest_on_a_model(run_cases, pytester, choice):
    """For one case on several targets: in the terminal, in the matrix and beside the results."""
    case = PLAIN.replace("relative(2.0**-20)", "relative(2.0**-8)")
    options = ("--ptx-target=sm_90a", "--ptx-target=sm_100a", "--ptx-records=run.jsonl")
    found = run_cases(*options, f"--ptx-approximate={choice}", case=case)
    run = history([read(pytester.path / "run.jsonl")])
    page = html.write_history(*run, pytester.path / "report.html", cache=cache_folder()).read_text()
    cells = dict(re.findall(r'<td id="[^"]*(sm_\d+a)[^"]*" class="[^"]*" data-evidence="([^"]*)"', page))
    if choice == "hopper":
        found.stdout.re_match_lines([r"results: (\d+) pass \((\d+) confirmed, (\d+) model\)"])
        assert cells == {"sm_90a": "confirmed", "sm_100a": "model"}
        assert "Hopper&#39;s unit, which were not confirmed for sm_100a" in page
        assert "not confirmed for sm_90a" not in page
    else:
        found.stdout.re_match_lines([r"results: (\d+) pass \((\d+) model\)"])
        assert cells == {"sm_90a": "model", "sm_100a": "model"}
        assert "rounded to nearest, which no GPU does" in page
    assert "approximate bits may differ from this GPU" in page
