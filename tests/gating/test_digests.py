"""A baseline of digests refuses every planted change that a baseline of full records refuses, and names no machine."""

import dataclasses
import json
import re

import pytest

from ptxdiff.cli import main
from ptxdiff.gating import baseline, digests
from ptxdiff.gating.baseline import BaselineError
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, REGRESSION, Policy
from ptxdiff.records import DECLARED, Block, Writer
from tests.support.reports import synthetic
from tests.support.reports.synthetic import with_results

MODELS = Policy(allow_model=True)


@pytest.fixture(scope="module")
def base():
    return synthetic.catalogue(8, ("sm_80", "sm_86", "sm_90a", "sm_100a"), per_cell=6)


@pytest.fixture(scope="module")
def folder(base, tmp_path_factory):
    found = tmp_path_factory.mktemp("digests")
    digests.write(digests.condensed(base), found)
    return found


def decided(run, folder):
    return digests.decided(run, digests.load(folder), MODELS)


def one(run, change):
    """The run with its first executed pass changed."""
    chosen = next(
        r.key for r in run.results if r.verdict == "pass" and r.outputs_digest and r.key.backend != "assembler"
    )
    return with_results(run, lambda r: change(r) if r.key == chosen else r)


def test_a_baseline_is_read_as_it_was_written(base, folder):
    made = digests.condensed(base)
    kept = {r.key: r for r in digests.load(folder).results}
    for r in made.results:
        if r.verdict != "not run":  # a target on which nothing ran still has its variant's definition
            defined = r.fingerprint or kept[r.key].fingerprint
            assert kept.pop(r.key) == dataclasses.replace(r, words="", fingerprint=defined)
    assert not kept


def test_the_accepted_run_itself_is_accepted(base, folder):
    decision = decided(base, folder)
    assert decision.code == ACCEPTED
    assert decision.checked > 0


@pytest.mark.parametrize(
    ("planted", "code", "words"),
    [
        ("bits", CORRECTNESS, "output bits changed on sm_90a (gpu)"),
        ("spill", REGRESSION, "spilled bytes 0 → 32 on sm_100a"),
        ("target", CORRECTNESS, "expected target is missing"),
    ],
)
def test_each_planted_change_is_refused_with_its_code(base, folder, planted, code, words):
    *_, last = synthetic.nights(base, planted={planted: synthetic.PLANTED[planted]})
    decision = decided(last, folder)
    assert decision.code == code
    assert any(words in f.text for f in decision.findings if f.code)


def test_changed_bits_of_one_result_of_many_are_detected(base, folder):
    def flipped(r):
        first, *others = r.outputs_digest
        return dataclasses.replace(r, outputs_digest=(Block(first.first, first.count, "0" * 32), *others))

    assert decided(one(base, flipped), folder).code == CORRECTNESS


def test_other_inputs_are_refused_and_do_not_count_as_equal_bits(base, folder):
    run = with_results(base, lambda r: dataclasses.replace(r, inputs_digest=f"{r.inputs_digest}x"))
    decision = decided(run, folder)
    assert decision.code == CORRECTNESS
    assert any("in the baseline but not in the run" in f.text for f in decision.findings)


def test_sets_that_are_swept_are_told_apart(base):
    """They have no digest of their inputs. As one row, only the smaller of two sets would count."""
    chosen = [r for r in base.results if r.verdict == "pass" and r.outputs_digest and r.key.backend == "gpu"]
    item = [r for r in chosen if r.key.item == chosen[0].key.item][:2]
    swept = [
        dataclasses.replace(
            r, inputs_digest="", total=total, judged={}, unchecked=0, key=dataclasses.replace(r.key, input_set=name)
        )
        for r, name, total in zip(item, ("words-16/1", "constants-16/2"), (1000, 10), strict=True)
    ]
    names = {}
    for results, total, rows in ((swept, 1010, 2), (swept[:1], 1000, 1)):
        whole, *inputs = digests.condensed(dataclasses.replace(base, results=results)).results
        assert (whole.total, len(inputs)) == (total, rows)
        names[rows] = {r.key.input_set for r in inputs}
    assert names[1] < names[2]
    for other in (dataclasses.replace(swept[0], total=999), dataclasses.replace(swept[0], seed=swept[0].seed + 1)):
        _, row = digests.condensed(dataclasses.replace(base, results=[other])).results
        assert row.key.input_set not in names[1], "other inputs, whose bits are not compared"


def test_a_failure_among_many_passes_is_the_items_verdict(base, folder):
    decision = decided(one(base, synthetic.failing), folder)
    assert decision.code == CORRECTNESS
    assert any(f.text.startswith("fail on") for f in decision.findings)


def test_another_ptx_body_and_another_definition_are_reported(base, folder):
    run = with_results(base, lambda r: dataclasses.replace(r, body="f" * 64) if r.key.backend == "assembler" else r)
    changed = [f for f in decided(run, folder).findings if "compiles to other PTX" in f.text]
    assert bool(changed) == any(r.body for r in base.results if r.key.backend == "assembler")
    run = with_results(base, lambda r: dataclasses.replace(r, fingerprint={"asm": "0" * 16}))
    assert any(f.text.startswith("definition, reference changed") for f in decided(run, folder).findings)


def test_the_files_name_no_machine_and_are_small(base, folder):
    text = "".join(p.read_text() for p in folder.glob("*.jsonl"))
    for word in ("platform", "host_cpus", "uuid", "revision", "started", base.run.run_id):
        assert word not in text
    full = folder.with_name("full")
    baseline.write(base, full)
    assert sum(p.stat().st_size for p in full.glob("*")) > 5 * len(text)


@pytest.mark.parametrize("damage", ["a changed verdict", "a lost line", "a lost end"])
def test_a_damaged_file_is_refused(base, tmp_path, damage):
    path, *_ = digests.write(digests.condensed(base), tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    if damage == "a changed verdict":
        lines[1] = lines[1].replace(b'"pass"', b'"past"', 1)
    else:
        del lines[1 if damage == "a lost line" else -1]
    path.write_bytes(b"".join(lines))
    with pytest.raises(BaselineError, match=r"restore the file from git"):
        digests.load(tmp_path)


def test_results_of_another_machine_are_kept(base, tmp_path):
    gpu = with_results(base, lambda r: r if r.key.backend == "gpu" else None)
    others = with_results(base, lambda r: None if r.key.backend == "gpu" else r)
    digests.write(digests.condensed(gpu), tmp_path)
    digests.write(digests.condensed(others), tmp_path, keep=digests.load(tmp_path))
    assert {r.key.backend for r in digests.load(tmp_path).results} >= {"gpu", "emulator"}


def stored(run, path):
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.results, *run.timings, *([run.end] if run.end else []))
    writer.close()
    return str(path)


def test_the_command_accepts_and_gates_with_digests(base, tmp_path, capsys):
    run, folder = stored(base, tmp_path / "run.jsonl"), str(tmp_path / "baseline")
    assert main(["gate", run, "--baseline", folder, "--accept", "--accept-failures", "--digests"]) == 0
    first = next((tmp_path / "baseline").glob("*.jsonl")).read_text().splitlines()[0]
    assert json.loads(first)["record"] == "digests"
    assert main(["gate", run, "--baseline", folder, "--allow-model"]) == 0
    assert main(["gate", run, "--baseline", folder, "--speed"]) == 2
    assert "holds digests" in capsys.readouterr().err
    # Accepting again keeps the form, and does not print that again.
    assert main(["gate", run, "--baseline", folder, "--accept", "--accept-failures"]) == 0
    assert digests.is_digests(tmp_path / "baseline")


def test_full_records_become_digests_only_if_requested(base, tmp_path, capsys):
    run, folder = stored(base, tmp_path / "run.jsonl"), tmp_path / "baseline"
    baseline.write(base, folder)
    assert main(["gate", run, "--baseline", str(folder), "--accept", "--accept-failures", "--digests"]) == 2
    assert "add --replace" in capsys.readouterr().err
    assert not digests.is_digests(folder)


def test_declared_differing_bits_must_equal_the_accepted_ones(base, tmp_path):
    def declared(r, bits=""):
        blocks = tuple(dataclasses.replace(b, digest=bits or b.digest) for b in r.outputs_digest)
        return dataclasses.replace(r, verdict="fail", expected_failure=True, diagnosis=DECLARED, outputs_digest=blocks)

    item = next(r.key.item for r in base.results if r.verdict == "pass" and r.outputs_digest)
    run = with_results(base, lambda r: declared(r) if r.key.item == item and r.outputs_digest else r)
    digests.write(digests.condensed(run), tmp_path)
    assert decided(run, tmp_path).code == ACCEPTED
    other = with_results(run, lambda r: declared(r, "0" * 16) if r.diagnosis == DECLARED else r)
    assert decided(other, tmp_path).code == CORRECTNESS


def test_the_gate_counts_the_passes_that_accepting_counted(base, tmp_path, capsys):
    """Not those of the baseline's form, which has a result more for each item."""
    run, folder = stored(base, tmp_path / "run.jsonl"), str(tmp_path / "baseline")
    main(["gate", run, "--baseline", folder, "--accept", "--accept-failures", "--digests"])
    (counted,) = re.findall(r"[\d,]+ passes \(.*?\)", capsys.readouterr().out)
    main(["gate", run, "--baseline", folder, "--allow-model"])
    assert f"; {counted}\n" in capsys.readouterr().out
