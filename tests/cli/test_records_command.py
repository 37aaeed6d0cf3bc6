"""`ptxdiff records`, and the other verbs on a folder of compressed runs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ptxdiff.cli import main
from ptxdiff.records import RecordError, Writer, read, record_files
from tests.support.reports import synthetic


@pytest.fixture(scope="module")
def nights():
    base = synthetic.catalogue(3, ("sm_80", "sm_90a"), per_cell=6)
    return list(synthetic.nights(base, 2, planted={}))


@pytest.fixture
def folder(tmp_path, nights):
    for n, night in enumerate(nights):
        writer = Writer(tmp_path / f"{n}.jsonl.zst", shared=True)
        writer.write(night.run, *night.cases.values(), *night.texts.values(), *night.results, *night.timings, night.end)
        writer.close()
    return tmp_path


def said(capsys, *words):
    code = main([str(w) for w in words])
    return code, *capsys.readouterr()


def test_each_run_is_one_line(folder, capsys, nights):
    code, out, _ = said(capsys, "records", folder)
    assert code == 0
    assert "2 runs, " in out
    assert all(name in out for name in ("0.jsonl.zst", "1.jsonl.zst", str(folder / "texts")))
    runs = json.loads(said(capsys, "records", folder, "--format", "json")[1])
    assert [r["results"] for r in runs] == [len(n.results) for n in nights]
    assert [r["complete"] for r in runs] == [True, True]
    assert sum(runs[0]["verdicts"].values()) == len(nights[0].results)


@pytest.mark.parametrize("name", ["one.jsonl", "one.jsonl.zst"])
def test_an_exported_run_needs_no_store(folder, tmp_path_factory, capsys, name):
    output = tmp_path_factory.mktemp("elsewhere") / name
    assert said(capsys, "records", folder, "--export", output)[0] == 0
    exported, newest = read(output), read(folder)
    assert exported.stored == {}
    assert dict(exported.texts) == dict(newest.texts)
    assert (exported.results, exported.end, exported.run) == (newest.results, newest.end, newest.run)
    if name.endswith(".jsonl"):
        assert {json.loads(line)["record"] for line in output.read_text().splitlines()} >= {
            "run",
            "text",
            "result",
            "end",
        }


def test_the_lines_can_be_printed(folder, capfdbinary):
    assert main(["records", str(folder / "0.jsonl.zst"), "--export", "-"]) == 0
    lines = capfdbinary.readouterr().out.splitlines()
    assert json.loads(lines[0])["record"] == "run"
    assert json.loads(lines[-1])["record"] == "end"


def test_no_damaged_run_is_exported(folder, capsys):
    for pack in (folder / "texts").glob("*.zst"):
        pack.unlink()
    output = folder / "out" / "one.jsonl"
    code, _, err = said(capsys, "records", folder, "--export", output)
    assert code == 2
    assert "is not in" in err
    assert not output.exists()


def test_pruning_keeps_what_the_runs_need(folder, capsys, nights):
    extra = replace(nights[0], run=replace(nights[0].run, run_id="gone"))
    writer = Writer(folder / "gone.jsonl.zst", shared=True)
    text = next(iter(extra.texts.values()))
    from ptxdiff.records import Text, text_hash

    other = text.text + "// of a run that is removed"
    writer.write(extra.run, Text(text_hash(other), text.kind, other))
    writer.close()
    (folder / "gone.jsonl.zst").unlink()
    assert said(capsys, "records", folder, "--prune")[0] == 0
    assert len(list((folder / "texts").glob("*.zst"))) == 1
    assert [dict(read(f).texts) == dict(nights[0].texts) for f in record_files(folder)] == [True, True]
    from ptxdiff.records import TextStore

    assert text_hash(other) not in {name for name, _ in TextStore(folder).read({})}


def test_a_wrong_name_is_refused(folder, capsys):
    code, _, err = said(capsys, "records", folder, "--export", "run.txt")
    assert code == 2
    assert "the name ends in .jsonl" in err
    assert said(capsys, "records", folder / "nothing")[0] == 2


def test_every_reader_takes_both_forms(folder, tmp_path_factory, capsys, nights):
    plain = tmp_path_factory.mktemp("plain") / "old.jsonl"
    said(capsys, "records", folder / "0.jsonl.zst", "--export", plain)
    packed, page = folder / "0.jsonl.zst", folder / "page.html"
    assert said(capsys, "compare", plain, packed)[0] == 0
    for form in ("junit", "sarif", "csv"):
        outputs = []
        for path in (plain, packed):
            assert said(capsys, "report", path, "--format", form, "--output", page.with_suffix(f".{form}"))[0] == 0
            outputs.append(page.with_suffix(f".{form}").read_bytes())
        assert outputs[0] == outputs[1]
    assert said(capsys, "report", folder, "--output", page)[0] == 0
    assert said(capsys, "gate", plain, "--baseline", folder / "accepted", "--accept", "--accept-failures")[0] == 0
    code, out, _ = said(capsys, "gate", packed, "--baseline", folder / "accepted", "--allow-model")
    assert code == said(capsys, "gate", plain, "--baseline", folder / "accepted", "--allow-model")[0]
    assert "not compared with the baseline" not in out


def test_one_changed_constant_is_one_line_of_compare(folder, capsys, nights):
    """The two newest runs of a folder are compared if only the folder is named."""
    changed = synthetic.with_results(
        nights[1],
        lambda r: (
            replace(r, outputs_digest=tuple(replace(b, digest="0" * 32) for b in r.outputs_digest))
            if r.key.case == "rcp" and r.key.variant == "asm.rn"
            else r
        ),
    )
    writer = Writer(folder / "2.jsonl.zst", shared=True)
    writer.write(changed.run, *changed.cases.values(), *changed.texts.values(), *changed.results, changed.end)
    writer.close()
    code, out, _ = said(capsys, "compare", folder, "--kind", "bits")
    lines = [line for line in out.splitlines() if "output bits" in line]
    assert code == 1
    assert len(lines) == 1
    assert "rcp::asm.rn, " in lines[0]
    assert "1.jsonl.zst → 2.jsonl.zst" in out
    _, out, _ = said(capsys, "compare", folder, "--kind", "bits", "-v")
    assert len([line for line in out.splitlines() if "output bits" in line]) > 5
    (folder / "0.jsonl.zst").unlink()
    (folder / "2.jsonl.zst").unlink()
    assert said(capsys, "compare", folder)[0] == 2


def test_compare_says_which_run_of_a_folder_it_takes(folder, capsys):
    _, out, _ = said(capsys, "compare", folder, folder / "0.jsonl.zst", "--kind", "bits")
    assert out.splitlines()[0] == f"{folder}: 1.jsonl.zst, the newest of 2 runs"
    _, out, _ = said(capsys, "compare", folder / "1.jsonl.zst", folder / "0.jsonl.zst", "--kind", "bits")
    assert "newest" not in out


def test_new_results_are_named_by_the_gate(folder, capsys, nights):
    base = nights[0]
    plain = [r for r in base.results if r.key.case == "rcp" and r.key.variant == "asm.rn"]
    fewer = synthetic.with_results(base, lambda r: None if r is plain[0] else r)
    writer = Writer(folder / "fewer.jsonl")
    writer.write(fewer.run, *fewer.cases.values(), *fewer.results, fewer.end)
    writer.close()
    accept = ("gate", folder / "fewer.jsonl", "--baseline", folder / "accepted", "--accept", "--accept-failures")
    assert said(capsys, *accept)[0] == 0
    _, out, _ = said(capsys, "gate", folder / "0.jsonl.zst", "--baseline", folder / "accepted", "--allow-model")
    lines = [line for line in out.splitlines() if "new, so not compared" in line]
    assert len(lines) == 1
    assert lines[0].endswith(f"1 result {plain[0].key}")


def test_a_missing_text_is_an_error_of_each_reader(folder, capsys):
    for pack in (folder / "texts").glob("*.zst"):
        pack.unlink()
    with pytest.raises(RecordError, match="is not in"):
        read(folder)
    for words in (("report", folder), ("gate", folder, "--baseline", folder), ("compare", folder)):
        code, _, err = said(capsys, *words)
        assert code == 2
        assert "restore that folder" in err


def test_runs_without_a_common_result_are_not_equal(folder, capsys, nights):
    empty = replace(nights[0], results=[], timings=[], end=replace(nights[0].end, verdicts={}))
    for name in ("empty", "same"):
        writer = Writer(folder / f"{name}.jsonl")
        writer.write(empty.run, empty.end)
        writer.close()
    for other in ("0.jsonl.zst", "same.jsonl"):
        code, out, _ = said(capsys, "compare", folder / "empty.jsonl", folder / other, "--kind", "bits")
        assert (code, "nothing was compared" in out) == (1, True)


def test_compare_says_that_a_run_was_cut_short(folder, capsys, nights):
    writer = Writer(folder / "killed.jsonl")
    writer.write(nights[0].run, *nights[0].results)
    writer.close()
    code, out, _ = said(capsys, "compare", folder / "killed.jsonl", folder / "killed.jsonl")
    assert (code, "the run was cut short" in out) == (1, True), "what both lack may differ"
    _, out, _ = said(capsys, "compare", folder / "0.jsonl.zst", folder / "0.jsonl.zst")
    assert "cut short" not in out


def test_the_newest_run_of_a_folder_is_the_one_that_began_last_whatever_its_name(folder, capsys):
    """An old run that was exported into the folder under a late name is not taken for the newest one."""
    assert said(capsys, "records", folder / "0.jsonl.zst", "--export", folder / "zzz.jsonl")[0] == 0
    assert read(folder).path == folder / "1.jsonl.zst"
    _, out, _ = said(capsys, "compare", folder)
    assert "zzz.jsonl → 1.jsonl.zst" in out
    _, out, _ = said(capsys, "gate", folder, "--baseline", folder / "none")
    assert f"{folder}: 1.jsonl.zst, the newest of 3 runs" in out


def test_a_file_without_a_head_may_be_the_newest_run(folder, capsys):
    (folder / "2.jsonl").write_bytes(b"")
    code, _, err = said(capsys, "gate", folder, "--baseline", folder / "none")
    assert (code, "2.jsonl: empty" in err) == (2, True)
