"""`ptxdiff gate` on files: invalid records, making a baseline, and its options."""

import dataclasses
import json

import pytest

from ptxdiff.cli import main
from ptxdiff.gating import baseline, digests
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS
from ptxdiff.records import End, Writer
from tests.support.reports import synthetic
from tests.support.reports.synthetic import with_results
from tests.support.sealed import sealed, unsealed


def stored(run, path):
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.results, *run.timings, *([run.end] if run.end else []))
    writer.close()
    return path


def resealed(change):
    """A change of the records: one line, given by its number, with corrected checksums."""

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
        lambda t: t.replace('"schema":3', '"schema":9', 1),
        2,
        "run.jsonl:1: schema 9, and this",
    ),
    "a field nobody knows": (resealed(lambda x: b'{"colour":1,' + x[1:]), 2, "unknown field 'colour'"),
    "a changed line": (lambda t: t.replace('"pass"', '"past"', 1), 2, "the checksum is wrong"),
    "killed in mid-write": (lambda t: t[: t.rindex('{"record":"end"') - 40], 1, "the run was cut short"),
    "killed before its end": (lambda t: t[: t.rindex('{"record":"end"')], 1, "the run was cut short"),
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_invalid_records_are_refused_with_a_sentence(small, tmp_path, capsys, day):
    change, code, words = BAD_DAYS[day]
    run = tmp_path / "run.jsonl"
    if change is not None:
        run.write_text(change(stored(small, run).read_text()))
    baseline.write(small, tmp_path / "baseline")
    found, text = output_of(capsys, run, tmp_path / "baseline")
    assert found == code
    assert words in text


@pytest.fixture(scope="module")
def small():
    return synthetic.catalogue(2, per_cell=6, targets=("sm_90a", "sm_100a"))


def output_of(capsys, run, folder, *more):
    """The exit code and the output."""
    code = main(["gate", str(run), "--baseline", str(folder), "--allow-model", *more])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_baseline_that_lost_its_end_is_refused(small, tmp_path, capsys):
    run = stored(small, tmp_path / "run.jsonl")
    (path, *_) = baseline.write(small, tmp_path / "baseline")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-5]))
    code, text = output_of(capsys, run, tmp_path / "baseline")
    assert code == 2
    assert "the end is missing; restore the file from git" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"end": None}, "the baseline is unchanged: the run was cut short"),
        (
            {"results": [], "end": End("", 1.0, {})},
            "the baseline is unchanged: nothing ran: the run has no results",
        ),
    ],
)
def test_an_incomplete_run_does_not_become_the_baseline(small, tmp_path, capsys, change, words):
    folder = tmp_path / "baseline"
    baseline.write(small, folder)
    before = {p: p.read_text() for p in folder.iterdir()}
    run = stored(dataclasses.replace(small, **change), tmp_path / "run.jsonl")
    code, text = output_of(capsys, run, folder, "--accept")
    assert code == 1
    assert words in text
    assert {p: p.read_text() for p in folder.iterdir()} == before


def test_missing_results_leave_the_baseline_only_with_replace(small, tmp_path, capsys):
    folder = tmp_path / "baseline"
    baseline.write(small, folder)
    less = with_results(small, lambda r: r if r.key.variant != "triton" else None)
    run = stored(less, tmp_path / "run.jsonl")
    assert output_of(capsys, run, folder)[0] == CORRECTNESS
    assert output_of(capsys, run, folder, "--accept")[0] == 0
    assert output_of(capsys, run, folder)[0] == CORRECTNESS
    assert output_of(capsys, run, folder, "--accept", "--replace")[0] == 0
    assert output_of(capsys, run, folder)[0] == ACCEPTED


def wrong_on_the_gpu(run):
    return with_results(run, lambda r: synthetic.failing(r) if r.key.backend == "gpu" else r)


def test_failures_are_accepted_only_if_requested(small, tmp_path, capsys):
    run, folder = stored(wrong_on_the_gpu(small), tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = output_of(capsys, run, folder, "--accept")
    assert code == 1
    assert "rcp::asm.rn: fail on sm_90a, 3 results: 1 of 4096 codes differ" in text
    assert "accept the run with --accept-failures, and the baseline lists them" in text
    assert not folder.exists()


def test_accepted_failures_are_listed_in_the_baseline_and_still_refused(small, tmp_path, capsys):
    run, folder = stored(wrong_on_the_gpu(small), tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = output_of(capsys, run, folder, "--accept", "--accept-failures")
    assert code == 0
    assert "accepted, and listed in the baseline: rcp::asm.rn: fail on sm_90a, 3 results: 1 of 4096 codes" in text
    assert "the gate still refuses these" in text
    lines = [json.loads(line) for line in (folder / "rcp.jsonl").read_text().splitlines()]
    listed = [line for line in lines if line.get("verdict") == "fail"]
    assert len(listed) == lines[-1]["verdicts"]["fail"] == 12
    assert {line["words"] for line in listed} == {"1 of 4096 codes differ: +1 ulp"}
    code, text = output_of(capsys, run, folder)
    assert code == CORRECTNESS
    assert "✗ rcp::asm.rn: fail on sm_90a" in text
    assert "· rcp::asm.rn: accepted in the baseline although no pass: fail on sm_90a" in text


@pytest.mark.parametrize("verdict", ["error", "unsupported"])
def test_a_lost_pass_needs_accept_failures_too(small, tmp_path, capsys, verdict):
    folder = tmp_path / "baseline"
    baseline.write(small, folder)
    before = {p: p.read_text() for p in folder.iterdir()}

    def change(r):
        other = {"verdict": verdict, "evidence": "none", "words": "ptxas: nothing doing", "outputs_digest": ()}
        return dataclasses.replace(r, **other) if (r.key.variant, r.key.target) == ("asm.rn", "sm_90a") else r

    run = stored(with_results(small, change), tmp_path / "run.jsonl")
    code, text = output_of(capsys, run, folder, "--accept")
    assert code == 1
    assert "rcp::asm.rn: " in text
    assert f"{verdict} on sm_90a" in text
    assert {p: p.read_text() for p in folder.iterdir()} == before
    assert output_of(capsys, run, folder, "--accept", "--accept-failures")[0] == 0


def test_a_run_that_was_cut_short_is_refused_with_all_options(small, tmp_path, capsys):
    run = stored(dataclasses.replace(wrong_on_the_gpu(small), end=None), tmp_path / "run.jsonl")
    code, text = output_of(capsys, run, tmp_path / "baseline", "--accept", "--accept-failures")
    assert code == 1
    assert "the baseline is unchanged: the run was cut short" in text


def test_expected_failures_are_accepted_and_named(small, tmp_path, capsys):
    declared = with_results(
        small,
        lambda r: dataclasses.replace(synthetic.failing(r), expected_failure=True) if r.key.backend == "gpu" else r,
    )
    code, text = output_of(capsys, stored(declared, tmp_path / "run.jsonl"), tmp_path / "baseline", "--accept")
    assert code == 0
    assert "8 variants fail as their cases declare: ex2::asm.approx, ex2::asm.packed" in text


def test_the_gate_states_the_evidence_of_passes(small, tmp_path, capsys):
    run, folder = stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline"
    code, text = output_of(capsys, run, folder, "--accept")
    words = "96 passes (24 hardware, 10 confirmed, 20 specification, 10 model, 32 assembled)"
    assert code == 0
    assert f"{words}: a model alone satisfies no gate without --allow-model" in text
    assert output_of(capsys, run, folder)[1].splitlines()[-1].endswith(words)


def test_results_that_could_not_run_here_stay_in_the_baseline(small, tmp_path, capsys):
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
    assert output_of(capsys, stored(without, tmp_path / "run.jsonl"), folder, "--accept")[0] == 0
    assert {r.verdict for r in baseline.load(folder).results if r.key.backend == "gpu"} == {"pass"}


@pytest.mark.parametrize("option", ["--accept-failures", "--replace"])
def test_options_of_accept_are_refused_without_accept(small, tmp_path, capsys, option):
    code, text = output_of(capsys, stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline", option)
    assert code == 2
    assert "add --accept" in text


def test_a_broken_baseline_is_replaced_if_requested(small, tmp_path, capsys):
    run, folder = stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline"
    folder.mkdir()
    (folder / "rcp.jsonl").write_text("nonsense\n")
    code, text = output_of(capsys, run, folder, "--accept")
    assert code == 2
    assert "make the whole baseline again with --accept --replace" in text
    code, text = output_of(capsys, run, folder, "--accept", "--replace")
    assert code == 0
    assert "cannot be read, so nothing is compared with it" in text
    assert output_of(capsys, run, folder)[0] == ACCEPTED


def test_a_name_too_long_for_a_file_is_cut_and_stays_unique(small, tmp_path):
    def named(name):
        return [dataclasses.replace(r, key=dataclasses.replace(r.key, case=name)) for r in small.results[:3]]

    names = ["x" * 400 + end for end in "ab"]
    run = dataclasses.replace(small, results=[r for n in names for r in named(n)], timings=[])
    assert len(baseline.write(run, tmp_path / "baseline")) == 2
    assert {r.key.case for r in baseline.load(tmp_path / "baseline").results} == set(names)


def test_a_baseline_and_a_replay_become_no_baseline(small, tmp_path, capsys):
    baseline.write(with_results(small, lambda r: r if r.key.case == "rcp" else None), tmp_path / "one")
    code, text = output_of(capsys, tmp_path / "one" / "rcp.jsonl", tmp_path / "new", "--accept")
    assert code == 1
    assert "the baseline is unchanged: this is a baseline" in text
    replay = dataclasses.replace(small.run, arguments=("cases", "--ptx-replay=pack=1"))
    run = stored(dataclasses.replace(small, run=replay), tmp_path / "run.jsonl")
    code, text = output_of(capsys, run, tmp_path / "new", "--accept")
    assert code == 1
    assert "the baseline is unchanged: the run repeats one failure" in text
    assert not (tmp_path / "new").exists()


def test_a_folder_of_a_baseline_is_no_folder_of_runs(small, tmp_path, capsys):
    baseline.write(small, tmp_path / "accepted")
    code, text = output_of(capsys, tmp_path / "accepted", tmp_path / "accepted")
    assert code == 2
    assert "belongs to a baseline" in text


@pytest.mark.parametrize("verb", ["gate", "report"])
def test_a_baseline_of_digests_given_as_a_run_is_named_as_one(small, tmp_path, capsys, verb):
    """The folder, which has no records, and the file that stands in for its newest."""
    folder = tmp_path / "baseline"
    digests.write(digests.condensed(small), folder)
    for given in (folder, next(folder.glob("*.jsonl"))):
        code = main([verb, str(given), *(["--baseline", str(folder)] if verb == "gate" else [])])
        text = capsys.readouterr().err
        assert code == 2
        assert f"{next(folder.glob('*.jsonl'))}:1: a file of a baseline, with digests of accepted results" in text
        assert "it is no run" in text
        assert "ptxdiff gate FILE --baseline FOLDER" in text


def test_accepting_says_that_the_effort_is_another(small, tmp_path, capsys):
    full = dataclasses.replace(small, run=dataclasses.replace(small.run, effort="full"))
    baseline.write(full, tmp_path / "baseline")
    code, text = output_of(capsys, stored(small, tmp_path / "run.jsonl"), tmp_path / "baseline", "--accept")
    assert code == 0
    assert "effort full in the baseline, quick here" in text
