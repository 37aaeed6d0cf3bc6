"""How results become cells, rows and groups of failures."""

import dataclasses

import pytest

from ptxdiff.records import Bits, CaseInfo, End, Key, Result, Run, RunRecords, VariantInfo, brief_words
from ptxdiff.reports.case_page import by_finding, histograms, spread
from ptxdiff.reports.model import STATES, anchor, evidence_of, shape_order, state_of, target_order, view, worst_state
from ptxdiff.reports.verdict import overall
from tests.support.reports import synthetic


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


def test_different_causes_are_different_groups_and_classes_of_difference_are_not():
    """Each setup has other inputs, so one mistake has other classes of difference in each."""
    a = synthetic.failing(result())
    c = dataclasses.replace(synthetic.failing(result(pack=4)), classes={"NaN": 1})
    assert [len(g.results) for g in view(run(a, c)).failures] == [2]
    b = dataclasses.replace(synthetic.failing(result(pack=2)), diagnosis="missing early clobber")
    found = view(run(a, b))
    assert len(found.failures) == 2
    (both,) = found.wrong
    assert (both.kinds, both.packs, both.cause) == (2, [1, 2], "missing early clobber")  # the cause before other words
    assert both.anchor in [g.anchor for g in found.failures if g.cause]


def test_counts_of_cell_row_and_terminal_agree():
    """A cell counts the results of the items that fail, as the end of an item's message does."""
    results = [
        *(synthetic.failing(result(pack=p, target=t)) for p in (1, 2) for t in ("sm_80", "sm_90a")),
        result(pack=4, target="sm_80"),
        result(pack=4, target="sm_90a", backend="assembler", evidence="none"),
        result("not run", target="sm_90a", backend="gpu"),
        result("unsupported", pack=8, target="sm_90a"),
    ]
    found = view(run(*results))
    (row,) = found.rows
    assert {t: c.wrong for t, c in row.cells.items()} == {"sm_80": "2 of 3", "sm_90a": "2 of 3"}
    assert row.by_backend == [
        ("gpu", "1 not run", ""),
        ("emulator", "4 of 6 fail, 1 pass, 1 unsupported", ""),
        ("assembler", "1 assembles", ""),
    ]
    verdict = overall(found)
    assert verdict.counts == {"pass": 2, "fail": 4, "unsupported": 1, "error": 0, "not run": 1}
    assert verdict.beside("fail") == " (2 items)"
    assert verdict.beside("error") == ""
    assert sum(c.counts["fail"] for c in row.cells.values()) == verdict.counts["fail"]
    assert [(len(g.results), g.items) for g in found.failures] == [(4, 2)]


def test_a_target_on_which_nothing_ran_is_no_column_unless_nothing_ran_at_all():
    missing = [result("not run", target="device", backend="gpu"), result("not run", target="sm_80", backend="gpu")]
    found = view(run(*missing, result()))
    assert (found.shown_targets, found.idle_targets) == (["sm_90a"], ["device", "sm_80"])
    assert view(run(*missing)).shown_targets == ["device", "sm_80"]
    assert view(run(result("unsupported", target="sm_80"))).shown_targets == ["sm_80"]


def test_rows_are_grouped_by_family_and_only_those_in_which_nothing_is_wrong_pass():
    base = synthetic.catalogue(4, ("sm_90a", "sm_100a"), per_cell=5)
    names = list(base.cases)
    families = dict(zip(names, ("math", "bits", "math", ""), strict=True))
    cases = {n: dataclasses.replace(c, family=families[n]) for n, c in base.cases.items()}

    def changed(r):
        if r.key.case == names[1] and r.key.target == "sm_90a" and r.key.backend != "assembler":
            return synthetic.failing(r)
        if r.key.case == names[3]:
            return dataclasses.replace(r, verdict="not run", evidence="none")
        return r

    found = view(dataclasses.replace(base, cases=cases, results=[changed(r) for r in base.results])).families
    assert [(f.name, f.cases, f.passes) for f in found] == [
        ("bits", [names[1]], False), ("math", [names[0], names[2]], True), ("other", [names[3]], False)
    ]  # fmt: skip
    shown = [[(s.name, n) for s, n in found[0].on(t)] for t in ("sm_90a", "sm_100a")]
    assert shown == [[("fail", 4)], [("pass", 4)]]
    assert [f.name for f in view(base).families] == [""]


def test_the_command_of_a_failure_is_its_message_s():
    group = view(run(synthetic.failing(result()))).failures[0]
    assert group.command == "pytest cases/c.py --ptx-replay=" + group.simplest.replay
    silent = dataclasses.replace(synthetic.failing(result()), message="no command")
    assert view(run(silent)).failures[0].command == ""


def test_each_failing_variant_has_its_worst_inputs():
    from ptxdiff.reports.case_page import WORST_EACH, WORST_SHOWN, _worst

    many = [
        dataclasses.replace(
            synthetic.failing(result(variant="loud", pack=n)),
            offenders=(one := dataclasses.replace(synthetic.offender(got=f"0x{n:08x}"), ulp=1000 + n),),
            worst=one,
        )
        for n in range(20)
    ]
    quiet = [synthetic.failing(result(variant=f"quiet{n}")) for n in range(3)]
    passing = dataclasses.replace(result(variant="right"), worst=dataclasses.replace(synthetic.offender(), ulp=10**6))
    shown = [variant for variant, _, _ in _worst([*many, *quiet, passing])]
    assert shown[:WORST_EACH] == ["loud"] * WORST_EACH
    assert {"quiet0", "quiet1", "quiet2"} < set(shown)
    assert len(shown) == WORST_SHOWN


def test_a_result_with_a_failing_input_stands_for_a_group_before_a_simpler_one_without():
    a = dataclasses.replace(result("fail", shape="1"), findings=("approximate, and the policy is exact",))
    b = dataclasses.replace(synthetic.failing(result(pack=4)), findings=a.findings)
    (group,) = view(run(a, b)).failures
    assert group.simplest == b
    assert group.offender is not None


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


def test_a_part_of_the_plan_of_machine_code_is_named_as_one():
    part = dataclasses.replace(result(backend="sass"), notes=(brief_words(2, 25),))
    assert "Machine code ran 2 of the 25 runs of its whole plan" in " ".join(overall(view(run(part))).notes)
    assert "Machine code" not in " ".join(overall(view(run(result(backend="sass")))).notes)


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


def row_of(**more):
    (row,) = view(run(result(total=98, **more))).rows
    return dataclasses.replace(row, info=dataclasses.replace(row.info, match="ulp(1)", bound=1.0))


RANGES = {"sub": (0, 16777216), "-5": (-1, 1), "3": (0, 1)}


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"ulps": {"0": 9, "1": 1}}, ""),
        ({"ulps": FLUSHED}, " 8 codes beyond it pass, because the policy permits them (a flush, an overflow)."),
        (
            {"ulps": FLUSHED, "verdict": "fail", "different": 3, "ulps_failing": FAR},
            " 3 codes beyond it fail. 5 codes beyond it pass, because the policy permits them (a flush, an overflow).",
        ),
    ],
)
def test_the_promised_bound_is_a_band_and_codes_beyond_it_are_counted_by_what_the_judge_found(facts, words):
    found = spread(row_of(ranges=RANGES, **facts))
    assert found.words == f"Errors from -1 to +16,777,216 ulp. The band is the promised bound, 1 ulp.{words}"
    assert [(p["where"], p["exponent"], p["minus"], p["bound"]) for p in found.points] == [
        ("sub", -7, -1, 1), ("-5", -5, -1, 1), ("3", 3, -1, 1)
    ]  # fmt: skip


@pytest.mark.parametrize("match", ["relative(0.01)", "exact through ulp(2) of div (float32), then f"])
def test_no_band_is_drawn_for_a_policy_without_a_bound_in_ulp(match):
    row = row_of(ulps={"0": 9, "1": 1}, ranges=RANGES)
    found = spread(dataclasses.replace(row, info=dataclasses.replace(row.info, match=match, bound=None)))
    assert (found.bound, found.words) == (None, "Errors from -1 to +16,777,216 ulp.")
    assert not {"bound", "minus"} & found.points[0].keys()
    assert spread(row_of(ranges={"3": (0, 0)})) is None


def test_a_passing_variant_has_no_bar_in_the_colour_of_failures():
    (histogram,) = histograms([row_of(ulps=FLUSHED)])
    assert {bar["colour"] for bar in histogram.bars} == {"var(--series-1)"}
    assert histogram.findings == {"passes": 98}
    (histogram,) = histograms([row_of(ulps=FLUSHED, verdict="fail", different=3, ulps_failing=FAR)])
    assert histogram.findings == {"passes": 95, "fails": 3}
    assert [(b["begin"], b["end"], b["bottom"], b["top"]) for b in histogram.bars] == [
        (-16777216.5, -8388607.5, 0, 3), (-0.5, 0.5, 0, 90), (1.5, 2.5, 0, 5)
    ]  # fmt: skip


def test_a_variant_is_shown_by_the_failure_that_the_terminal_shows():
    a = dataclasses.replace(synthetic.failing(result()), diagnosis="undefined bits stored")
    swapped = dataclasses.replace(
        synthetic.failing(result(pack=4)),
        classes={"positional": 3},
        words="c::v[sm_80-emulator]: results in other places, x: swap them; 3 of 5 codes differ (positional 3)",
    )
    (both,) = view(run(a, swapped)).wrong
    assert both.cause == "results in other places, x: swap them"
