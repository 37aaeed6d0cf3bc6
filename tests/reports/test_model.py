"""How results become cells, rows and groups of failures."""

import dataclasses

import pytest

from ptxdiff.records import Bits, CaseInfo, End, Key, Result, Run, RunRecords, VariantInfo
from ptxdiff.reports.casepage import bound_of_errors, by_finding, histograms
from ptxdiff.reports.model import STATES, anchor, evidence_of, shape_order, state_of, target_order, view, worst_state
from ptxdiff.reports.verdict import overall
from tests.reports import synthetic


def result(verdict="pass", *, backend="emulator", evidence="specification", target="sm_90a", **more):
    fields = {"pack", "shape", "context", "variant", "fusion"} & more.keys()
    key = Key("c", more.pop("variant", "v"), target, backend, **{f: more.pop(f) for f in fields - {"variant"}})
    return Result(key, verdict, evidence=evidence, **more)


def run(*results, ended=True):
    info = VariantInfo("asm", "exact", "never", "any", "all")
    case = CaseInfo("c", "cases/c.py", "t", {}, {}, "r", "s", {"v": info})
    end = End("later", 1.0, {}) if ended else None
    return RunRecords(Run("id", "2026-01-01T00:00:00Z", "quick", 0, {}), {"c": case}, {}, list(results), end=end)


def cell(*results):
    return view(run(*results)).rows[0].cells["sm_90a"]


@pytest.mark.parametrize(
    ("results", "state"),
    [
        ([result("pass"), result("fail", pack=2)], "fail"),
        ([result("fail"), result("error", backend="gpu")], "error"),
        ([result("pass"), result("fail", context="loop", expected_failure=True)], "expected"),
        ([result("fail"), result("fail", context="loop", expected_failure=True)], "fail"),
        ([result("pass"), result("not run", backend="gpu")], "pass"),
        ([result("not run", backend="gpu"), result("pass", backend="assembler", evidence="none")], "assembled"),
        ([result("unsupported"), result("unsupported", backend="assembler")], "unsupported"),
        ([result("unsupported"), result("not run", backend="gpu")], "unsupported"),
        ([result("not run", backend="gpu")], "not run"),
        ([result("surprise")], "error"),
    ],
)
def test_the_worst_result_is_the_cells_state_and_only_a_pass_is_a_pass(results, state):
    assert cell(*results).state.name == state


def test_a_pass_of_the_assembler_is_never_shown_as_a_pass():
    assert state_of(result("pass", backend="assembler")) == "assembled"


def test_each_part_has_its_strongest_evidence_and_the_cell_names_strongest_and_weakest():
    results = [
        result(evidence="model"),
        result(evidence="hardware", backend="gpu"),
        result(evidence="model", pack=2),
    ]
    assert evidence_of(results) == ("hardware", "model")
    assert cell(*results).model_only
    assert evidence_of(results[:2]) == ("hardware", "hardware")
    assert not cell(*results[:2]).model_only


def test_failures_give_no_evidence():
    assert evidence_of([result("fail", evidence="hardware")]) == ("none", "none")


def test_a_target_without_a_record_is_an_empty_cell_not_a_pass():
    found = view(run(result(), result(variant="w", target="sm_80")))
    assert found.rows[0].cells["sm_80"].state.name == "absent"


def test_a_case_without_any_result_still_has_its_rows():
    found = view(run())
    assert [(row.variant, row.state.name) for row in found.rows] == [("v", "absent")]


def test_equal_failures_on_several_targets_and_backends_are_one_group_simplest_first():
    base = synthetic.catalogue(1, per_cell=12)
    results = [
        synthetic.failing(r) if r.key.variant == "asm.rn" and r.key.backend != "assembler" else r for r in base.results
    ]
    (group,) = view(dataclasses.replace(base, results=results)).failures
    assert group.targets == list(synthetic.TARGETS)
    assert group.backends == ["gpu", "emulator"]
    assert (group.simplest.key.pack, group.simplest.key.shape) == (1, "1")


def test_different_wrong_answers_are_different_groups():
    a = synthetic.failing(result())
    b = dataclasses.replace(synthetic.failing(result(pack=2)), classes={"NaN": 1})
    found = view(run(a, b))
    assert len(found.failures) == 2
    (both,) = found.wrong
    assert (both.kinds, both.packs, both.anchor) == (2, [1, 2], found.failures[0].anchor)


def test_the_shown_input_fails_even_if_a_passing_one_is_farther():
    within = dataclasses.replace(synthetic.offender(), ulp=1, inputs={"x": Bits("0x1", "1e-45")})
    r = dataclasses.replace(synthetic.failing(result()), worst=within)
    (group,) = view(run(r)).failures
    assert group.offender == r.offenders[0] != within


def test_the_same_words_for_different_targets_are_one_group():
    words = "ptxas: not on {}"
    results = [result("error", target=t, words=words.format(t)) for t in ("sm_80", "sm_90a")]
    assert len(view(run(*results)).failures) == 1


def test_sorting_of_targets_and_shapes():
    assert sorted(["sm_120a", "sm_90a", "sm_100a", "sm_75"], key=target_order) == [
        "sm_75",
        "sm_90a",
        "sm_100a",
        "sm_120a",
    ]
    assert sorted(["1023", "7x129", "1", "M=4,N=64"], key=shape_order) == ["1", "M=4,N=64", "7x129", "1023"]


def test_anchors_are_distinct_and_plain():
    names = ["a.b", "a b", "a/b", "a<b", "a--b", "a"]
    found = {anchor("cell", n) for n in names}
    assert len(found) == len(names)
    assert all(c.isalnum() or c in "._-~" for a in found for c in a)


def test_every_state_has_its_own_symbol_and_word():
    assert len({s.symbol for s in STATES.values()}) == len({s.word for s in STATES.values()}) == len(STATES)
    assert worst_state([]) == "absent"


@pytest.mark.parametrize(
    ("results", "ended", "word"),
    [
        ([result()], True, "passed"),
        ([result("fail")], True, "failed"),
        ([result("error")], True, "failed"),
        ([result("fail")], False, "failed"),
        ([result()], False, "cut short"),
        ([], True, "nothing ran"),
        ([], False, "cut short"),
        ([result("not run", backend="gpu")], True, "nothing ran"),
        ([result("unsupported")], True, "nothing ran"),
        ([result("pass", backend="assembler")], True, "assembled only"),
        ([result("fail", expected_failure=True)], True, "passed"),
    ],
)
def test_only_a_finished_run_in_which_something_ran_is_green(results, ended, word):
    verdict = overall(view(run(*results, ended=ended)))
    assert verdict.word == word
    assert verdict.green == (word == "passed")


def test_counts_have_all_five_verdicts_and_expected_failures_separately():
    verdict = overall(view(run(result(), result("fail", pack=2), result("fail", pack=4, expected_failure=True))))
    assert verdict.counts == {"pass": 1, "fail": 1, "unsupported": 0, "error": 0, "not run": 0}
    assert verdict.expected == 1


def test_the_verdict_mentions_models_missing_results_and_cut_runs():
    notes = " ".join(
        overall(
            view(run(result("fail"), result(pack=2, evidence="model"), result("not run", backend="gpu"), ended=False))
        ).notes
    )
    assert "cut short" in notes
    assert "model alone" in notes
    assert "1 result did not run (gpu)" in notes


FAR = {"-8388608..16777216": 3}
FLUSHED = {"0": 90, "2": 5, **FAR}


@pytest.mark.parametrize(
    ("facts", "fails", "unchecked"),
    [
        ({"verdict": "pass"}, {}, {}),
        (
            {"verdict": "pass", "unchecked": 3, "ulps_unchecked": {"-8388608..16777216": 3}},
            {},
            {"-8388608..16777216": 3},
        ),
        ({"verdict": "fail", "different": 5, "classes": {"1 ulp": 5}, "ulps_failing": {"2": 5}}, {"2": 5}, {}),
        ({"verdict": "fail", "different": 1, "classes": {"NaN": 1}}, {}, {}),
        # A file of an older ptxdiff, which does not say which codes fail.
        ({"verdict": "fail", "different": 3, "classes": {"flush to zero": 3}}, {"2": 5, **FAR}, {}),
    ],
)
def test_a_bar_beyond_the_bound_counts_as_failing_only_if_the_judge_says_so(facts, fails, unchecked):
    found = by_finding(result(total=98, ulps=FLUSHED, **facts), 1)
    assert (found["fails"], found["no bound promised"]) == (fails, unchecked)
    assert sum(sum(counts.values()) for counts in found.values()) == 98


@pytest.mark.parametrize(("ulps", "bound"), [({"0": 9, "1": 1}, 1), (FLUSHED, None)])
def test_no_bound_is_drawn_where_passing_codes_lie_beyond_it(ulps, bound):
    (row,) = view(run(result(total=98, ulps=ulps))).rows
    row = dataclasses.replace(row, info=dataclasses.replace(row.info, match="ulp(1)", bound=1.0))
    assert bound_of_errors(row) == bound
    (histogram,) = histograms([row])
    assert {bar["finding"] for bar in histogram.bars} == {"passes"}
    relative = dataclasses.replace(row.info, match="relative(0.01)", bound=None)
    assert bound_of_errors(dataclasses.replace(row, info=relative)) is None
    through = dataclasses.replace(row.info, match="exact through ulp(2) of div (float32), then f", bound=None)
    assert bound_of_errors(dataclasses.replace(row, info=through)) is None
