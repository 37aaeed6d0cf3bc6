"""A result states the share of codes that its policy judges, and below a least share nothing passes."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptxdiff import Case, Domain, ExpectedFailure, Meets, absolute, asm, between, exact, magnitude, ulp
from ptxdiff.gating import baseline
from ptxdiff.gating.gate import CORRECTNESS, gate
from ptxdiff.model.load import LoadedCase
from ptxdiff.records import End, Result, Run, RunRecords, Share, from_json, to_json
from ptxdiff.references.formats import BF16, F16, F32, F64
from ptxdiff.running import contexts
from ptxdiff.running import run as runner
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item
from tests.support.running.computing_backend import Scripted

TEXT = "mov.b32 $0, $1; mov.b32 $2, $3;"


def run(backend: Scripted, variant: Any = None, **fields: Any) -> ItemResults:
    case = Case(
        **{
            "inputs": {"x": F32},
            "outputs": dict.fromkeys(backend.outputs, F32),
            "reference": lambda x: tuple([x] * len(backend.outputs)),
            "variants": {"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=1, **(variant or {}))},
            **fields,
        }
    )
    return run_item(Item(LoadedCase(case, "c", "case", Path("c.py"), ""), "v", "sm_90a", "gpu"), backend, "quick")


def right(x):
    return x


def wrong(x):
    """One step from the right result, unless x is zero, +-1, infinite or NaN."""
    special = np.isin(x & 0x7FFFFFFF, [0, 0x3F800000]) | ((x & 0x7F800000) == 0x7F800000)
    return np.where(special, x, x ^ 1)


NAN = math.nan
NOTHING = Domain("no ordinary number", lambda v: (v["x"] == 0) | ~np.isfinite(v["x"]))
ONE_NUMBER = Domain("x = 1", lambda v: v["x"] == 1)
EMPTY = Domain("beyond infinity", lambda v: v["x"] > np.inf)


@pytest.mark.parametrize("domain", [NOTHING, ONE_NUMBER, EMPTY, magnitude("x", 1, 1)], ids=lambda d: d.text)
def test_a_domain_with_almost_no_ordinary_numbers_passes_nothing(domain):
    found = run(Scripted(y=wrong), match=exact(on=domain))
    assert found.verdict == "error"
    words = found.results[-1].words
    assert "match= of y" in words
    assert domain.text in words
    assert "where=" in words
    assert "outside=" in words


@pytest.mark.parametrize("domain", [magnitude("x", 1, 4), magnitude("x", 2.0**-126, 2.0**126), between("x", 1, 2)])
def test_large_enough_domains_pass_right_and_fail_wrong_results(domain):
    found = run(Scripted(y=right), match=exact(on=domain))
    assert found.verdict == "pass"
    assert run(Scripted(y=wrong), match=exact(on=domain)).verdict == "fail"
    assert all(r.judged["y"].codes == r.total for r in found.results)
    share = max((r.judged["y"] for r in found.results), key=lambda s: s.codes)
    assert 0 < share.ordinary_judged < share.ordinary < share.codes
    assert share.ordinary_judged < share.judged


@pytest.mark.parametrize("fmt", [F16, BF16, F64], ids=lambda f: f.name)
def test_a_binade_or_two_are_enough_in_every_format(fmt):
    found = run(Scripted(y=right), inputs={"x": fmt}, outputs={"y": fmt}, match=exact(on=magnitude("x", 1, 4)))
    assert found.verdict == "pass", found.results[-1].words


def test_each_of_several_outputs_counts_by_itself():
    match = {"y": exact(), "z": exact(on=NOTHING)}
    found = run(Scripted(y=right, z=wrong), match=match)
    assert found.verdict == "error"
    assert "match= of z" in found.results[-1].words
    assert run(Scripted(y=right, z=right), match={"y": exact(), "z": exact(on=magnitude("x", 1, 4))}).verdict == "pass"


def test_a_policy_for_outside_the_domain_makes_all_codes_judged():
    assert run(Scripted(y=right), match=exact(on=NOTHING, outside=ulp(1))).verdict == "pass"
    assert run(Scripted(y=wrong), match=exact(on=NOTHING, outside=exact())).verdict == "fail"


def test_meets_needs_the_same_share():
    own = {"reference": lambda x: x, "meets": Meets(EMPTY, exact())}
    found = run(Scripted(y=right), own, reference=lambda x: x ^ 1)
    assert found.verdict == "error"
    assert "meets= of y" in found.results[-1].words
    own["meets"] = Meets(Domain("1 <= x <= 4", lambda v: (v["x"] >= 1) & (v["x"] <= 4)), ulp(1))
    assert run(Scripted(y=right), own, reference=lambda x: x ^ 1).verdict == "pass"


def test_an_expected_failure_does_not_excuse_a_policy_that_judges_nothing(monkeypatch):
    monkeypatch.setattr(runner, "diagnose", lambda job, outcome: "missing early clobber")
    monkeypatch.setattr(contexts, "judge_same", lambda *a: runner.Judgement(total=1, different=1))
    expected = ExpectedFailure("missing early clobber", context=("shared", "loop"))
    found = run(Scripted(y=wrong), {"carry": {"y": "x"}, "expected_failure": expected}, match=exact(on=NOTHING))
    assert any(r.expected_failure for r in found.results)
    assert found.verdict == "error"


def test_where_makes_a_narrow_domain_the_whole_domain():
    narrow = Domain("1.2 <= x < 1.2001", lambda v: (v["x"] >= 1.2) & (v["x"] < 1.2001))
    given = {"match": exact(on=narrow), "hard_cases": [(0x3F99999B,), (0x3F99999C,)]}
    assert run(Scripted(y=right), **given).verdict == "error"
    assert run(Scripted(y=right), **given, where=narrow).verdict == "pass"
    assert run(Scripted(y=wrong), **given, where=narrow).verdict == "fail"


@pytest.mark.parametrize("make", [magnitude, between])
@pytest.mark.parametrize(
    ("low", "high"),
    [
        (2, 1),
        (math.nan, 1),
        (1, math.nan),
        (math.nan, math.nan),
        (1, math.inf),
        (-math.inf, 1),
        ("1", 2),
        (10**400, 10**401),
    ],
)
def test_empty_ranges_are_refused_when_declared(make, low, high):
    with pytest.raises(ValueError, match=f"{make.__name__}.*'x'"):
        make("x", low, high)


def test_a_magnitude_is_not_negative():
    with pytest.raises(ValueError, match="at least 0"):
        magnitude("x", -3, -1)
    assert between("x", -3, -1).holds({"x": np.array([-2.0, 2.0])}).tolist() == [True, False]


def records(*results: Result) -> RunRecords:
    head = Run("r", "2026-01-01T00:00:00", "quick", 0, {"gpus": [{"name": "a GPU"}]})
    return RunRecords(run=head, results=list(results), end=End("", 1.0, {}))


def test_the_gate_reports_that_less_was_judged():
    wide = run(Scripted(y=right), match=exact(on=magnitude("x", 2.0**-100, 2.0**100))).results
    narrow = run(Scripted(y=right), match=exact(on=magnitude("x", 1, 4))).results
    assert gate(records(*wide), records(*wide)).code == 0
    assert gate(records(*wide), records(*narrow)).code == 0
    decision = gate(records(*narrow), records(*wide))
    assert decision.code == CORRECTNESS
    (finding,) = [f for f in decision.findings if "judged" in f.text]
    assert finding.subject == "c::v"
    assert finding.code == CORRECTNESS


def test_the_gate_reports_more_differences_outside_the_domain():
    (first, *_) = run(Scripted(y=right), match=exact(on=magnitude("x", 1, 4))).results
    more = dataclasses.replace(first, unchecked=first.total // 2, outputs_digest=())
    decision = gate(records(more), records(first))
    assert decision.code == CORRECTNESS
    assert any("unchecked" in f.text for f in decision.findings)


def test_a_baseline_keeps_the_judged_share_of_a_run(tmp_path):
    def gated(run, accepted):
        baseline.write(accepted, tmp_path)
        return gate(run, baseline.load(tmp_path))

    wide = records(*run(Scripted(y=right), match=exact(on=magnitude("x", 2.0**-100, 2.0**100))).results)
    narrow = records(*run(Scripted(y=right), match=exact(on=magnitude("x", 1, 4))).results)
    assert any("not judged" in f.text for f in gated(narrow, wide).findings if f.code == CORRECTNESS)
    few, more = (
        records(*(dataclasses.replace(r, unchecked=n, outputs_digest=()) for r in narrow.results if r.total > 2))
        for n in (1, 2)
    )
    assert gated(few, few).code == 0
    assert any("differ unchecked" in f.text for f in gated(more, few).findings if f.code == CORRECTNESS)


def test_shares_are_records():
    result = Result(next(iter(run(Scripted(y=right)).results)).key, "pass", judged={"y": Share(10, 9, 8, 7)})
    assert from_json(to_json(result)) == result


def test_an_absolute_bound_is_finite():
    for bound in (math.inf, math.nan, -1):
        with pytest.raises(ValueError, match="bound"):
            absolute(bound)
