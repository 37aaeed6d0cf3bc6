"""The gate: the right exit code for every planted change, and a stated decision for everything else."""

import dataclasses

import pytest

from ptxdiff.gating import baseline, digests
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, REGRESSION, Policy, gate
from ptxdiff.records import Proof, Share
from tests.support.reports import synthetic
from tests.support.reports.synthetic import with_results

MODELS = Policy(allow_model=True)


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, ("sm_80", "sm_86", "sm_90a", "sm_100a"), per_cell=6)


@pytest.fixture(scope="module")
def accepted(base):
    return baseline.accepted(base)


def on(run, target):
    return with_results(run, lambda r: r if r.key.target == target else None)


def against(decision):
    return [f for f in decision.findings if f.code != ACCEPTED]


def test_the_accepted_run_itself_is_accepted(base, accepted):
    decision = gate(base, accepted, MODELS)
    assert decision.code == ACCEPTED
    assert decision.checked == len(base.results)
    assert decision.sentence.startswith("accepted; ")


@pytest.mark.parametrize(
    ("planted", "code", "subject", "words"),
    [
        ("bits", CORRECTNESS, "tanh::asm.approx", "output bits changed on sm_90a (gpu)"),
        ("ulp", CORRECTNESS, "ex2::asm.approx", "worst error 1 ulp → 2 ulp on sm_90a (gpu)"),
        ("speed", REGRESSION, "rcp::asm.rn", "slower on sm_90a"),
        ("spill", REGRESSION, "f16x2_fma_clamp::asm.packed", "spilled bytes 0 → 32 on sm_100a"),
        ("target", CORRECTNESS, "sm_86", "expected target is missing"),
    ],
)
def test_each_planted_change_is_refused_with_its_code(base, accepted, planted, code, subject, words):
    *_, last = synthetic.nights(base, planted={planted: synthetic.PLANTED[planted]})
    decision = gate(last, accepted, dataclasses.replace(MODELS, speed=True))
    assert decision.code == code
    assert {f.subject for f in against(decision)} == {subject}
    assert any(words in f.text for f in against(decision))


def test_a_quiet_night_is_accepted_with_speed_gated(base, accepted):
    *_, last = synthetic.nights(base, 5, planted={})
    assert gate(last, accepted, dataclasses.replace(MODELS, speed=True)).code == ACCEPTED


def test_speed_is_gated_only_if_requested_but_always_stated(base, accepted):
    *_, last = synthetic.nights(base, planted={"speed": synthetic.PLANTED["speed"]})
    decision = gate(last, accepted, MODELS)
    assert decision.code == ACCEPTED
    assert any("slower" in f.text and "not gated" in f.text for f in decision.findings)


def test_correctness_weighs_more_than_speed(base, accepted):
    *_, last = synthetic.nights(base)
    assert gate(last, accepted, dataclasses.replace(MODELS, speed=True)).code == CORRECTNESS


def test_a_failure_is_refused_with_its_words(base, accepted):
    run = with_results(base, lambda r: synthetic.failing(r) if r.key.variant == "asm.rn" and r.total else r)
    decision = gate(run, accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert any(f.subject == "rcp::asm.rn" and "1 of 4096 codes differ" in f.text for f in decision.findings)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"results": []}, "the run has no results"),
        ({"end": None}, "cut short"),
    ],
)
def test_a_run_without_results_or_end_is_refused(base, accepted, change, words):
    decision = gate(dataclasses.replace(base, **change), accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert any(words in f.text for f in decision.findings)


def test_a_run_that_only_assembled_is_refused(base, accepted):
    run = with_results(base, lambda r: r if r.key.backend == "assembler" else None)
    decision = gate(run, accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert any("nothing was executed" in f.text for f in decision.findings)


def test_a_pass_on_a_model_alone_does_not_satisfy_the_gate(base, accepted):
    decision = gate(base, accepted)
    assert decision.code == CORRECTNESS
    assert {f.subject for f in against(decision)} == {"rcp::asm.approx", "ex2::asm.approx", "tanh::asm.approx"}
    assert all("sm_90a" not in f.text for f in against(decision))  # there the evidence comes from the device
    assert any("--allow-model accepts" in f.text for f in gate(base, accepted, MODELS).findings)


def test_evidence_from_hardware_covers_a_model_until_the_definition_changes(base, accepted):
    def emulated(r):
        return r if r.key.target == "sm_90a" and r.key.backend != "gpu" else None

    decision = gate(with_results(base, emulated), on(accepted, "sm_90a"))
    assert decision.code == ACCEPTED
    assert any("not checked here, backend gpu did not run" in f.text for f in decision.findings)

    def redefined(r):
        r = emulated(r)
        return r and dataclasses.replace(r, fingerprint={**r.fingerprint, "asm": "other"})

    decision = gate(with_results(base, redefined), on(accepted, "sm_90a"))
    assert decision.code == CORRECTNESS
    assert any("model alone" in f.text for f in against(decision))
    text = next(f.text for f in decision.findings if f.subject == "rcp::asm.rn" and "changed; verified again" in f.text)
    assert "asm changed" in text
    assert "effort quick" in text
    assert "not verified again on hardware: sm_90a" in text


@pytest.mark.parametrize(("part", "code"), [("asm", ACCEPTED), ("reference", CORRECTNESS), ("policy", CORRECTNESS)])
def test_changed_bits_of_a_changed_definition_are_accepted_unless_their_judge_changed_too(base, accepted, part, code):
    def redefined(r):
        if (r.key.case, r.key.variant) != ("rcp", "asm.rn") or not r.outputs_digest:
            return r
        moved = tuple(dataclasses.replace(b, digest="moved") for b in r.outputs_digest)
        return dataclasses.replace(r, outputs_digest=moved, fingerprint={**r.fingerprint, part: "other"})

    decision = gate(with_results(base, redefined), accepted, MODELS)
    assert decision.code == code
    words = "its definition changed" if part == "asm" else "what judges it changed too"
    assert any("output bits changed" in f.text and words in f.text for f in decision.findings)


def test_new_and_missing_results_are_decisions(base, accepted):
    without = with_results(base, lambda r: r if r.key.case != "prmt" else None)
    gone = gate(without, accepted, MODELS)
    assert [(f.subject, f.code) for f in against(gone)] == [("prmt", CORRECTNESS)]
    new = gate(base, baseline.accepted(without), MODELS)
    assert new.code == ACCEPTED
    assert any(f.subject == "prmt" and "new" in f.text for f in new.findings)


def test_a_run_on_a_gpu_alone_is_not_refused_for_variants_that_its_gpu_never_ran(base, accepted):
    alone = with_results(base, lambda r: r if r.key.backend == "gpu" else None)
    elsewhere = dataclasses.replace(
        accepted,
        results=[r for r in accepted.results if r.key.case != "rcp" or r.key.backend != "gpu"],
    )
    without = with_results(alone, lambda r: r if r.key.case != "rcp" else None)
    policy = dataclasses.replace(MODELS, targets=("sm_90a",))
    decision = gate(without, elsewhere, policy)
    assert decision.code == ACCEPTED
    assert any(f.subject == "rcp" and "not checked here" in f.text for f in decision.findings)

    (gone,) = against(gate(without, accepted, policy))  # a case that the GPU did run
    assert (gone.subject, gone.code) == ("rcp", CORRECTNESS)
    assert "in the baseline but not in the run" in gone.text


def test_required_backends_and_targets(base, accepted):
    run = with_results(base, lambda r: r if r.key.backend != "gpu" else None)
    assert gate(run, accepted, MODELS).code == ACCEPTED
    decision = gate(run, accepted, dataclasses.replace(MODELS, require=("gpu",)))
    assert [f.subject for f in against(decision)] == ["gpu"]
    decision = gate(base, accepted, dataclasses.replace(MODELS, targets=("sm_90a", "sm_130a")))
    assert [f.subject for f in against(decision)] == ["sm_130a"]


def test_registers_may_grow_a_little_and_spills_never(base, accepted):
    def grown(by):
        def change(r):
            more = {**r.resources, "registers": r.resources.get("registers", 0) + by}
            return dataclasses.replace(r, resources=more) if r.resources else r

        return change

    assert gate(with_results(base, grown(2)), accepted, MODELS).code == ACCEPTED
    assert gate(with_results(base, grown(9)), accepted, MODELS).code == REGRESSION
    assert gate(with_results(base, grown(-9)), accepted, MODELS).code == ACCEPTED


def test_a_baseline_is_read_back_as_it_was_written(base, accepted, tmp_path):
    files = baseline.write(base, tmp_path / "baseline")
    assert [f.name for f in files] == sorted(f"{name}.jsonl" for name in base.cases)
    found = baseline.load(tmp_path / "baseline")
    assert sorted(found.results, key=lambda r: r.key) == sorted(accepted.results, key=lambda r: r.key)
    assert gate(base, found, MODELS).code == ACCEPTED
    again = {f: f.read_text() for f in files}
    baseline.write(base, tmp_path / "baseline")
    assert {f: f.read_text() for f in files} == again


def test_a_baseline_holds_no_texts_and_no_messages(base, tmp_path):
    (path, *_) = baseline.write(base, tmp_path / "baseline")
    text = path.read_text()
    assert '"record":"text"' not in text
    assert "ld.param" not in text
    assert len(text) < 400_000


def test_accepting_removes_missing_results_unless_they_are_kept(base, tmp_path):
    folder = tmp_path / "baseline"
    baseline.write(base, folder)
    emulated = with_results(base, lambda r: r if (r.key.case, r.key.backend) == ("rcp", "emulator") else None)
    emulated = dataclasses.replace(emulated, timings=[])
    baseline.write(emulated, folder, keep=baseline.load(folder))
    assert len(baseline.load(folder).results) == len(base.results)
    baseline.write(emulated, folder)
    assert sorted(f.name for f in folder.iterdir()) == ["files.txt", "rcp.jsonl"]


def test_a_baseline_keeps_the_judged_share(base):
    """Otherwise the gate could not detect that the share shrinks, and would object to the accepted run itself."""

    def judged(share, unchecked):
        change = {"total": 100, "unchecked": unchecked, "judged": {"y": Share(100, share, 100, share)}}
        return with_results(base, lambda r: dataclasses.replace(r, **change) if r.verdict == "pass" else r)

    before = baseline.accepted(judged(90, 5))
    assert gate(judged(90, 5), before, MODELS).code == ACCEPTED
    for run, words in ((judged(10, 5), "ordinary codes of y that are not judged"), (judged(90, 6), "differ unchecked")):
        decision = gate(run, before, MODELS)
        assert decision.code == CORRECTNESS
        assert all(words in f.text for f in against(decision))


def test_a_missing_or_faulty_baseline_says_what_to_do(tmp_path):
    with pytest.raises(baseline.BaselineError, match=r"no baseline here.*--accept"):
        baseline.load(tmp_path / "none")
    (tmp_path / "rcp.jsonl").write_text("nonsense\nmore\n")
    with pytest.raises(baseline.BaselineError, match=r"rcp.jsonl:1: .*restore"):
        baseline.load(tmp_path)


def test_an_unknown_verdict_is_no_pass(base, accepted):
    """Reading records refuses an unknown verdict, and so must the gate."""
    run = with_results(base, lambda r: dataclasses.replace(r, verdict="past") if r.key.variant == "asm.rn" else r)
    decision = gate(run, accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert any("past on" in f.text for f in against(decision))


def test_many_results_of_one_change_of_verdict_are_one_finding(base, accepted):
    run = with_results(
        base,
        lambda r: dataclasses.replace(r, verdict="fail", expected_failure=True) if r.key.variant == "triton" else r,
    )
    subjects = [f.subject for f in against(gate(run, accepted, MODELS)) if "expected failure" in f.text]
    assert sorted(set(subjects)) == sorted(subjects)


def recompiled(run, variant, target):
    """The run with other PTX for a variant on a target, from the same source."""
    here = {"variant": variant, "target": target}

    def change(r):
        found = all(getattr(r.key, n) == v for n, v in here.items())
        return dataclasses.replace(r, body="other") if found else r

    return with_results(run, change)


def with_bodies(run):
    return with_results(run, lambda r: dataclasses.replace(r, body="as accepted"))


def test_other_ptx_of_the_same_source_is_reported(base):
    was = with_bodies(base)
    decision = gate(recompiled(was, "asm.rn", "sm_90a"), baseline.accepted(was), MODELS)
    findings = [f for f in decision.findings if "other PTX" in f.text]
    assert decision.code == ACCEPTED
    assert {f.subject for f in findings} >= {"rcp::asm.rn"}
    assert all("sm_90a" in f.text and "verified again" in f.text for f in findings)


def test_other_ptx_that_nothing_ran_again_is_refused(base):
    was = with_bodies(base)
    now = with_results(
        recompiled(was, "asm.rn", "sm_90a"),
        lambda r: None if r.key.backend != "assembler" and (r.key.variant, r.key.target) == ("asm.rn", "sm_90a") else r,
    )
    decision = gate(now, baseline.accepted(was), MODELS)
    assert any("not verified again on sm_90a" in f.text and f.code == CORRECTNESS for f in decision.findings)


def test_evidence_for_other_ptx_does_not_count(base):
    was = with_bodies(base)
    models = with_results(was, lambda r: dataclasses.replace(r, evidence="model") if r.verdict == "pass" else r)
    borrowed = gate(models, baseline.accepted(was))
    own = gate(recompiled(models, "asm.rn", "sm_90a"), baseline.accepted(was))

    def alone(decision):
        return {f.subject for f in decision.findings if "model alone on" in f.text and "sm_90a" in f.text}

    assert "rcp::asm.rn" not in alone(borrowed)
    assert "rcp::asm.rn" in alone(own)


def on_node(run, node):
    return dataclasses.replace(run, timings=[dataclasses.replace(t, node=node, device="") for t in run.timings])


def test_times_of_another_node_are_not_compared_and_fail_a_gate_on_speed(base, accepted):
    *_, slower = synthetic.nights(base, planted={"speed": synthetic.PLANTED["speed"]})
    policy = dataclasses.replace(MODELS, speed=True)
    assert gate(on_node(slower, "one/1a"), on_node(accepted, "one/2b"), policy).code == REGRESSION
    decision = gate(on_node(slower, "one/1a"), on_node(accepted, "other/1a"), policy)
    assert decision.code == REGRESSION
    assert any(
        "the variant was timed on node other, then on node one: not compared" in f.text for f in decision.findings
    )
    assert not any("slower" in f.text for f in decision.findings)


@pytest.mark.parametrize("form", [lambda run: run, digests.condensed])
def test_better_evidence_of_some_results_does_not_hide_a_model_behind_others(base, form):
    """One pack of a variant uses an approximate instruction, and another does not."""
    passing = [r for r in base.results if r.verdict == "pass" and r.key.backend == "emulator"]
    key = next(r.key for r in passing if sum(o.key.item == r.key.item for o in passing) > 1)

    def mixed(r):
        if (r.key.case, r.key.variant, r.key.target) != (key.case, key.variant, key.target):
            return r
        if r.key.backend == "gpu":
            return None
        return (
            dataclasses.replace(r, evidence="model" if r.key == key else "specification") if r.verdict == "pass" else r
        )

    now = with_results(base, mixed)
    decision = gate(form(now), form(now))
    mine = [f.text for f in against(decision) if f.subject == f"{key.case}::{key.variant}"]
    assert any("model alone" in text and key.target in text for text in mine)


def test_a_counterexample_of_a_solver_is_refused_and_a_proof_is_no_evidence(base, accepted):
    proof = Proof("rcp", "asm.rn", "sm_90a", "proved", packs=(1,), program="ab", rules="cd", solver="bitwuzla 0.9.1")
    models = with_results(base, lambda r: dataclasses.replace(r, evidence="model") if r.verdict == "pass" else r)
    proved = dataclasses.replace(models, proofs=[proof])
    assert gate(models, accepted).code == gate(proved, accepted).code == CORRECTNESS
    assert [f.text for f in gate(models, accepted).findings] == [f.text for f in gate(proved, accepted).findings]
    wrong = dataclasses.replace(proof, verdict="counterexample", words="y: expected 1, got 2", packs=())
    decision = gate(dataclasses.replace(base, proofs=[wrong]), accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert [(f.subject, f.text) for f in against(decision)] == [
        ("rcp::asm.rn", "a solver found an input on which it is wrong on sm_90a: y: expected 1, got 2")
    ]
    unsettled = dataclasses.replace(wrong, verdict="not settled", words="time: over")
    assert gate(dataclasses.replace(base, proofs=[unsettled]), accepted, MODELS).code == ACCEPTED


def test_a_proof_that_is_lost_is_a_remark(base, accepted):
    proof = Proof("rcp", "asm.rn", "sm_90a", "proved", packs=(1,), program="ab", rules="cd", solver="bitwuzla 0.9.1")
    lost = dataclasses.replace(proof, verdict="not settled", words="time: over", packs=(), program="", rules="")
    held = dataclasses.replace(accepted, proofs=[proof])
    for proofs, remarks in (([lost], 1), ([proof], 0), ([], 0), ([dataclasses.replace(lost, target="sm_80")], 0)):
        decision = gate(dataclasses.replace(base, proofs=proofs), held, MODELS)
        assert decision.code == ACCEPTED
        found = [f for f in decision.findings if "proved for all inputs in the baseline" in f.text]
        assert [f.subject for f in found] == ["rcp::asm.rn"] * remarks


def test_a_baseline_keeps_what_is_proved(base, tmp_path):
    """Of a case without results, too; a proof stays until the same subject is asked about again."""
    proof = Proof("rcp", "asm.rn", "sm_90a", "proved", packs=(1,), program="ab", rules="cd", solver="bitwuzla 0.9.1")
    alone = dataclasses.replace(proof, case="proved_alone", tried=("floats: unsat",))
    baseline.write(dataclasses.replace(base, proofs=[proof, alone]), tmp_path)
    held = baseline.load(tmp_path)
    assert sorted(held.proofs, key=lambda p: p.case) == [dataclasses.replace(alone, tried=()), proof]
    lost = dataclasses.replace(proof, verdict="not settled", words="time: over", packs=(), program="", rules="")
    baseline.write(dataclasses.replace(base, proofs=[lost]), tmp_path, keep=held)
    assert [p.case for p in baseline.load(tmp_path).proofs] == ["proved_alone"]
