"""Kernels that differ only in contraction share the text from the stages before contraction matters, and repeat
output."""

from __future__ import annotations

import os
import warnings
from dataclasses import replace

import pytest
import triton.backends.nvidia.compiler as nvidia

from ptxdiff.processes.pool import Pool
from ptxdiff.triton import compile as compiling
from ptxdiff.triton import stages
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.elementwise import Elementwise, InlineAsm, PlainFunction
from ptxdiff.triton.ptx_text import marked
from ptxdiff.triton.spec import FunctionRef, KernelSpec
from tests.triton import sample_kernels

BACKEND = nvidia.CUDABackend


def spec(name: str = "multiply_add", constants: tuple[object, ...] = (), target: str = "sm_90a") -> KernelSpec:
    function = PlainFunction(FunctionRef.of(getattr(sample_kernels, name)), constants)
    inputs = ("fp32",) * (2 if name == "multiply_add" else 1)
    return Elementwise(function, inputs, ("fp32",), (100,)).spec(target, enable_fp_fusion=False)


@pytest.fixture
def front(monkeypatch):
    """Counts how often a kernel was read from its function by the test's own process."""
    stages.forget()
    monkeypatch.setattr(stages, "nothing_written", lambda: True)
    monkeypatch.setattr(stages, "forget_output", lambda: None)
    make, read = stages.ASTSource.make_ir, []

    def counted(self, *arguments):
        read.append(self.fn)
        return make(self, *arguments)

    monkeypatch.setattr(stages.ASTSource, "make_ir", counted)
    yield read
    stages.forget()


def both(kernel: KernelSpec) -> list[str]:
    return [stages.lower(replace(kernel, enable_fp_fusion=f)).ptx for f in (False, True)]


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a"])
def test_shared_stages_give_the_same_ptx_as_separate_compilations(front, target):
    kernel = spec(target=target)
    shared = both(kernel)
    assert len(front) == 1
    stages.forget()
    alone = stages.lower(replace(kernel, enable_fp_fusion=True))
    assert shared[1] == alone.ptx != shared[0]
    assert "fma.rn.f32" in shared[1]
    assert "fma.rn.f32" not in shared[0]


def test_shared_stages_give_the_same_metadata(front):
    kernel = replace(spec(), enable_fp_fusion=True)
    stages.lower(replace(kernel, enable_fp_fusion=False))
    shared = stages.lower(kernel)
    assert len(front) == 1
    stages.forget()
    assert shared == stages.lower(kernel)


READS = {
    "attribute": lambda options: options.enable_fp_fusion,
    "all of them": lambda options: vars(options),
    "by its name": lambda options: getattr(options, "enable_fp_" + "fusion"),
    "kept by hash": nvidia.functools.lru_cache(lambda options: options.enable_fp_fusion),
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("stage", ["make_ttir", "make_ttgir", "make_llir"])
def test_a_stage_that_reads_contraction_is_run_for_each(front, monkeypatch, stage, reads):
    """In a Triton whose earlier stages depend on contraction, shared text would replace other text."""
    held = BACKEND.__dict__[stage]
    plain = held.__func__ if isinstance(held, staticmethod) else None

    def reading(*arguments):
        READS[reads](arguments[-2])
        return (plain or held)(*arguments)

    monkeypatch.setattr(BACKEND, stage, staticmethod(reading) if plain else reading)
    shared = both(spec())
    assert len(front) == 2
    assert "fma.rn.f32" in shared[1]
    assert "fma.rn.f32" not in shared[0]


def test_options_that_the_backend_derives_from_contraction_share_nothing(front, monkeypatch):
    parse = BACKEND.parse_options

    def derived(self, given):
        return parse(self, {**given, "num_stages": 2 + given[stages.CONTRACTION]})

    monkeypatch.setattr(BACKEND, "parse_options", derived)
    both(spec())
    assert len(front) == 2


@pytest.mark.parametrize("other", [spec("powers", (3,)), spec("powers", (2, -0.0)), spec("reciprocal")])
def test_other_kernels_share_nothing(front, other):
    stages.lower(spec("powers", (2, 0.0)))
    alone = stages.lower(other).ptx
    assert len(front) == 2
    stages.forget()
    assert stages.lower(other).ptx == alone


def test_a_function_that_was_made_again_shares_nothing(front, monkeypatch):
    """After a file is executed again, its functions may be on other lines, which PTX names, though their digests are
    equal."""
    load = stages.load
    again = sample_kernels.triton.jit(sample_kernels.multiply_add.fn)
    stages.lower(spec())
    monkeypatch.setattr(stages, "load", lambda ref, held=None: again if "multiply" in ref.qualname else load(ref))
    stages.lower(replace(spec(), enable_fp_fusion=True))
    assert len(front) == 2


def test_warnings_are_given_for_each(front, monkeypatch):
    make = BACKEND.make_ttir

    def warning(*arguments):
        warnings.warn("odd", UserWarning, stacklevel=1)
        return make(*arguments)

    monkeypatch.setattr(BACKEND, "make_ttir", staticmethod(warning))
    for fused in (False, True):
        with pytest.warns(UserWarning, match="odd"):
            stages.lower(replace(spec(), enable_fp_fusion=fused))
    assert len(front) == 1


def test_a_later_stage_does_not_change_the_shared_text(front):
    first = stages.lower(spec())
    stages.lower(replace(spec(), enable_fp_fusion=True))
    assert stages.lower(spec()) == first
    assert len(front) == 1


@pytest.mark.parametrize(("says", "times"), [(b"", 1), (b"error: no such thing\n", 2)])
def test_output_of_a_stage_is_repeated_for_each_kernel(front, monkeypatch, capfd, says, times):
    """Output on standard error means a refusal, and the other kernel must be refused too."""
    monkeypatch.undo()
    read = []
    stages.forget()
    make = BACKEND.make_ttgir

    def saying(*arguments):
        read.append(1)
        os.write(2, says)
        return make(*arguments)

    monkeypatch.setattr(BACKEND, "make_ttgir", staticmethod(saying))
    for fused in (False, True):
        stages.lower(replace(spec(), enable_fp_fusion=fused))
        assert capfd.readouterr().err.encode() == says
    assert len(read) == times


@pytest.mark.sample(2)
@pytest.mark.parametrize("first", [False, True])
def test_output_of_the_compiler_is_repeated_for_each_kernel(monkeypatch, first):
    """`=r,n` prints an error, drops the asm and gives PTX, so that the second kernel must be refused as well."""
    pool = Pool(1)
    monkeypatch.setattr(compiling, "shared_pool", lambda *of: pool)
    compiling.forget()
    monkeypatch.setenv("PTXDIFF_CACHE_DIR", "")
    kernel = Elementwise(InlineAsm("mov.b32 $0, $1;", "=r,n"), ("fp32",), ("fp32",), (100,))
    try:
        for fused in (first, not first):
            refusal = compile_kernel(kernel.spec("sm_90a", enable_fp_fusion=fused))
            assert isinstance(refusal, Refusal)
            assert "expects an integer constant expression" in refusal.words
    finally:
        pool.close()


ADD = Elementwise(InlineAsm("add.f32 $0, $1, $1;", "=f,f"), ("fp32",), ("fp32",), (100,)).spec(
    "sm_90a", enable_fp_fusion=False
)


@pytest.mark.parametrize("mutant", ["text", "function"])
def test_mutants_share_nothing(front, mutant):
    held = {ADD.function: stages.load(ADD.function)} if mutant == "function" else None
    swap = compiling.AsmSwap(marked("add.f32 $0, $1, $1;"), "=f,f", "mul.f32 $0, $1, $1;", "=f,f")
    swaps = (swap,) if mutant == "text" else ()
    for fused in (False, True):
        stages.lower(replace(ADD, swaps=swaps, enable_fp_fusion=fused), held)
    assert len(front) == 2
