"""Variants that another Triton build compiles: results of two compilers are neither mixed nor reused for each other."""

import json
import sys
import sysconfig

import pytest

from ptxdiff.model.compilers import also_with, module_of_build
from ptxdiff.model.variants import CaseError
from ptxdiff.processes import pool
from ptxdiff.processes.pool import theirs_too
from ptxdiff.triton import builds, compile
from ptxdiff.triton.builds import NoBuild
from tests.support.caches import share_caches
from tests.support.triton_builds import FAULT, compiler, environment

FLIP = '''"""Flip the lowest bit."""

import triton

from ptxdiff import Case, plain
from ptxdiff.references.formats import I32


@triton.jit
def flip(x):
    return x ^ 1


case = Case(
    inputs={"x": I32}, outputs={"y": I32}, reference=lambda x: x ^ 1, variants={"plain": plain(flip%s)},
)
'''
ELSEWHERE = FLIP % ', compiler="elsewhere"'
ALSO = ("--ptx-compiler=old=old", "--ptx-also=old")


@pytest.fixture(autouse=True)
def _no_builds():
    yield
    builds.give(())
    also_with(())


@pytest.fixture
def old(pytester):
    """An environment called old beside the case files, whose Triton replaces one instruction by another.

    A process of its version serves every target. A probe of 3.8 or older starts one process per target.
    """
    return environment(pytester.path / "old", "3.9.0+planted", FAULT)


@pytest.fixture
def results(run_cases, pytester, monkeypatch):
    """A function that runs pytest on a case file and returns the results by variant, and the head of the records."""
    monkeypatch.setenv("PTXDIFF_ASM_ALONE", "0")

    def run(*arguments, **sources):
        run_cases("--ptx-records=r.jsonl", *arguments, **sources)
        found = [json.loads(line) for line in (pytester.path / "r.jsonl").read_text().splitlines()]
        (pytester.path / "r.jsonl").unlink()
        return [r for r in found if r["record"] == "result"], found[0]

    return run


def verdicts(results):
    """The worst verdict of each variant."""
    found = {}
    for verdict in ("not run", "pass", "fail", "error"):
        found |= {r["key"]["variant"]: verdict for r in results if r["verdict"] == verdict}
    return found


def test_a_variant_whose_compiler_is_not_here_is_not_run_and_never_passes(results):
    found, _ = results("--ptx-backend=emulator", "--ptx-backend=assembler", case=ELSEWHERE)
    assert verdicts(found) == {"plain": "not run"}
    assert all(r["verdict"] == "not run" for r in found)
    assert {r["key"]["compiler"] for r in found} == {"elsewhere"}
    assert all(
        "no Triton build is called 'elsewhere' here: --ptx-compiler elsewhere=PATH" in r.get("words", "") for r in found
    )


def test_two_builds_in_one_run_are_kept_apart_and_compared(results, old, pytester, monkeypatch):
    """A planted fault of one build shows only in its own variant, also if the other's results come from a cache."""
    monkeypatch.setenv("PTXDIFF_REUSE", "1")
    share_caches(pytester.path / "cache", "cubin", "sass")
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(pytester.path / "cache"))
    first, head = results(*ALSO, case=FLIP % "")
    assert verdicts(first) == {"plain": "pass", "plain@old": "fail"}
    labels = {(r["key"]["variant"], r["key"].get("compiler", "")) for r in first}
    assert labels == {("plain", ""), ("plain@old", "old 3.9.0+planted")}
    assert head["environment"]["compilers"]["old"]["triton"] == "3.9.0+planted"
    message = next(r["message"] for r in first if r["verdict"] == "fail")
    assert f"--ptx-compiler=old={pytester.path}/old/bin/python --ptx-also=old" in message

    _forget()
    again, _ = results(*ALSO, case=FLIP % "")
    assert verdicts(again) == verdicts(first)
    assert all(r["reused"] for r in again)

    compiler(old).write_text(compiler(old).read_text().replace(FAULT, ""))
    _forget()
    repaired, head = results(*ALSO, case=FLIP % "")
    assert verdicts(repaired) == {"plain": "pass", "plain@old": "pass"}
    assert {r["key"]["variant"] for r in repaired if r.get("reused")} <= {"plain"}


def _forget():
    """Forget what this process has found, as in a new process."""
    builds.give([("another", sys.executable)])
    compile.forget()
    for shared in pool._shared.values():
        shared.close()


@pytest.mark.slow
def test_a_run_is_not_resumed_with_another_build(run_cases, pytester, old):
    run_cases("--ptx-records=r.jsonl", *ALSO, "--ptx-backend=assembler", case=FLIP % "")
    compiler(old).write_text(compiler(old).read_text().replace(FAULT, ""))
    _forget()
    found = run_cases("--ptx-records=r.jsonl", "--ptx-resume", *ALSO, "--ptx-backend=assembler")
    found.stderr.fnmatch_lines(["*was begun with the compilers old 3.9.0+planted (*; here are old 3.9.0+planted (*"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("old", "write NAME=PATH"),
        ("a b=/usr", "write NAME=PATH"),
        ("old=", "write NAME=PATH"),
        ("old=/no/such/place", "/no/such/place is no Python interpreter"),
        ("old=cases", "cases/bin/python is no Python interpreter"),
    ],
)
def test_an_impossible_build_is_refused_before_anything_runs(run_cases, words, said):
    found = run_cases(f"--ptx-compiler={words}", case=FLIP % "")
    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines([f"*--ptx-compiler: *{said}*"])


def test_an_interpreter_without_triton_is_no_build(tmp_path):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho \'["3.11.0", "", "", []]\'\n')
    python.chmod(0o755)
    builds.give([builds.parse(f"bare={python}", tmp_path)])
    with pytest.raises(NoBuild, match="has no triton; install one there"):
        builds.build_called("bare")


@pytest.mark.slow
def test_a_worker_that_finds_another_triton_than_its_builds_is_refused(results, old, monkeypatch):
    """Planted: the folders given to the worker hold this environment's packages."""
    monkeypatch.setattr("ptxdiff.processes.pool.theirs_too", lambda path: path)
    found, _ = results(*ALSO, "--ptx-backend=assembler", case=FLIP % "")
    assert verdicts(found)["plain@old"] == "not run"
    assert any("its worker found the Triton in" in r.get("words", "") for r in found)


def test_folders_with_a_triton_of_their_own_are_not_passed_on(tmp_path):
    (tmp_path / "a" / "triton").mkdir(parents=True)
    (tmp_path / "a" / "triton" / "__init__.py").touch()
    users, packages = str(tmp_path / "b"), sysconfig.get_paths()["purelib"]
    assert theirs_too([str(tmp_path / "a"), users, packages, f"{packages}/in"]) == (users,)


def test_a_module_that_only_another_build_has_is_replaced_by_its_name():
    tlx = module_of_build("triton.language.extra.of_no_build")
    assert tlx.__name__ == "triton.language.extra.of_no_build"
    with pytest.raises(AttributeError, match=r"of_no_build.local_alloc: the Triton of this environment has no"):
        tlx.local_alloc  # noqa: B018
    assert module_of_build("triton.language").__file__
    with pytest.raises(CaseError, match="only modules of triton may be missing here"):
        module_of_build("numpy.of_no_build")


def test_a_twin_does_not_take_the_name_of_a_variant(run_cases, old):
    source = (FLIP % "").replace('"plain": plain(flip)', '"plain": plain(flip), "plain@old": plain(flip)')
    found = run_cases(*ALSO, case=source)
    found.stdout.fnmatch_lines(["*variant 'plain@old' has the name of 'plain' compiled by old*"])
