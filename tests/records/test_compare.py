"""Comparisons of runs name each planted change, and nothing else."""

import dataclasses

import pytest

from ptxdiff.records.compare import CompareError, compare
from tests.support.reports import synthetic
from tests.support.reports.synthetic import with_results


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, per_cell=9)


@pytest.fixture(scope="module")
def last(base):
    """The thirtieth night, which has all five planted changes."""
    *_, found = synthetic.nights(base)
    return found


def test_equal_runs_are_quiet(base):
    found = compare(base, base)
    assert found.quiet
    assert found.matched == found.equal == len(base.results)
    assert not compare(dataclasses.replace(base, results=[]), dataclasses.replace(base, results=[])).quiet


def test_every_planted_change_is_named(base, last):
    found = compare(base, last)
    assert {d.kind for d in found.differences} == {"vanished", "ulp", "bits", "spills", "speed"}
    (gone,) = found.of("vanished")
    assert (gone.key.target, gone.key.case) == ("sm_86", "*")
    assert {(d.key.case, d.before, d.after) for d in found.of("ulp")} == {("ex2", "1 ulp", "2 ulp")}
    assert {d.key.case for d in found.of("bits")} == {"tanh", "ex2"}
    assert {(d.key.case, d.key.target, d.after) for d in found.of("spills")} == {("f16x2_fma_clamp", "sm_100a", "32")}
    assert {(d.key.case, d.key.variant, d.worse) for d in found.of("speed")} == {("rcp", "asm.rn", True)}


def test_both_directions_mirror_each_other(base, last):
    back = compare(last, base)
    assert {d.key.target for d in back.of("new")} == {"sm_86"}
    assert all(d.worse is False for d in back.of("spills", "ulp", "speed"))


def test_bits_on_other_inputs_are_not_compared(base):
    other = [
        dataclasses.replace(r, inputs_digest="others", outputs_digest=r.outputs_digest[1:]) if r.outputs_digest else r
        for r in base.results
    ]
    found = compare(base, dataclasses.replace(base, results=other))
    assert found.of("bits") == []
    assert len(found.of("inputs")) == sum(bool(r.outputs_digest) for r in base.results)


def test_two_targets_of_one_run(base):
    found = compare(base, base, targets=("sm_80", "sm_120a"))
    assert {d.key.target for d in found.differences} == {"sm_80 → sm_120a"}
    assert {(d.before, d.after) for d in found.of("verdict")} == {("unsupported", "pass")}


def test_a_target_that_a_run_does_not_have_is_refused_with_what_it_has(base):
    with pytest.raises(CompareError, match=r"no result on sm_70; it has sm_100a, "):
        compare(base, base, targets=("sm_70", "sm_80"))


def test_a_changed_definition_names_its_parts(base):
    changed = [
        dataclasses.replace(r, fingerprint={**r.fingerprint, "asm": "other"})
        if (r.key.case, r.key.variant) == ("rcp", "asm.rn") and r.fingerprint
        else r
        for r in base.results
    ]
    (found,) = compare(base, dataclasses.replace(base, results=changed)).of("definition")
    assert (found.key.case, found.key.variant) == ("rcp", "asm.rn")
    assert "asm" in found.detail


def test_a_changed_environment_is_listed(base):
    run = dataclasses.replace(base.run, environment={**base.run.environment, "driver": "580.1"})
    assert compare(base, dataclasses.replace(base, run=run)).environment == {"driver": ("570.86.15", "580.1")}


def test_speed_within_the_noise_is_no_difference(base):
    quiet = next(iter(synthetic.nights(base, 1, planted={})))
    assert compare(base, quiet).of("speed") == []


def test_results_that_ran_in_neither_run_are_not_compared(base):
    """Two runs in which everything was skipped agree on nothing."""
    skipped = with_results(base, lambda r: dataclasses.replace(r, verdict="not run", evidence="none"))
    skipped = dataclasses.replace(skipped, timings=[])
    found = compare(skipped, skipped)
    assert (found.matched, found.ran, found.quiet) == (len(base.results), 0, False)
