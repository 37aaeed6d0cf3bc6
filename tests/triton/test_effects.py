"""Blocks with effects, counted in PTX and machine code: impure blocks are all kept, and pure ones may be merged.

`cases/effects.py` counts executions. These tests count what it cannot: readings of registers, whose values are no
output.
"""

import re
from pathlib import Path

import pytest
import triton
import triton.language as tl

from ptxdiff.backends.compiled import compile_job
from ptxdiff.jobs import Job, Setup
from ptxdiff.model.load import load
from ptxdiff.triton.assemble import assemble, disassemble
from ptxdiff.triton.compile import compile_kernel
from ptxdiff.triton.spec import FunctionRef, KernelSpec
from ptxdiff.triton.targets import tool

# Each with the instruction that reads it in machine code for sm_90a.
REGISTERS = {
    "%clock64": ("u64", "SR_CLOCK"),
    "%globaltimer": ("u64", "SR_GLOBALTIMER"),
    "%smid": ("u32", "SR_VIRTUALSMID"),
    "%laneid": ("u32", "SR_LANEID"),
}


@triton.jit
def read(ASM: tl.constexpr, PURE: tl.constexpr):
    return tl.inline_asm_elementwise(ASM, "=l,r", [0], dtype=tl.int64, is_pure=PURE, pack=1)


@triton.jit
def difference(y, ASM: tl.constexpr, PURE: tl.constexpr):
    """Two readings. Their difference is 0 if the compiler merges them."""
    tl.store(y, read(ASM, PURE) - read(ASM, PURE))


@triton.jit
def unused(y, ASM: tl.constexpr, PURE: tl.constexpr):
    read(ASM, PURE)
    tl.store(y, 7)


def compiled(function, register, *, pure):
    width, _ = REGISTERS[register]
    text = (
        f"mov.u64 $0, {register};"
        if width == "u64"
        else f"{{ .reg .u32 t; mov.u32 t, {register}; cvt.u64.u32 $0, t; }}"
    )
    constants = (((1,), text), ((2,), pure))
    signature = (("y", "*i64"), ("ASM", "constexpr"), ("PURE", "constexpr"))
    return compile_kernel(KernelSpec(FunctionRef.of(function), signature, constants, ((0,),), "sm_90a", False))


def in_ptx(compilation, register):
    """The number of readings of the register in PTX."""
    return len(re.findall(rf"mov\.\w+\s+\S+, {register};", compilation.ptx))


def in_machine_code(compilation, register):
    sass = disassemble(assemble(compilation), str(tool("nvdisasm"))).text
    return sum(REGISTERS[register][1] in line for line in sass.splitlines() if "/*" in line)


@pytest.mark.parametrize("register", REGISTERS)
def test_two_impure_readings_are_kept_and_two_pure_ones_are_merged(register):
    impure, pure = (compiled(difference, register, pure=p) for p in (False, True))
    assert in_ptx(impure, register) == 2
    assert in_ptx(pure, register) <= 1


@pytest.mark.parametrize("register", REGISTERS)
def test_an_unused_impure_reading_stays_in_the_ptx(register):
    assert in_ptx(compiled(unused, register, pure=False), register) == 1
    assert in_ptx(compiled(unused, register, pure=True), register) == 0


@pytest.mark.sample(2)
@pytest.mark.parametrize("register", ["%clock64", "%globaltimer"])
def test_ptxas_keeps_both_readings_of_a_register_that_changes_with_time(register):
    kernel = compiled(difference, register, pure=False)
    assert (in_ptx(kernel, register), in_machine_code(kernel, register)) == (2, 2)


def test_the_case_of_the_clock_keeps_both_readings_around_its_load():
    """`cases/tlx_clock.py`: the readings are kept although the difference is unused."""
    loaded = load(Path("cases/tlx_clock.py"))[0]
    setup = Setup(sizes={"n": 128})
    job = Job(loaded.case, loaded.name, loaded.path, "asm", loaded.case.variants["asm"], "sm_90a", setup)
    assert in_ptx(compile_job(job).compilation, "%clock64") == 2
