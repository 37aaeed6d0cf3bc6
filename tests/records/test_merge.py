"""Records of several machines in one report: each result once, and both if machines disagree."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from ptxdiff.records import Block, Result, RunRecords, Writer, machines, merged, read
from ptxdiff.reports import junit
from ptxdiff.reports.model import view
from ptxdiff.reports.verdict import headline_facts, overall, revision
from tests.support.reports import synthetic


def machine(
    gpu: str, device: str, change: Callable[[Result], Result | None] = lambda r: r, **more: object
) -> RunRecords:
    """The records of a small catalogue from a machine with this GPU."""
    run = synthetic.finished(synthetic.catalogue(2, targets=("sm_90a",)))
    environment = synthetic.environment(gpus=[{"name": gpu, "target": "sm_90a"}], **more)
    run.run = dataclasses.replace(run.run, environment=environment)
    made = (change(r) for r in run.results)
    run.results = [dataclasses.replace(r, device=device) if r.key.backend == "gpu" else r for r in made if r]
    return run


def first_gpu_key(run: RunRecords) -> object:
    return next(r.key for r in run.results if r.key.backend == "gpu" and r.verdict == "pass")


def test_a_result_on_which_two_machines_agree_is_kept_once_with_both_devices():
    one, two = machine("NVIDIA H200", "GPU-1"), machine("NVIDIA A100", "GPU-2")
    found = merged([one, two])
    assert [r.key for r in found.results] == [r.key for r in read_order(one)]
    assert found.conflicts == []
    on_gpu = next(r for r in found.results if r.key.backend == "gpu")
    assert on_gpu.device == "GPU-1, GPU-2"
    assert found.end is not None
    assert sum(found.end.verdicts.values()) == len(found.results)


def read_order(run: RunRecords) -> list[Result]:
    return sorted(run.results, key=lambda r: r.key.item)


def changed(key: object, **fields: object) -> Callable[[Result], Result]:
    return lambda r: dataclasses.replace(r, **fields) if r.key == key else r  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"outputs_digest": (Block(0, 4096, "other"),)}, "the output bits differ, first among inputs 0 to 1023"),
        ({"verdict": "fail", "words": "1 of 4096 codes differ"}, "pass here, fail there"),
        ({"fingerprint": {"asm": "another"}}, "the variant, its reference or its policies differ between the runs"),
    ],
)
def test_results_that_disagree_are_both_kept_and_reported(fields, words):
    one = machine("NVIDIA H200", "GPU-1")
    key = first_gpu_key(one)
    found = merged([one, machine("NVIDIA A100", "GPU-2", changed(key, **fields))])
    assert [r.device for r in found.results if r.key == key] == ["GPU-1", "GPU-2"]
    (conflict,) = found.conflicts
    assert (conflict.key, conflict.words) == (key, words)
    assert any(f"({words})" in note for note in overall(view(found)).notes)
    second = [r for r in found.results if r.key == key][1]
    assert second.notes[-1] == f"on GPU-2; {words}"


def test_a_result_that_one_machine_lacks_comes_from_another():
    one = machine("NVIDIA H200", "GPU-1")
    key = first_gpu_key(one)
    without = {"verdict": "not run", "words": "no NVIDIA GPU on this machine", "outputs_digest": ()}
    two = machine("none", "", lambda r: dataclasses.replace(r, **without) if r.key.backend == "gpu" else r)
    found = merged([two, one])
    assert found.conflicts == []
    assert [r.verdict for r in found.results if r.key == key] == ["pass"]


def test_the_facts_of_both_machines_are_named_and_those_they_share_once():
    one, two = machine("NVIDIA H200", "GPU-1", driver="580.1"), machine("NVIDIA A100", "GPU-2", driver="570.2")
    found = merged([one, two])
    facts = headline_facts(found)
    assert facts[0] == "2 runs merged"
    assert "NVIDIA H200 (sm_90a) and NVIDIA A100 (sm_90a)" in facts
    assert "driver 580.1 and 570.2" in facts
    assert revision(found) == revision(one)
    assert len(machines(found.run.environment)) == 2
    assert len(machines(merged([found, machine("NVIDIA L4", "GPU-3")]).run.environment)) == 3


def test_one_run_is_returned_unchanged_and_none_is_refused():
    one = machine("NVIDIA H200", "GPU-1")
    assert merged([one]) is one
    with pytest.raises(ValueError, match="no run"):
        merged([])


def test_with_a_run_cut_short_the_whole_is_cut_short():
    one, two = machine("NVIDIA H200", "GPU-1"), machine("NVIDIA A100", "GPU-2")
    two.end = None
    assert merged([one, two]).end is None


def written(run: RunRecords, path: Path) -> Path:
    writer = Writer(path)
    writer.write(run.run, *run.cases.values(), *run.texts.values(), *run.results, *run.timings)
    if run.end:
        writer.write(run.end)
    writer.close()
    return path


@pytest.mark.parametrize("how", ["files", "folder"])
def test_files_of_two_machines_make_one_page(tmp_path, capsys, how):
    from ptxdiff.cli import main

    folder = tmp_path / "records"
    folder.mkdir()
    one = machine("NVIDIA H200", "GPU-1")
    key = first_gpu_key(one)
    two = machine("NVIDIA A100", "GPU-2", changed(key, outputs_digest=(Block(0, 4096, "other"),)))
    files = [written(one, folder / "a.jsonl"), written(two, folder / "b.jsonl")]
    words = [str(f) for f in files] if how == "files" else [str(folder), "--merge"]
    assert main(["report", *words, "-o", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "NVIDIA H200 (sm_90a) and NVIDIA A100 (sm_90a)" in page
    assert "The merged runs disagree on 1 result" in page
    assert "the output bits differ, first among inputs 0 to 1023" in page
    assert "NVIDIA H200 (sm_90a) and" in " ".join(capsys.readouterr().out.split())


def test_a_folder_without_merge_is_a_history(tmp_path):
    run = machine("NVIDIA H200", "GPU-1")
    written(run, tmp_path / "a.jsonl")
    assert read(tmp_path).conflicts == []


def test_a_variant_that_another_run_defines_differently_is_reported_on_whatever_target():
    """Old code on one target and new code on another are not one variant that passes on both."""
    one, two = machine("NVIDIA H200", "GPU-1"), machine("NVIDIA A100", "GPU-2")
    name = first_gpu_key(one).item[:2]

    def moved(r):
        edited = {**r.fingerprint, "asm": "0" * 16} if r.key.item[:2] == name else r.fingerprint
        return dataclasses.replace(r, key=dataclasses.replace(r.key, target="sm_80"), fingerprint=edited)

    two.results = [moved(r) for r in two.results]
    found = merged([one, two])
    (conflict,) = found.conflicts
    assert conflict.key.item[:3] == (*name, "sm_80")
    assert conflict.words == "the variant, its reference or its policies differ between the runs: asm"
    assert any(f"({conflict.words})" in note for note in overall(view(found)).notes)
    assert '<skipped message="The merged runs disagree' in junit.text(found)
    assert "disagree" not in junit.text(one)


def test_parts_that_no_two_processes_can_compare_are_no_disagreement():
    one, two = machine("NVIDIA H200", "GPU-1"), machine("NVIDIA A100", "GPU-2")
    for number, run in enumerate((one, two)):
        odd = {"reference": f"cannot be compared: a.B {number}"}
        run.results = [
            dataclasses.replace(r, key=dataclasses.replace(r.key, target=f"sm_{8 + number}0"), fingerprint=odd)
            for r in run.results
        ]
    assert merged([one, two]).conflicts == []
