"""Records by several assemblers: merging, comparing and gating keep them separate, and every report counts them."""

import dataclasses

import pytest

from ptxdiff.cli import main
from ptxdiff.gating import baseline, digests
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, Policy, gate
from ptxdiff.records import (
    PTXAS,
    Key,
    Result,
    Writer,
    by_assembler,
    merged,
    names_assembler,
    read,
    splits,
)
from ptxdiff.records.compare import compare
from ptxdiff.records.rules import ContradictionError, check
from ptxdiff.reports.github import step_summary
from ptxdiff.reports.history import history
from ptxdiff.reports.html import page
from ptxdiff.reports.model import view
from ptxdiff.reports.tabular import rows
from tests.support.reports import synthetic

OLD, NEW = "ptxas 12.9.86 -O3 (983b0e928385)", "ptxas 13.4.59 -O3 (9c2c084df7eb)"
LOW, TWIN = "ptxas 12.9.86 -O0 (983b0e928385)", "ptxas 12.9.86 -O3 (000000000001)"
MODELS = Policy(allow_model=True)


def by(run, label, *, chosen):
    """The run whose gpu and assembler results come from one assembler. chosen: whether the key names it."""

    def changed(r):
        if r.key.backend == "emulator":
            return r
        key = dataclasses.replace(r.key, assembler=label) if chosen else r.key
        return dataclasses.replace(r, key=key, ptxas=label)

    return synthetic.finished(synthetic.with_results(run, changed))


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(3, ("sm_80", "sm_86", "sm_90a", "sm_100a"), per_cell=6)


def other_bits(r):
    return dataclasses.replace(r, outputs_digest=tuple(dataclasses.replace(b, digest="x") for b in r.outputs_digest))


def objections(decision):
    return [f.text for f in decision.findings if f.code == CORRECTNESS]


@pytest.mark.parametrize("form", [baseline, digests])
@pytest.mark.parametrize("now", [LOW, TWIN, ""])
def test_a_baseline_of_one_assembler_covers_no_other(base, form, now, tmp_path):
    """It does not cover another level, another program of the same version, or Triton's own assembler."""
    old, run = by(base, OLD, chosen=True), by(base, now, chosen=True) if now else base
    condensed = digests.condensed if form is digests else lambda r: r
    form.write(condensed(old), tmp_path)
    same = gate(condensed(old), form.load(tmp_path), MODELS)
    assert same.code == ACCEPTED
    decision = gate(condensed(run), form.load(tmp_path), MODELS)
    assert decision.code == CORRECTNESS
    assert any("in the baseline but not in the run" in text for text in objections(decision))
    assert decision.checked < same.checked


def test_a_baseline_of_digests_keeps_wrong_bits_of_one_level_apart(base, tmp_path):
    """If one line held the bits of two levels, wrong bits of one level could pass as those of the other."""
    both = by(base, OLD, chosen=True)
    both.results = [*both.results, *(r for r in by(base, LOW, chosen=True).results if r.key.assembler)]
    made = digests.condensed(both)
    assert {r.key.assembler for r in made.results} == {"", OLD, LOW}
    digests.write(made, tmp_path)
    kept = digests.load(tmp_path)
    assert {r.key for r in kept.results} == {r.key for r in made.results}
    changed = synthetic.with_results(both, lambda r: other_bits(r) if r.key.assembler == LOW else r)
    assert gate(digests.condensed(changed), kept, MODELS).code == CORRECTNESS


def test_results_of_two_assemblers_are_not_merged_into_one(base):
    runs = [by(base, label, chosen=False) for label in (OLD, NEW)]
    found = merged(runs)
    on_gpu = [r for r in found.results if r.key.backend == "gpu" and r.verdict == "pass"]
    assert len(on_gpu) == 2 * len({r.key for r in on_gpu})
    assert {r.ptxas for r in on_gpu} == {OLD, NEW}
    assert any(n.endswith(f"; by {NEW}") for r in on_gpu for n in r.notes)
    assert found.conflicts == []
    assert len(merged([runs[0], runs[0]]).results) == len(base.results)


def test_a_comparison_says_that_tritons_own_is_another(base):
    found = compare(by(base, OLD, chosen=False), by(base, NEW, chosen=False))
    differences = {(d.key.backend, d.before, d.after) for d in found.of("assembler")}
    assert differences == {("gpu", OLD, NEW), ("assembler", OLD, NEW)}
    assert not compare(by(base, OLD, chosen=False), by(base, OLD, chosen=False)).differences


def test_a_comparison_groups_the_results_that_only_one_assembler_has(base):
    found = compare(by(base, OLD, chosen=True), by(base, LOW, chosen=True))
    assert {d.key.assembler for d in found.of("vanished")} == {OLD}
    assert {d.key.assembler for d in found.of("new")} == {LOW}
    assert len(found.of("vanished")) <= 2


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("names", "accepted"),
    [
        (["12.9"], True),
        (["12.9.86 -O3"], True),
        ([OLD], True),
        (["13.4", "ptxas 12.9"], True),
        (["baseline"], True),
        (["13.4"], False),
        (["12.9 -O0"], False),
        ([TWIN], False),
        (["12"], True),
        (["1"], False),
    ],
)
def test_the_gate_accepts_results_of_the_named_assemblers(base, names, accepted):
    run = by(base, OLD, chosen=False)
    decision = gate(run, baseline.accepted(run), Policy(allow_model=True, assemblers=tuple(names)))
    assert (decision.code == ACCEPTED) == accepted
    if not accepted:
        assert any(f"results by {OLD}; accepted are {names[0]}" in text for text in objections(decision))


def test_the_gate_requires_the_assemblers_of_the_baseline(base, tmp_path):
    old, new = (by(base, label, chosen=False) for label in (OLD, NEW))
    policy = Policy(allow_model=True, assemblers=("baseline",))
    assert gate(new, baseline.accepted(old), MODELS).code == ACCEPTED  # not requested, so only stated
    assert any("by two" in f.text or "two assemblers" in f.text for f in gate(new, baseline.accepted(old)).findings)
    assert gate(new, baseline.accepted(old), policy).code == CORRECTNESS
    digests.write(digests.condensed(old), tmp_path)
    assert gate(digests.condensed(old), digests.load(tmp_path), policy).code == ACCEPTED
    assert gate(digests.condensed(new), digests.load(tmp_path), policy).code == CORRECTNESS


def test_results_without_an_assembler_are_not_accepted(base):
    decision = gate(base, baseline.accepted(base), Policy(allow_model=True, assemblers=("12.9",)))
    assert any("by an assembler that they do not name" in text for text in objections(decision))


def test_a_word_that_names_no_assembler_is_refused(base, tmp_path, capsys):
    with pytest.raises(ValueError, match="names no assembler"):
        names_assembler("newest", OLD)
    writer = Writer(tmp_path / "run.jsonl")
    writer.write(base.run, *base.cases.values(), *base.results, base.end)
    writer.close()
    baseline.write(read(tmp_path / "run.jsonl"), tmp_path / "base")
    words = ["gate", str(tmp_path / "run.jsonl"), "--baseline", str(tmp_path / "base"), "--assembler", "newest"]
    assert main(words) == 2
    assert "'newest' names no assembler" in capsys.readouterr().err


def test_a_result_names_one_assembler():
    key = Key("c", "v", "sm_90a", "gpu", assembler=OLD)
    check(Result(key, "pass", ptxas=OLD))
    with pytest.raises(ContradictionError, match="the key names"):
        check(Result(key, "pass", ptxas=LOW))


def test_levels_with_other_bits_are_reported(base):
    both = by(base, OLD, chosen=True).results
    other = [
        other_bits(r)
        for r in by(base, LOW, chosen=True).results
        if r.key.assembler and r.key.backend == "gpu" and r.verdict == "pass"
    ]
    found = splits([*both, *other])
    assert any("sm_90a gpu by ptxas 12.9.86 -O0" in group for s in found for group in s.groups)


def test_every_report_has_a_line_for_each_assembler_and_level(base):
    run = by(base, OLD, chosen=False)
    failing = next(r for r in run.results if r.key.backend == "gpu" and r.verdict == "pass")
    fault = dataclasses.replace(
        failing, key=dataclasses.replace(failing.key, assembler=LOW), ptxas=LOW, verdict="fail", diagnosis=PTXAS,
        words="1 of 4096 codes differ; ptxas 12.9.86 -O0 is at fault",
    )  # fmt: skip
    run.results = [*run.results, fault]
    run = synthetic.finished(run)
    low, old = by_assembler(run.results)
    assert (low.label, low.passed, low.failed, low.faults) == (LOW, 0, 1, 1)
    assert (old.label, old.faults) == (OLD, 0)
    assert old.passed == sum(r.verdict == "pass" and r.ptxas == OLD for r in run.results)
    assert str(low) == f"{LOW}: 0 passed, 1 failed, 1 fault of ptxas"
    past, newest = history([run])
    text = page(view(newest), past, None)
    assert f"{OLD}</th>" in text
    assert "1 failure by a fault of ptxas 12.9.86 -O0 itself." in text
    assert f"| {LOW.replace('(', '(')} | 0 | 1 | 1 |" in step_summary(run)
    assert {row["ptxas"] for row in rows(run) if row["backend"] == "gpu" and row["kind"] == "result"} >= {OLD, LOW}


def test_a_baseline_of_digests_says_that_another_assembler_made_the_results(base, tmp_path):
    """Its results name none, but its head lists those that made it."""
    digests.write(digests.condensed(by(base, OLD, chosen=False)), tmp_path)

    def remarks(label):
        run = by(base, label, chosen=False)
        return [f.text for f in digests.decided(run, digests.load(tmp_path), MODELS).findings if "ptxas" in f.text]

    assert remarks(OLD) == []
    assert [text.endswith(f"by {NEW}, in the baseline by {OLD}") for text in remarks(NEW)] == [True]
