"""Disassembling the items of a case file together changes no result, and a fault of one item affects no other."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ptxdiff import Case, asm
from ptxdiff.backends import create
from ptxdiff.backends.assembler import AssemblerBackend
from ptxdiff.model.load import LoadedCase
from ptxdiff.references.formats import F32
from ptxdiff.running.collection import Together
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from ptxdiff.triton import assemble as assembling
from ptxdiff.triton.targets import tool


def added(x):
    return x


CASE = Case(
    inputs={"x": F32},
    outputs={"y": F32},
    reference=added,
    variants={
        "add": asm("add.rn.f32 $0, $1, $1;", constraints="=r,r"),
        "mul": asm("mul.rn.f32 $0, $1, $1;", constraints="=r,r"),
        "no such instruction": asm("mul.rn.f33 $0, $1, $1;", constraints="=r,r"),
        "ends the compiler": asm("mov.b32 $0, $1;", constraints="=r,r,!!"),
    },
)
OTHER = replace(CASE, variants={"add": asm("add.rn.f32 $0, $1, 0f00000000;", constraints="=r,r")})


def items(case=CASE, target="sm_90a", path=Path(__file__), backend="assembler"):
    loaded = LoadedCase(case, "c", "case", path, "")
    return [Item(loaded, name, target, backend) for name in case.variants]


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """Records the files that nvdisasm is called with; the cache is empty at first."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    called = tmp_path / "called"
    nvdisasm = tmp_path / "nvdisasm"
    nvdisasm.write_text(f'#!/bin/sh\necho "$@" >> {called}\nexec {tool("nvdisasm")} "$@"\n')
    nvdisasm.chmod(0o755)
    monkeypatch.setenv("TRITON_NVDISASM_PATH", str(nvdisasm))
    assembling.forget()

    def calls() -> int:
        return len(called.read_text().splitlines()) if called.exists() else 0

    yield calls
    assembling.forget()


def outcomes(found):
    facts = [(r.verdict, r.words, r.sass, r.instructions, r.ptx, r.resources) for r in found.results]
    return facts, found.texts


def test_results_are_those_of_items_run_alone(calls, tmp_path):
    alone = [outcomes(run_item(item, AssemblerBackend(), "quick")) for item in items()]
    assert [facts[0][0] for facts, _ in alone] == ["pass", "pass", "error", "error"]
    assert calls() == 2
    shutil.rmtree(tmp_path / "cache" / "sass")
    assembling.forget()

    backend, together, found = AssemblerBackend(), Together(), []
    for item in items():
        together(item, backend, "quick", items())
        found.append(outcomes(run_item(item, backend, "quick")))
    assert found == alone
    assert calls() == 3
    counts = [facts[0][3] for facts, _ in found[:2]]
    assert ["FADD" in c for c in counts] == [True, False]
    assert ["FMUL" in c for c in counts] == [False, True]


def test_only_variants_of_the_target_and_backend_are_prepared(calls):
    backend, together = AssemblerBackend(disassembled=("sm_90a",)), Together()
    others = [
        *items(OTHER, path=Path("other.py")),
        *items(OTHER, "sm_80"),
        *items(OTHER, backend="emulator"),
    ]
    together(items()[0], backend, "quick", [items()[0], *others])
    together(items(target="sm_80")[0], backend, "quick", items(target="sm_80"))
    assert calls() == 0


def test_disassembly_is_made_once_for_a_file_and_a_target(calls):
    backend, together = AssemblerBackend(), Together()
    for item in items()[:2]:
        together(item, backend, "quick", items()[:2])
    assembling.forget()
    assert calls() == 1
    together(items()[0], backend, "quick", items()[:2])
    assert calls() == 1


def test_machine_code_of_all_items_is_disassembled_with_one_call(calls):
    """Also after the assembler's items of the same file and target, whose texts serve again. The results are those of
    items run alone."""
    assembler, sass, together = AssemblerBackend(), create("sass", brief=True), Together()
    if words := sass.unavailable("sm_90a"):
        pytest.skip(words)
    for item in items():
        together(item, assembler, "quick", items())
    before, every = calls(), items(backend="sass")
    found = []
    for item in every:
        together(item, sass, "quick", every)
        found.append([(r.key, r.verdict, r.words, r.outputs_digest) for r in run_item(item, sass, "quick").results])
    assert calls() == before == 1
    assert any(digest for results in found for *_, digest in results)

    alone = [run_item(item, create("sass", brief=True), "quick").results for item in every]
    assert found == [[(r.key, r.verdict, r.words, r.outputs_digest) for r in results] for results in alone]


@pytest.mark.slow
def test_backends_that_disassemble_share_one_call(calls):
    """All kernels are read before the assembler's first item, with the results of items run alone."""
    assembler, sass = AssemblerBackend(), create("sass", brief=True)
    if words := sass.unavailable("sm_90a"):
        pytest.skip(words)
    together = Together(1, {"assembler": assembler, "sass": sass})
    every = [*items()[:2], *items(backend="sass")[:2]]
    found = []
    for item in every:
        backend = together.backends[item.backend]
        together(item, backend, "quick", every)
        found.append(run_item(item, backend, "quick"))
    assert calls() == 1
    alone = [run_item(item, AssemblerBackend() if item.backend == "assembler" else create("sass", brief=True), "quick")
             for item in every]  # fmt: skip
    assert list(map(outcomes, found)) == list(map(outcomes, alone))


def test_another_backend_that_does_not_run_is_not_prepared(calls):
    assembler, sass = AssemblerBackend(), create("sass", brief=True)
    together = Together(1, {"assembler": assembler, "sass": sass})
    every = [*items()[:1], *items(backend="sass")[:2]]
    together(every[0], assembler, "quick", every, lambda item: item.backend != "sass")
    assert calls() == 0


def test_kernels_of_the_next_files_are_disassembled_with_the_same_call(calls):
    """Those of the files that are to run and come later, as many as may be; each once."""
    backend, together = AssemblerBackend(), Together(files=3)
    files = [items(OTHER, path=Path(f"{n}.py")) for n in range(6)]
    every = [*files[0], *items()[:1], *items()[1:2], *files[1], *files[2], *files[3]]
    together(items()[0], backend, "quick", every, lambda item: item.loaded.path != Path("1.py"))
    assert calls() == 1
    assert {path.stem for path, *_ in together._made} == {Path(__file__).stem, "2"}
    together(files[2][0], backend, "quick", every)
    together(files[3][0], backend, "quick", every)
    assert {path.stem for path, *_ in together._made} == {Path(__file__).stem, "2", "3"}


def test_a_fault_of_another_file_changes_no_result(calls):
    broken = items(replace(CASE, variants={"add": asm("", constraints="=r,r")}), path=Path("b.py"))
    backend, together = AssemblerBackend(), Together(files=2)
    together(items()[0], backend, "quick", [*items(), *broken])
    found = [outcomes(run_item(item, backend, "quick")) for item in items()]
    assert [facts[0][0] for facts, _ in found] == ["pass", "pass", "error", "error"]
