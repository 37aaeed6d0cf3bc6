"""PTX kept between runs: reused for the same compilation only, and for nothing that an edit could have changed."""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest

from ptxdiff.model.dialect import AsmCall
from ptxdiff.model.identity import source
from ptxdiff.model.identity.definition import harness
from ptxdiff.model.identity.modules import execute_file
from ptxdiff.processes.pool import CallEnd
from ptxdiff.processes.worker import Reply
from ptxdiff.triton import builds, compile
from ptxdiff.triton import compile as compiling
from ptxdiff.triton.compile import identity_of
from ptxdiff.triton.spec import Compilation, FunctionRef, KernelSpec, Lowered

HELPER = """
import triton
import triton.language as tl

@triton.jit
def step(x):
    return x + 1
"""
KERNEL = """
import triton
import triton.language as tl
from {helper} import step

LIMIT: tl.constexpr = tl.constexpr(3)

@triton.jit
def kernel(p, BY: tl.constexpr):
    tl.store(p, step(tl.load(p)) * BY + LIMIT)
"""


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a kernel and its helper, and forget what this process has compiled."""
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "code"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    name = f"ptxdiff_kept_{abs(hash(str(tmp_path)))}"

    def write(kernel: str = KERNEL, helper: str = HELPER) -> FunctionRef:
        (folder / f"{name}.py").write_text(helper)
        path = folder / "kernels.py"
        path.write_text(kernel.format(helper=name))
        sys.modules.pop(name, None)
        importlib.invalidate_caches()
        compile.installation.cache_clear()
        source.forget()
        return FunctionRef.of(execute_file(path, f"{name}_kernels").kernel)

    return write


@pytest.fixture
def requested(monkeypatch):
    """Records the specs that workers were asked to compile. The answers are invented, with different PTX for each
    spec."""
    found: list[KernelSpec] = []

    class Pretending:
        def submit(self, function: str, spec: KernelSpec, **more: object) -> Future[CallEnd]:
            found.append(spec)
            done: Future[CallEnd] = Future()
            done.set_result(CallEnd(Reply(value=pretended(spec))))
            return done

    monkeypatch.setattr(compiling, "shared_pool", lambda *which: Pretending())
    return found


def pretended(spec: KernelSpec) -> Lowered:
    """Invented PTX, which names the kernel's file."""
    text = f'.file 1 "{spec.function.path}"\n// {spec.function.code} {spec.constants!r} {spec.target}'
    return Lowered(
        text,
        "kernel",
        0,
        4,
        ("ptxas", "1"),
        (AsmCall("mov.b32 $0, $1;", "=r,r", inputs=("i32",), outputs=("i32",)),),
        harness(),
    )


def compiled(spec: KernelSpec, monkeypatch) -> Compilation:
    """Compile as in a new process."""
    compiling.forget()
    found = compiling.compile_kernel(spec)
    assert isinstance(found, Compilation)
    return found


def spec_of(function: FunctionRef, **more: object) -> KernelSpec:
    spec = KernelSpec(function, (("p", "*i32"), ("BY", "constexpr")), (((1,), 2),), (), "sm_90a", False)
    return dataclasses.replace(spec, **more)


def test_the_second_run_compiles_nothing(written, requested, monkeypatch):
    spec = spec_of(written())
    first = compiled(spec, monkeypatch)
    assert compiled(spec_of(written()), monkeypatch) == first
    assert len(requested) == 1


EDITS = {
    "kernel": {"kernel": KERNEL.replace("* BY", "- BY")},
    "helper": {"helper": HELPER.replace("+ 1", "+ 2")},
    "global": {"kernel": KERNEL.replace("(3)", "(4)")},
    "lines": {"kernel": "\n# A line above.\n" + KERNEL},
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_compiled(written, requested, monkeypatch, edit):
    """Line numbers count too, because PTX names the line of the file from which each instruction comes."""
    before = compiled(spec_of(written()), monkeypatch)
    after = compiled(spec_of(written(**EDITS[edit])), monkeypatch)
    assert len(requested) == 2
    assert edit == "lines" or before.ptx != after.ptx
    assert compiled(spec_of(written(**EDITS[edit])), monkeypatch).ptx == after.ptx
    assert len(requested) == 2


OTHERS = {
    "float": {"constants": (((1,), 2.0),)},
    "truth": {"constants": (((1,), True),)},
    "target": {"target": "sm_80"},
    "warps": {"num_warps": 8},
    "fusion": {"enable_fp_fusion": True},
    "alignment": {"divisible": ((0,),)},
}


@pytest.mark.parametrize("other", OTHERS)
def test_another_compilation_of_the_same_kernel_reuses_nothing(written, requested, monkeypatch, other):
    function = written()
    compiled(spec_of(function), monkeypatch)
    compiled(spec_of(function, **OTHERS[other]), monkeypatch)
    assert len(requested) == 2


@pytest.mark.parametrize("what", ["harness", "installation"])
def test_another_harness_or_triton_reuses_nothing(written, requested, monkeypatch, what):
    """For example if two checkouts share a cache folder, or Triton was installed again."""
    spec = spec_of(written())
    compiled(spec, monkeypatch)
    monkeypatch.setattr(compile, what, lambda: "another")
    compiled(spec, monkeypatch)
    assert len(requested) == 2


def test_the_installation_is_every_file_of_triton_and_the_tools_that_are_named(tmp_path, monkeypatch):
    root = tmp_path / "triton"
    (root / "compiler").mkdir(parents=True)
    for path in (root / "compiler" / "code.py", root / "_C.so", tmp_path / "ptxas"):
        path.write_text("1")
    monkeypatch.setattr(builds, "triton_folder", lambda: root)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(tmp_path / "ptxas"))
    found = []
    for path in (None, root / "compiler" / "code.py", root / "_C.so", tmp_path / "ptxas"):
        if path:
            path.write_text("22")
        compile.installation.cache_clear()
        found.append(compile.installation())
    compile.installation.cache_clear()
    assert len(set(found)) == len(found)


def test_ptx_of_a_worker_with_another_harness_is_not_stored(written):
    lowered = dataclasses.replace(pretended(spec_of(written())), harness="another")
    compile.keep("identity", lowered, ())
    assert compile.find("identity") is None


def test_warnings_and_asm_are_read_back_too(written):
    lowered = pretended(spec_of(written()))
    compile.keep("identity", lowered, ("a warning",))
    assert compile.find("identity") == (lowered, ("a warning",))
    assert compile.find("other identity") is None


def test_a_damaged_entry_is_compiled_again_and_healed(written, requested, monkeypatch, tmp_path):
    spec = spec_of(written())
    first = compiled(spec, monkeypatch)
    (entry,) = (tmp_path / "cache" / "ptx").iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[:20], whole[:-1], whole[:-9] + b"123456789", bytes(len(whole))):
        entry.write_bytes(damaged)
        assert compiled(spec, monkeypatch) == first
        assert entry.read_bytes() == whole
    assert len(requested) == 6


def test_an_entry_of_another_form_counts_as_missing(written, monkeypatch):
    for data in (b"no deflated text", b"", b"x\x9c\x03\x00\x00\x00\x00\x01"):
        compile._kept.put(data, *compile._key("identity"))
        assert compile.find("identity") is None


def test_a_refusal_is_not_stored(written, requested, monkeypatch):
    monkeypatch.setattr(compiling, "from_outcome", lambda outcome: compiling.Refusal("error", "today"))
    compiling.forget()
    spec = spec_of(written())
    assert isinstance(compiling.compile_kernel(spec), compiling.Refusal)
    assert compile.find(identity_of(spec)) is None


def test_the_stored_ptx_is_tritons(written, monkeypatch):
    """With Triton itself: the stored PTX equals the compiled one, and names the file whose lines it has."""
    spec = spec_of(written())
    first = compiled(spec, monkeypatch)
    found = compile.find(identity_of(spec))
    assert found is not None
    assert found[0].ptx == first.ptx == compiled(spec, monkeypatch).ptx
    assert [Path(name).name for name in re.findall(r'^\s*\.file\s+\d+\s+"([^"]+)"', first.ptx, re.M)].count(
        "kernels.py"
    ) == 1
