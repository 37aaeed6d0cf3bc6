"""A module's variables in global memory: machine code reads their addresses from constant bank 4."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import Buffer, PtxError, load_kernel, run_kernel
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.sass.cubin import MachineCode, disassembled, machine_code
from ptxdiff.sass.run import run_machine_code
from ptxdiff.sass.text import Unsupported
from ptxdiff.triton.targets import assembler as bundled
from ptxdiff.triton.targets import tool

PTX = """
.version 8.0
.target sm_80
.address_size 64
.global .align 4 .u32 table[5] = {11, 22, 33, 44, 55};
.global .align 8 .u64 counts[64];
.global .align 1 .u8 bytes[3] = {7, 8, 9};
.visible .entry k(.param .u64 out) .maxntid 32
{
  .reg .b64 o, t, c, n, i, s; .reg .b32 x, y, z; .reg .pred p;
  ld.param.u64 o, [out]; cvta.to.global.u64 o, o;
  mov.u32 x, %tid.x; cvt.u64.u32 i, x;
  rem.u32 y, x, 5; mul.wide.u32 s, y, 4; mov.u64 t, table; add.u64 t, t, s; ld.global.u32 y, [t];
  shl.b64 s, i, 3; mov.u64 c, counts; add.u64 c, c, s;
  cvt.u64.u32 n, y; st.global.u64 [c], n; ld.global.u64 n, [c]; cvt.u32.u64 y, n;
  rem.u32 z, x, 3; cvt.u64.u32 s, z; mov.u64 t, bytes; add.u64 t, t, s; ld.global.u8 z, [t]; add.u32 y, y, z;
  shl.b64 s, i, 2; add.u64 o, o, s; st.global.u32 [o], y;
  ret;
}
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("level", [0, 3])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_initial_values_and_zeros_lie_where_the_code_looks(target: str, level: int) -> None:
    text = PTX.replace("sm_80", target).replace(
        ".version 8.0", ".version 8.7" if target == "sm_120a" else ".version 8.0"
    )
    code = assembled(text, target, level)
    assert len(code.variables) >= 64 * 8 + 5 * 4 + 3
    outputs = [np.zeros(32, np.uint32) for _ in range(3)]
    run_kernel(load_kernel(text), [Buffer(outputs[0], "out", defined=False)], (1,), num_threads=32)
    for output in outputs[1:]:  # each launch begins with the initial values
        run_machine_code(code, [Buffer(output, "out", defined=False)], (1,), 32)
    assert outputs[0].tolist() == [(11, 22, 33, 44, 55)[k % 5] + (7, 8, 9)[k % 3] for k in range(32)]
    for output in outputs[1:]:
        assert (output == outputs[0]).all()


POINTERS = """
.version 8.7
.target {target}
.address_size 64
.global .align 4 .u32 table[4] = {{11, 22, 33, 44}};
.{space} .align 8 .u64 pointers[2] = {{{first}, generic(table) + 12}};
.visible .entry k(.param .u64 out) .maxntid 32
{{
  .reg .b64 o, t, s; .reg .b32 x, y;
  ld.param.u64 o, [out]; cvta.to.global.u64 o, o;
  mov.u32 x, %tid.x; mul.wide.u32 s, x, 4; add.u64 o, o, s; and.b32 y, x, 1; mul.wide.u32 s, y, 8;
  mov.u64 t, pointers; add.u64 t, t, s; ld.{space}.u64 t, [t]; ld.u32 y, [t]; st.global.u32 [o], y;
  ret;
}}
"""


@pytest.mark.sample(3)
@pytest.mark.parametrize("space", ["global", "const"])
@pytest.mark.parametrize("target", ["sm_80", "sm_120a"])
def test_addresses_of_variables_as_initial_values(target: str, space: str) -> None:
    code = assembled(POINTERS.format(target=target, space=space, first="table"), target, 3)
    output = np.zeros(32, np.uint32)
    run_machine_code(code, [Buffer(output, "out", defined=False)], (1,), 32)
    assert output.tolist() == 16 * [11, 44]


@pytest.mark.sample(2)
@pytest.mark.parametrize("space", ["global", "const"])
def test_an_initial_value_that_is_an_address_of_constants_is_refused_and_not_zero(space: str) -> None:
    text = POINTERS.format(target="sm_90a", space=space, first="generic(other)")
    text = text.replace(".global .align 4", ".const .align 4 .u32 other[2] = {1, 2};\n.global .align 4")
    section = {"global": "global.init", "const": "constant3"}[space]
    with pytest.raises(Unsupported, match=f"of .nv.{section} is an address"):
        assembled(text, "sm_90a", 3)


def assembled(text: str, target: str, level: int) -> MachineCode:
    cubin = assembler(bundled(target).path, level).assemble(text, target).cubin
    return machine_code(cubin, disassembled(cubin, tool("nvdisasm")))


WITHOUT_PARAMETERS = """
.version 8.0
.target sm_80
.address_size 64
.global .u32 seen;
.visible .entry k() .maxntid 64
{
  .reg .b64 o; .reg .b32 x, y; .reg .pred p;
  mov.u32 x, %ntid.x; mov.u32 y, %nctaid.x; add.u32 x, x, y;
  setp.ne.u32 p, x, 65;
  @p trap;
  mov.u64 o, seen; st.global.u32 [o], x;
  ret;
}
"""


@pytest.mark.sample(2)
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_100a", "sm_120a"])
def test_a_kernel_without_parameters_finds_the_size_of_its_block(target: str) -> None:
    text = WITHOUT_PARAMETERS.replace(".target sm_80", f".target {target}").replace("8.0", "8.7")
    assert run_ptx(text, 1, 64, level="sass").thread_instructions > 0
    with pytest.raises(PtxError):  # the trap is reached only if it is another block
        run_ptx(text, 1, 32, level="sass")
