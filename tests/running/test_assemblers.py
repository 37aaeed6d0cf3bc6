"""Assemblers as an axis: a result of one program or level never counts for another."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import pytest

from ptxdiff.cli import main
from ptxdiff.records import Key, Result
from ptxdiff.running import reuse
from ptxdiff.running.assemblers import AssemblerChoice, label_of, option_words, tritons_options, tritons_own
from ptxdiff.running.cluster.messages import other_assembler
from ptxdiff.triton.ptxas import NoAssembler, assembler_at
from tests.support.caches import share_caches
from tests.support.readyprocess import pytest_of_run
from tests.support.tritons import since

pytest.importorskip("triton")

TARGET = "sm_80"
CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

def flipped(x):
    return x ^ 6

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=flipped,
    variants={"v": asm("xor.b32 $0, $1, 6;", constraints="=r,r", pack=1)},
)
"""


def chosen(path, level=3):
    """A ptxas chosen for a run, with the options of Triton's own calls."""
    return assembler_at(path, level, options=tritons_options(TARGET))


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Two different programs that report the same version."""
    folder = tmp_path_factory.mktemp("programs")
    own = tritons_own(TARGET).path
    for name in ("a", "b"):
        (folder / name).mkdir()
        shutil.copy(own, folder / name / "ptxas")
    with (folder / "b" / "ptxas").open("ab") as file:
        file.write(b"\0")
    return {name: str(folder / name / "ptxas") for name in ("a", "b")}


@pytest.fixture
def runs(run_cases, monkeypatch, tmp_path):
    """Run the case with the assembler backend. Returns (assembler in the key, reused) for each result; checks the exit
    code."""
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    share_caches(tmp_path / "cache", "ptx", "cubin", "sass")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(reuse, "_edited_meanwhile", lambda: False)  # others may edit meanwhile

    def run(*arguments, file="run.jsonl", code=0):
        words = ("--ptx-backend=assembler", f"--ptx-target={TARGET}", f"--ptx-records={tmp_path / file}")
        done = run_cases(*words, *arguments, case=CASE)
        assert done.ret == code, done.stdout.str()
        if code:
            return done.stdout.str() + done.stderr.str()
        lines = [json.loads(line) for line in (tmp_path / file).read_text().splitlines()]
        results = [r for r in lines if r["record"] == "result"]
        assert results
        assert {r["verdict"] for r in results} == {"pass"}
        (tmp_path / file).unlink() if file == "run.jsonl" else None
        return {(r["key"].get("assembler", ""), bool(r.get("reused"))) for r in results}

    return run


def test_labels_distinguish_programs_and_levels(programs):
    one, other = (chosen(programs[name]) for name in ("a", "b"))
    assert one.version == other.version == tritons_own(TARGET).version
    labels = {chosen(programs[name], level).label for name in ("a", "b") for level in (0, 3)}
    assert len(labels) == 4
    assert one.label == " ".join(["ptxas", one.version, "-O3", *one.options, f"({one.digest})"])
    assert one.label == label_of(None, "assembler", TARGET, "")  # a copy of Triton's own program
    assert label_of(None, "emulator", TARGET, "") == ""


def test_a_result_is_reused_for_the_same_program_at_the_same_level_alone(runs, programs):
    a, b = (f"--ptx-assembler={programs[name]}" for name in ("a", "b"))
    o3, o0 = (chosen(programs["a"], level).label for level in (3, 0))
    other = chosen(programs["b"]).label
    assert runs(a) == {(o3, False)}
    assert runs(a) == {(o3, True)}
    assert runs(a, "--ptx-opt=0") == {(o0, False)}
    assert runs(b) == {(other, False)}
    assert runs() == {("", False)}  # Triton's own: the same program, but not chosen
    assert runs() == {("", True)}
    assert runs(a, b) == {(o3, False), (other, False)}  # results are kept by item, so both run


def test_another_program_under_the_same_path_is_another_assembler(runs, programs, tmp_path):
    path = tmp_path / "ptxas"
    shutil.copy(programs["a"], path)
    first = runs(f"--ptx-assembler={path}")
    assert runs(f"--ptx-assembler={path}") == {(label, True) for label, _ in first}
    path.unlink()
    shutil.copy(programs["b"], path)
    second = runs(f"--ptx-assembler={path}")
    assert {reused for _, reused in second} == {False}
    assert not {label for label, _ in first} & {label for label, _ in second}


def test_tritons_own_exchanged_behind_its_variable_is_run_again(runs, programs, monkeypatch, tmp_path):
    """The path and the version stay the same; the file behind the path does not."""
    path = tmp_path / "ptxas"
    shutil.copy(programs["a"], path)
    monkeypatch.setattr("ptxdiff.running.reuse.tritons_own", lambda *_: assembler_at(path, 3, bundled=True))
    runs()
    assert runs() == {("", True)}
    path.unlink()
    shutil.copy(programs["b"], path)
    assert runs() == {("", False)}


def test_results_of_a_script_are_not_reused(runs, programs, tmp_path):
    """The program that it calls may change while its text stays the same."""
    script = tmp_path / "ptxas"
    script.write_text(f'#!/bin/sh\nexec {programs["a"]} "$@"\n')
    script.chmod(0o755)
    label = chosen(script).label
    for _ in range(2):
        assert runs(f"--ptx-assembler={script}") == {(label, False)}


@pytest.mark.sample(3)
@pytest.mark.parametrize("then", ["other program", "other level", "none"])
def test_a_run_is_resumed_with_the_assemblers_that_it_began_with(runs, programs, then):
    a = f"--ptx-assembler={programs['a']}"
    runs(a, file="kept.jsonl")
    now = {"other program": [f"--ptx-assembler={programs['b']}"], "other level": [a, "--ptx-opt=0"], "none": []}[then]
    said = runs("--ptx-resume", *now, file="kept.jsonl", code=4)
    assert f"was begun with the assemblers {assembler_at(programs['a'], 3).label}; here are" in said


def test_a_run_is_resumed_with_the_same_assemblers_only(runs, programs):
    a = f"--ptx-assembler={programs['a']}"
    first = runs(a, file="kept.jsonl")
    assert runs("--ptx-resume", a, file="kept.jsonl") == first


def test_the_command_has_the_options_too_and_the_end_counts_each(tmp_path, capfd, monkeypatch):
    """`ptxdiff run`: for the program that Triton uses, the key has no assembler, so that earlier and later runs
    compare."""
    monkeypatch.setattr("ptxdiff.cli.run._call", pytest_of_run)
    (tmp_path / "case.py").write_text(CASE)
    file = tmp_path / "run.jsonl"
    words = ["run", str(tmp_path / "case.py"), "--backend", "assembler", "--target", TARGET, "--records", str(file)]
    assert main([*words, "--opt", "0", "--opt", "3", "--assembler", "bundled"]) == 0
    results = [r for r in map(json.loads, file.read_text().splitlines()) if r["record"] == "result"]
    o0, o3 = (tritons_own(TARGET, level=level).label for level in (0, 3))
    assert {(r["key"].get("assembler", ""), r["ptxas"]) for r in results} == {("", o3), (o0, o0)}
    said = capfd.readouterr().out
    for label in (o0, o3):
        assert f"{label}: {len(results) // 2} passed, 0 failed, 0 faults of ptxas" in said


def test_quick_uses_tritons_level_and_full_adds_level_0():
    def levels(effort, *named):
        resolved = AssemblerChoice.of(None, named or None, effort).resolved("assembler", TARGET)
        return [None if a is None else (a.bundled, a.level) for a in resolved]

    assert levels("quick") == levels("exhaustive") == [None]
    assert levels("full") == [None, (True, 0)]
    assert levels("full", 3) == [None]
    assert levels("quick", 1, 1, 3) == [(True, 1), None]
    assert AssemblerChoice.of(None, None, "full").resolved("emulator", TARGET) == (None,)


def test_each_target_has_the_program_that_triton_uses_for_it():
    (old,) = AssemblerChoice.of(None, [0], "quick").resolved("gpu", "sm_80")
    (new,) = AssemblerChoice.of(None, [0], "quick").resolved("gpu", "sm_100a")
    assert old.path == tritons_own("sm_80").path
    assert new.path == tritons_own("sm_100a").path


def test_a_failure_is_repeated_by_the_same_assembler(programs):
    assert option_words(None) == []
    assert option_words(assembler_at(programs["a"], 1)) == [f"--ptx-assembler={programs['a']}", "--ptx-opt=1"]
    assert option_words(tritons_own(TARGET, level=0)) == ["--ptx-opt=0"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--ptx-assembler=/no/such"], "there is no such file; give the path of a ptxas, or the word bundled"),
        (["--ptx-assembler=/tmp"], "is a folder; name the program in it, /tmp/ptxas"),
        (["--ptx-assembler=/bin/true"], "does not say which release of ptxas it is"),
        (["--ptx-opt=0", "--ptx-backend=emulator"], "--ptx-opt is for the backends gpu, assembler, sass"),
    ],
)
def test_a_path_without_an_assembler_is_refused_before_anything_runs(run_cases, options, words):
    done = run_cases(*options, *([] if "backend" in options[-1] else ["--ptx-backend=assembler"]), case=CASE)
    assert done.ret == 4
    assert words in done.stderr.str()


@since(3, 9, "the ptxas for sm_80 is as new as the PTX for sm_90a")
def test_an_assembler_older_than_the_ptx_gets_its_own_version_stated(run_cases, tmp_path):
    """The stated version is the only change, so that both can assemble one text."""
    old = tritons_own("sm_80").path
    file = tmp_path / "run.jsonl"
    words = ("--ptx-backend=assembler", "--ptx-target=sm_90a", f"--ptx-assembler={old}", f"--ptx-records={file}")
    assert run_cases(*words, case=CASE).ret == 0
    results = [r for r in map(json.loads, file.read_text().splitlines()) if r["record"] == "result"]
    assert {r["verdict"] for r in results} == {"pass"}
    note = "knows PTX ISA versions up to 8.8: the PTX's .version was lowered to 8.8"
    assert all(note in r["notes"][0] for r in results)


@since(3, 9, "it compiles nothing for sm_110a")
def test_a_target_that_an_assembler_does_not_know_is_not_run(run_cases):
    old = tritons_own("sm_80").path
    done = run_cases("--ptx-backend=assembler", "--ptx-target=sm_110a", f"--ptx-assembler={old}", "-rs", case=CASE)
    done.assert_outcomes(skipped=1)
    assert "does not know sm_110a" in done.stdout.str()


def test_a_deleted_program_is_an_error_and_no_other_runs():
    with pytest.raises(NoAssembler, match="No such file"):
        AssemblerChoice.of(["/no/such/ptxas"], None, "quick").resolved("gpu", TARGET)


def test_what_a_node_of_a_cluster_assembled_with_another_program_is_refused(programs):
    """A node may have another program at the same path, or a variable that names another ptxas for Triton."""
    a, b = (chosen(programs[name]) for name in ("a", "b"))
    item = SimpleNamespace(backend="assembler", target=TARGET, compiler="")

    def words(key, ptxas, requested, verdict="pass"):
        result = Result(Key("c", "v", TARGET, "assembler", assembler=key), verdict, ptxas=ptxas)
        return other_assembler(result, SimpleNamespace(item=item, assemblers=requested))

    assert words(a.label, a.label, (a,)) == ""
    assert words("", a.label, (None,)) == ""  # a copy of Triton's own program
    assert words("", "", (a,), "not run") == ""
    assert words(b.label, b.label, (a,)) == f"by {b.label}, which is not asked for"
    assert words("", a.label, (a,)) == "by the ptxas that Triton uses, which is not asked for"
    assert words("", b.label, (None,)) == f"by {b.label}, here by {a.label}"
