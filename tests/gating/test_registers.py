"""A gate on speed with timings in registers refuses missing timings, timings of another loop, and timings with too much
noise."""

from dataclasses import replace

import pytest

from ptxdiff.gating import baseline
from ptxdiff.gating.gate import ACCEPTED, REGRESSION, Policy, gate
from ptxdiff.records import ALONE, InRegisters
from tests.support.reports import synthetic
from tests.support.reports.register_timings import loop, untimed

SPEED = Policy(allow_model=True, speed=True)
STATED = Policy(allow_model=True)


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(1, per_cell=9)


def of_case(record: InRegisters, variant: str = "asm.rn") -> InRegisters:
    return replace(record, key=replace(record.key, case="rcp", variant=variant))


FIRST = of_case(loop())
OTHER = of_case(loop(clocks=100.0), "asm.approx")


def decided(base, before, after, policy=SPEED, accept=baseline.accepted):
    """The gate's exit code for a run with timings in registers, and its findings on them."""
    was = accept(replace(base, in_registers=list(before)))
    decision = gate(replace(base, in_registers=list(after)), was, policy)
    words = [f for f in decision.findings if "in registers" in f.text]
    assert {f.code for f in decision.findings if f not in words} <= {ACCEPTED}
    return decision.code, [f"{f.subject}: {f.text}" for f in words]


def test_the_same_timings_are_accepted_without_a_finding(base):
    assert decided(base, [FIRST, OTHER], [FIRST, OTHER]) == (ACCEPTED, [])


WRONG = {
    "none": ([], "run: nothing was timed in registers; the baseline has 2 such timings"),
    "only words": ([of_case(untimed()), of_case(untimed(), "asm.approx")], "run: nothing was timed in registers"),
    "only the loop": ([of_case(loop(), ALONE)], "run: nothing was timed in registers"),
    "missing": ([OTHER], "rcp::asm.rn: in registers on sm_90a, throughput: timed in the baseline but not in the run"),
    "not timed": ([OTHER, of_case(untimed())], "timed in the baseline but not in the run: the loop holds LDG.E"),
    "slower": ([OTHER, of_case(loop(clocks=300.0))], "slower on sm_90a in registers, throughput: +17.2%"),
    "lost": (
        [OTHER, of_case(loop(clocks=100.0, opcodes={"LOP3.LUT": 1.0}))],
        "the loop has fewer instructions than the accepted one, MUFU.RCP 1 → 0",
    ),
    "noise": ([OTHER, of_case(loop(spread=0.9, noise=0.9))], "too noisy to say, A/A 90.0%"),
    "twice the time in noise": ([OTHER, of_case(loop(clocks=512.0, noise=1.2))], "it may be slower: time it again"),
    "results": ([OTHER, replace(FIRST, results=8192)], "8192 results per application, 4096 in the baseline"),
    "pack": ([OTHER, replace(FIRST, key=replace(FIRST.key, pack=4))], "timed by another loop than in the baseline"),
}


@pytest.mark.parametrize(("after", "words"), WRONG.values(), ids=list(WRONG))
def test_a_missing_timing_is_refused_by_a_gate_on_speed_and_otherwise_remarked(base, after, words):
    code, findings = decided(base, [FIRST, OTHER], after)
    assert code == REGRESSION
    assert any(words in t for t in findings)
    code, findings = decided(base, [FIRST, OTHER], after, STATED)
    assert code == ACCEPTED
    assert any(words in t and "speed is not gated" in t for t in findings)


def test_a_noisy_baseline_is_no_evidence(base):
    assert decided(base, [of_case(loop(spread=0.9, noise=0.5))], [FIRST])[0] == REGRESSION


def test_a_little_noise_passes(base):
    assert decided(base, [FIRST], [of_case(loop(clocks=257.0, spread=0.02, noise=0.004))])[0] == ACCEPTED


def test_the_loop_alone_is_stated_and_not_gated(base):
    before, after = of_case(loop(), ALONE), of_case(loop(clocks=400.0), ALONE)
    code, findings = decided(base, [FIRST, before], [FIRST, after])
    assert code == ACCEPTED
    assert f"{ALONE} is not gated" in findings[0]


def test_a_new_timing_is_a_remark(base):
    code, findings = decided(base, [FIRST], [FIRST, OTHER])
    assert (code, len(findings)) == (ACCEPTED, 1)
    assert "new, so not compared" in findings[0]
    code, findings = decided(base, [], [FIRST, OTHER])
    assert code == ACCEPTED
    assert findings == ["run: the baseline has no timings in registers; 2 here are not compared"]


def test_a_variant_that_was_never_timed_is_a_remark_with_its_reason(base):
    code, findings = decided(base, [OTHER, of_case(untimed())], [OTHER, of_case(untimed())])
    assert code == ACCEPTED
    assert findings[0].endswith("throughput: not timed, as in the baseline: the loop holds LDG.E")


def test_another_loop_of_a_changed_variant_is_stated(base):
    def changed(r):
        mine = (r.key.case, r.key.variant) == ("rcp", "asm.rn")
        return replace(r, fingerprint={**r.fingerprint, "asm": "other"}) if mine else r

    was = baseline.accepted(replace(base, in_registers=[FIRST]))
    run = replace(synthetic.with_results(base, changed), in_registers=[of_case(loop(opcodes={"FFMA": 4.0}))])
    assert [f.code for f in gate(run, was, SPEED).findings if "has fewer" in f.text] == [ACCEPTED]


def test_a_baseline_keeps_the_figures_without_the_samples(base, tmp_path):
    def through_files(run):
        baseline.write(run, tmp_path)
        return baseline.load(tmp_path)

    assert decided(base, [FIRST, OTHER], [FIRST, OTHER], accept=through_files)[0] == ACCEPTED
    kept = baseline.load(tmp_path).in_registers
    assert [(t.key, t.median, t.samples) for t in kept] == [(t.key, t.median, ()) for t in (OTHER, FIRST)]
    assert decided(base, [FIRST, OTHER], [OTHER, of_case(loop(clocks=300.0))], accept=through_files)[0] == REGRESSION


def test_accepting_a_run_without_a_gpu_keeps_those_of_another(base, tmp_path):
    baseline.write(replace(base, in_registers=[FIRST]), tmp_path)
    baseline.write(base, tmp_path, keep=baseline.load(tmp_path))
    assert [t.key for t in baseline.load(tmp_path).in_registers] == [FIRST.key]
