"""Kernels of one block for proofs of machine code: by a ptxas, or written by hand."""

from __future__ import annotations

import re

import numpy as np

from ptxdiff.emulator import Buffer
from ptxdiff.proving.solving import ProofSearch, Verdict
from ptxdiff.proving.translation import AssembledKernel, prove_translation
from ptxdiff.sass.cubin import MachineCode, Parameter, disassembled, machine_code
from ptxdiff.triton.assemble import cubin_of
from ptxdiff.triton.targets import assembler, tool
from tests.support.sass.assembly import written

THREADS = 32


def kernel(body: str, inputs: int = 2, target: str = "sm_90a") -> str:
    """A module whose threads each load a word of some inputs, %a, %b, ..., and store %y."""
    names = "abcd"[:inputs]
    area = ", ".join(f".param .u64 p{n}" for n in (*names, "y"))
    loads = "".join(
        f"ld.param.u64 %p{n}, [p{n}]; add.u64 %p{n}, %p{n}, %o; ld.global.b32 %{n}, [%p{n}];\n" for n in names
    )
    registers = ", ".join(f"%{n}" for n in (*names, "y", "t"))
    return f""".version 8.4
.target {target}
.address_size 64
.visible .entry kernel({area}) {{
.reg .b32 {registers}, %i, %r<8>; .reg .b64 %o, %w<4>, {", ".join(f"%p{n}" for n in (*names, "y"))}; .reg .pred %q<4>;
mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 4;
{loads}{body}
ld.param.u64 %py, [py]; add.u64 %py, %py, %o; st.global.b32 [%py], %y;
ret;
}}
"""


def translation(
    ptx: str, *, made_of: str | None = None, code: MachineCode | None = None, ptxas: str = "", level: int | None = None
) -> AssembledKernel:
    """A kernel and its machine code. made_of: another text, of which the machine code is made instead."""
    target = re.search(r"\.target (\S+)", ptx)
    assert target is not None
    if code is None:
        cubin = cubin_of(made_of or ptx, ptxas or assembler(target[1]).path, level)
        code = machine_code(cubin, disassembled(cubin, tool("nvdisasm")))
    count = len(re.findall(r"\.param \.u64", ptx.partition("{")[0]))

    def make() -> list[Buffer]:
        inputs = [Buffer(np.zeros(THREADS, np.uint32), f"in{k}") for k in range(count - 1)]
        return [*inputs, Buffer(np.zeros(THREADS, np.uint32), "out", defined=False)]

    return AssembledKernel(ptx, None, code, target[1], (THREADS, 1, 1), (1,), make)


def by_hand(body: str, inputs: int) -> MachineCode:
    """Instructions of sm_90 as nvdisasm prints them; the parameters are pointers."""
    places = tuple(Parameter(8 * k, 8) for k in range(inputs + 1))
    return MachineCode("kernel", "sm_90", written(body), places, 0x210, {}, 0, 0)


def proved(one: AssembledKernel, seconds: float = 60.0) -> Verdict:
    """The verdict on it."""
    return prove_translation(one, ProofSearch(seconds, ()))
