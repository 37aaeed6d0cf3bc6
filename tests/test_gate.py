"""The gate: the right exit code for every planted change, and a stated decision for everything else."""

import dataclasses
import json

import pytest

from harness import baseline
from harness.cli import main
from harness.gate import ACCEPTED, CORRECTNESS, REGRESSION, Policy, gate
from harness.records import End, Share, Writer
from tests.reports import synthetic
from tests.sealed import sealed, unsealed

MODELS = Policy(allow_model=True)


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, per_cell=9)


@pytest.fixture(scope="module")
def accepted(base):
    return baseline.accepted(base)


def with_results(run, change):
    """The run with each result changed, or left out where the change gives None."""
    changed = [change(r) for r in run.results]
    return synthetic.finished(dataclasses.replace(run, results=[r for r in changed if r is not None]))


def on(run, target):
    return with_results(run, lambda r: r if r.key.target == target else None)


def against(decision):
    return [f for f in decision.findings if f.code != ACCEPTED]


def test_the_run_that_was_accepted_is_accepted(base, accepted):
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


def test_speed_is_gated_only_if_asked_but_stated_always(base, accepted):
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
        ({"results": []}, "the run holds no result"),
        ({"end": None}, "cut short"),
    ],
)
def test_a_run_that_came_to_nothing_is_refused(base, accepted, change, words):
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
    assert all("sm_90a" not in f.text for f in against(decision))  # there the device vouches for it
    assert any("let pass as asked" in f.text for f in gate(base, accepted, MODELS).findings)


def test_hardware_in_the_baseline_vouches_for_a_model_until_the_definition_changes(base, accepted):
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


def test_changed_bits_of_a_changed_definition_are_stated_and_accepted(base, accepted):
    def redefined(r):
        if (r.key.case, r.key.variant) != ("rcp", "asm.rn") or not r.outputs_digest:
            return r
        moved = tuple(dataclasses.replace(b, digest="moved") for b in r.outputs_digest)
        return dataclasses.replace(r, outputs_digest=moved, fingerprint={**r.fingerprint, "reference": "other"})

    decision = gate(with_results(base, redefined), accepted, MODELS)
    assert decision.code == ACCEPTED
    assert any("output bits changed" in f.text and "its definition changed" in f.text for f in decision.findings)


def test_what_is_new_and_what_is_gone_are_decisions(base, accepted):
    without = with_results(base, lambda r: r if r.key.case != "prmt" else None)
    gone = gate(without, accepted, MODELS)
    assert [(f.subject, f.code) for f in against(gone)] == [("prmt", CORRECTNESS)]
    new = gate(base, baseline.accepted(without), MODELS)
    assert new.code == ACCEPTED
    assert any(f.subject == "prmt" and "new" in f.text for f in new.findings)


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


def test_accepting_drops_what_is_gone_unless_it_is_kept(base, tmp_path):
    folder = tmp_path / "baseline"
    baseline.write(base, folder)
    emulated = with_results(base, lambda r: r if (r.key.case, r.key.backend) == ("rcp", "emulator") else None)
    emulated = dataclasses.replace(emulated, timings=[])
    baseline.write(emulated, folder, keep=baseline.load(folder))
    assert len(baseline.load(folder).results) == len(base.results)
    baseline.write(emulated, folder)
    assert [f.name for f in folder.iterdir()] == ["rcp.jsonl"]


def test_a_baseline_keeps_what_share_was_judged(base):
    """Else nobody sees it shrink, and codes that differ unchecked look new in the very run that was accepted."""

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


def stored(run, path):
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.results, *run.timings, *([run.end] if run.end else []))
    writer.close()
    return path


def resealed(change):
    """A change of one line, by number, whose checksums are right again."""

    def changed(text, number=1):
        lines = unsealed(text.encode())
        lines[number] = change(lines[number])
        return sealed(lines).decode()

    return changed


BAD_DAYS = {
    "no file": (None, 2, "No such file"),
    "an empty file": (lambda t: "", 2, "a records file begins with a run record"),
    "a line that is no JSON": (resealed(lambda x: x[:99] + b"}"), 2, "run.jsonl:2: not JSON"),
    "a newer schema": (
        lambda t: t.replace('"schema":2', '"schema":9', 1),
        2,
        "run.jsonl:1: schema 9, and this",
    ),
    "a field nobody knows": (resealed(lambda x: b'{"colour":1,' + x[1:]), 2, "unknown field 'colour'"),
    "a changed line": (lambda t: t.replace('"pass"', '"past"', 1), 2, "the checksum is wrong"),
    "killed in mid-write": (lambda t: t[: t.rindex('{"record":"end"') - 40], 1, "the run was cut short"),
    "killed before its end": (lambda t: t[: t.rindex('{"record":"end"')], 1, "the run was cut short"),
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_records_that_cannot_be_trusted_are_refused_with_a_sentence(small, tmp_path, capsys, day):
    change, code, words = BAD_DAYS[day]
    run = tmp_path / "run.jsonl"
    if change is not None:
        run.write_text(change(stored(small, run).read_text()))
    baseline.write(small, tmp_path / "baseline")
    found, text = said(capsys, run, tmp_path / "baseline")
    assert found == code
    assert words in text


@pytest.fixture(scope="module")
def small():
    return synthetic.catalogue(2, per_cell=6, targets=("sm_90a", "sm_100a"))


def said(capsys, run, folder, *more):
    """The exit code and everything printed."""
    code = main(["gate", str(run), "--baseline", str(folder), "--allow-model", *more])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_baseline_that_lost_its_end_is_refused(small, tmp_path, capsys):
    run = stored(small, tmp_path / "run.jsonl")
    (path, *_) = baseline.write(small, tmp_path / "baseline")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-5]))
    code, text = said(capsys, run, tmp_path / "baseline")
    assert code == 2
    assert "the end is missing; restore the file from git" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": None}, "not made the baseline: the run was cut short"),
        (
            {"results": [], "end": End("", 1.0, {})},
            "not made the baseline: nothing ran: the run holds no result",
        ),
    ],
)
def test_half_a_run_is_made_no_baseline(small, tmp_path, capsys, change, words):
    folder = tmp_path / "baseline"
    before = {p: p.read_text() for p in baseline.write(small, folder)}
    run = stored(dataclasses.replace(small, **change), tmp_path / "run.jsonl")
    code, text = said(capsys, run, folder, "--accept")
    assert code == 1
    assert words in text
    assert {p: p.read_text() for p in folder.iterdir()} == before


def test_what_is_gone_is_accepted_as_gone_only_when_asked(small, tmp_path, capsys):
    folder = tmp_path / "baseline"
    baseline.write(small, folder)
    less = with_results(small, lambda r: r if r.key.variant != "triton" else None)
    run = stored(less, tmp_path / "run.jsonl")
    assert said(capsys, run, folder)[0] == CORRECTNESS
    assert said(capsys, run, folder, "--accept")[0] == 0
    assert said(capsys, run, folder)[0] == CORRECTNESS
    assert said(capsys, run, folder, "--accept", "--replace")[0] == 0
    assert said(capsys, run, folder)[0] == ACCEPTED


def wrong_on_the_gpu(run):
    return with_results(run, lambda r: synthetic.failing(r) if r.key.backend == "gpu" else r)


def test_failures_are_accepted_only_where_that_is_asked_for(small, tmp_path, capsys):
    run, folder = stored(wrong_on_the_gpu(small), tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = said(capsys, run, folder, "--accept")
    assert code == 1
    assert "rcp::asm.rn: fail on sm_90a, 3 results: 1 of 4096 codes differ" in text
    assert "accept the run with --accept-failures, and the baseline lists them" in text
    assert not folder.exists()


def test_accepted_failures_are_listed_in_the_baseline_and_refused_all_the_same(small, tmp_path, capsys):
    run, folder = stored(wrong_on_the_gpu(small), tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = said(capsys, run, folder, "--accept", "--accept-failures")
    assert code == 0
    assert "accepted, and listed in the baseline: rcp::asm.rn: fail on sm_90a, 3 results: 1 of 4096 codes" in text
    assert "the gate refuses these all the same" in text
    lines = [json.loads(line) for line in (folder / "rcp.jsonl").read_text().splitlines()]
    listed = [line for line in lines if line.get("verdict") == "fail"]
    assert len(listed) == lines[-1]["verdicts"]["fail"] == 12
    assert {line["words"] for line in listed} == {"1 of 4096 codes differ: +1 ulp"}
    code, text = said(capsys, run, folder)
    assert code == CORRECTNESS
    assert "✗ rcp::asm.rn: fail on sm_90a" in text
    assert "· rcp::asm.rn: accepted in the baseline though it is no pass: fail on sm_90a" in text


@pytest.mark.parametrize("verdict", ["error", "unsupported"])
def test_what_is_no_pass_any_more_is_asked_for_too(small, tmp_path, capsys, verdict):
    folder = tmp_path / "baseline"
    before = {p: p.read_text() for p in baseline.write(small, folder)}

    def change(r):
        other = {"verdict": verdict, "evidence": "none", "words": "ptxas: nothing doing", "outputs_digest": ()}
        return dataclasses.replace(r, **other) if (r.key.variant, r.key.target) == ("asm.rn", "sm_90a") else r

    run = stored(with_results(small, change), tmp_path / "run.jsonl")
    code, text = said(capsys, run, folder, "--accept")
    assert code == 1
    assert "rcp::asm.rn: " in text
    assert f"{verdict} on sm_90a" in text
    assert {p: p.read_text() for p in folder.iterdir()} == before
    assert said(capsys, run, folder, "--accept", "--accept-failures")[0] == 0


def test_a_run_that_was_cut_short_is_refused_whatever_is_asked(small, tmp_path, capsys):
    run = stored(dataclasses.replace(wrong_on_the_gpu(small), end=None), tmp_path / "run.jsonl")
    code, text = said(capsys, run, tmp_path / "baseline", "--accept", "--accept-failures")
    assert code == 1
    assert "not made the baseline: the run was cut short" in text


def test_expected_failures_are_accepted_and_named(small, tmp_path, capsys):
    declared = with_results(
        small,
        lambda r: dataclasses.replace(synthetic.failing(r), expected_failure=True) if r.key.backend == "gpu" else r,
    )
    code, text = said(capsys, stored(declared, tmp_path / "run.jsonl"), tmp_path / "baseline", "--accept")
    assert code == 0
    assert "8 variants fail as their cases declare: ex2::asm.approx, ex2::asm.packed" in text


def test_the_gate_says_on_what_evidence_results_pass(small, tmp_path, capsys):
    run, folder = stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = said(capsys, run, folder, "--accept")
    words = "96 passes (24 hardware, 10 confirmed, 20 specification, 10 model, 32 assembled)"
    assert code == 0
    assert f"{words}: a model alone satisfies no gate without --allow-model" in text
    assert said(capsys, run, folder)[1].splitlines()[-1].endswith(words)


def test_what_could_not_run_here_takes_nothing_from_the_baseline(small, tmp_path, capsys):
    folder = tmp_path / "baseline"
    baseline.write(small, folder)
    without = with_results(
        small,
        lambda r: (
            dataclasses.replace(r, verdict="not run", outputs_digest=(), words="no GPU")
            if r.key.backend == "gpu"
            else r
        ),
    )
    assert said(capsys, stored(without, tmp_path / "run.jsonl"), folder, "--accept")[0] == 0
    assert {r.verdict for r in baseline.load(folder).results if r.key.backend == "gpu"} == {"pass"}


@pytest.mark.parametrize("option", ["--accept-failures", "--replace"])
def test_options_of_accept_alone_are_refused_alone(small, tmp_path, capsys, option):
    code, text = said(capsys, stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline", option)
    assert code == 2
    assert "add --accept" in text


def test_a_verdict_that_nobody_knows_is_no_pass(base, accepted):
    """Reading refuses it; the gate would too."""
    run = with_results(base, lambda r: dataclasses.replace(r, verdict="past") if r.key.variant == "asm.rn" else r)
    decision = gate(run, accepted, MODELS)
    assert decision.code == CORRECTNESS
    assert any("past on" in f.text for f in against(decision))


def test_a_broken_baseline_is_replaced_where_that_is_asked_for(small, tmp_path, capsys):
    run, folder = stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline"
    folder.mkdir()
    (folder / "rcp.jsonl").write_text("nonsense\n")
    code, text = said(capsys, run, folder, "--accept")
    assert code == 2
    assert "make all of the baseline again with --accept --replace" in text
    code, text = said(capsys, run, folder, "--accept", "--replace")
    assert code == 0
    assert "cannot be read, so nothing is compared with it" in text
    assert said(capsys, run, folder)[0] == ACCEPTED


def test_a_name_too_long_for_a_file_is_cut_and_stays_its_own(small, tmp_path):
    def named(name):
        return [dataclasses.replace(r, key=dataclasses.replace(r.key, case=name)) for r in small.results[:3]]

    names = ["x" * 400 + end for end in "ab"]
    run = dataclasses.replace(small, results=[r for n in names for r in named(n)], timings=[])
    assert len(baseline.write(run, tmp_path / "baseline")) == 2
    assert {r.key.case for r in baseline.load(tmp_path / "baseline").results} == set(names)


def test_many_results_of_one_change_of_verdict_are_one_finding(base, accepted):
    run = with_results(
        base,
        lambda r: dataclasses.replace(r, verdict="fail", expected_failure=True) if r.key.variant == "triton" else r,
    )
    subjects = [f.subject for f in against(gate(run, accepted, MODELS)) if "expected failure" in f.text]
    assert sorted(set(subjects)) == sorted(subjects)


def recompiled(run, variant, target):
    """The run with other PTX for a variant on a target, written as before."""
    here = {"variant": variant, "target": target}

    def change(r):
        found = all(getattr(r.key, n) == v for n, v in here.items())
        return dataclasses.replace(r, body="other") if found else r

    return with_results(run, change)


def with_bodies(run):
    return with_results(run, lambda r: dataclasses.replace(r, body="as accepted"))


def test_other_ptx_of_the_same_source_is_told(base):
    was = with_bodies(base)
    decision = gate(recompiled(was, "asm.rn", "sm_90a"), baseline.accepted(was), MODELS)
    told = [f for f in decision.findings if "other PTX" in f.text]
    assert decision.code == ACCEPTED
    assert {f.subject for f in told} >= {"rcp::asm.rn"}
    assert all("sm_90a" in f.text and "verified again" in f.text for f in told)


def test_other_ptx_that_nothing_ran_again_is_refused(base):
    was = with_bodies(base)
    now = with_results(
        recompiled(was, "asm.rn", "sm_90a"),
        lambda r: None if r.key.backend != "assembler" and (r.key.variant, r.key.target) == ("asm.rn", "sm_90a") else r,
    )
    decision = gate(now, baseline.accepted(was), MODELS)
    assert any("not verified again on sm_90a" in f.text and f.code == CORRECTNESS for f in decision.findings)


def test_evidence_for_other_ptx_is_not_borrowed(base):
    was = with_bodies(base)
    models = with_results(was, lambda r: dataclasses.replace(r, evidence="model") if r.verdict == "pass" else r)
    borrowed = gate(models, baseline.accepted(was))
    own = gate(recompiled(models, "asm.rn", "sm_90a"), baseline.accepted(was))

    def alone(decision):
        return {f.subject for f in decision.findings if "model alone on" in f.text and "sm_90a" in f.text}

    assert "rcp::asm.rn" not in alone(borrowed)
    assert "rcp::asm.rn" in alone(own)
