"""Machine code kept between runs: reused for the same text, options and assembler only."""

from __future__ import annotations

import dataclasses

import pytest

from ptxdiff.triton import assemble as assembling
from ptxdiff.triton.assemble import Assembly, assemble
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.spec import Compilation, FunctionRef, KernelSpec
from ptxdiff.triton.tools import Tool


@pytest.fixture
def made(monkeypatch, tmp_path):
    """A compilation with an assembler of its own, and a record of what was assembled."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    ptxas = tmp_path / "ptxas"
    ptxas.write_text("1")
    spec = KernelSpec(FunctionRef("m", "p", "k"), (), (), (), "sm_90a", False)
    found: list[Compilation] = []

    def pretended(compilation: Compilation) -> Assembly | Refusal:
        found.append(compilation)
        text = f"{compilation.ptx} {compilation.spec.target} {compilation.spec.enable_fp_fusion}"
        return Refusal("error", text) if "wrong" in text else Assembly(text.encode(), {"registers": 3}, ("a warning",))

    monkeypatch.setattr(assembling, "_assemble", pretended)
    return Compilation(spec, "ptx", "k", 0, 4, Tool(str(ptxas), "1")), found


def run(compilation: Compilation) -> object:
    """Assemble as in a new process."""
    assembling.forget()
    return assemble(compilation)


def test_the_second_run_assembles_nothing(made):
    compilation, found = made
    assert run(compilation) == run(compilation)
    assert len(found) == 1


def test_a_change_of_anything_that_decides_the_code_is_assembled_anew(made, monkeypatch):
    compilation, found = made
    spec = compilation.spec
    others = [
        dataclasses.replace(compilation, ptx="ptx "),
        dataclasses.replace(compilation, spec=dataclasses.replace(spec, target="sm_80")),
        dataclasses.replace(compilation, spec=dataclasses.replace(spec, enable_fp_fusion=True)),
        dataclasses.replace(compilation, ptxas=dataclasses.replace(compilation.ptxas, version="2")),
    ]
    first = [run(c) for c in (compilation, *others)]
    assert len(found) == 5
    assert [run(c) for c in (compilation, *others)] == first
    assert len(found) == 5
    with open(compilation.ptxas.path, "w") as file:  # another assembler with the same name and version
        file.write("22")
    run(compilation)
    monkeypatch.setattr(assembling, "harness", lambda: "another")
    run(compilation)
    assert len(found) == 7


def test_refusals_are_not_stored(made):
    compilation, found = made
    wrong = dataclasses.replace(compilation, ptx="wrong")
    assert isinstance(run(wrong), Refusal)
    assert isinstance(run(wrong), Refusal)
    assert len(found) == 2


def test_a_damaged_entry_is_assembled_again(made, monkeypatch, tmp_path):
    compilation, found = made
    first = run(compilation)
    (entry,) = (tmp_path / "cache" / "cubin").iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[:40], whole[:-1] + bytes([whole[-1] ^ 1])):
        entry.write_bytes(damaged)
        assert run(compilation) == first
        assert entry.read_bytes() == whole
    assert len(found) == 4
