"""`ptxdiff.run_ptx`: kernels of any compiler, on the CPU."""

import struct
from pathlib import Path

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator import ExecutionError, PtxError, UndefinedBits
from ptxdiff.emulator.errors import MemoryFault
from ptxdiff.launcher import LaunchError

HEADER = ".version 8.0\n.target sm_75\n.address_size 64\n"
MODULE = Path(__file__).parents[1] / "cases" / "cuda_fma.ptx"


def kernel(parameters, body, name="k", directives=""):
    """A module with one kernel. Its threads have their number in %r0, and the first parameter's address in %a0."""
    declared = ", ".join(f".param {kind} p{number}" for number, kind in enumerate(parameters))
    return f"""{HEADER}.visible .entry {name}({declared}) {directives}
{{ .reg .b64 %a<8>; .reg .b32 %r<8>; .reg .pred %p<4>;
mov.u32 %r0, %tid.x;
ld.param.u64 %a0, [p0];
{body}
ret; }}"""


STORE = "mad.wide.u32 %a1, %r0, 4, %a0; st.global.u32 [%a1], %r1;"


def test_a_kernel_that_nvcc_compiled():
    x, y, z = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    d = np.zeros_like(x)
    run_ptx(MODULE, -(-1000 // 256), 256, x, y, z, d, 1000, unwritten=[3])
    exact = x.astype(np.float64) * y + z  # an exact product; the sum is rounded to float64
    assert (np.abs(d - exact) <= np.spacing(np.abs(exact).astype(np.float32))).all()


def test_blocks_and_grids_have_three_dimensions():
    body = """mov.u32 %r1, %tid.y; mov.u32 %r2, %ntid.x; mad.lo.u32 %r0, %r1, %r2, %r0;
mov.u32 %r3, %ctaid.y; mov.u32 %r4, %nctaid.x; mov.u32 %r5, %ctaid.x; mad.lo.u32 %r3, %r3, %r4, %r5;
mad.lo.u32 %r0, %r3, 32, %r0; mov.u32 %r1, %r0;"""
    y = np.full(192, -1, np.int32)
    run_ptx(kernel([".u64"], body + STORE), (3, 2), (8, 4), y)
    assert (y == np.arange(192)).all()


def test_structures_and_numbers_are_parameters():
    body = "ld.param.u32 %r1, [p1+4]; ld.param.u32 %r2, [p2]; add.u32 %r1, %r1, %r2;" + STORE
    y = np.zeros(32, np.int32)
    run_ptx(
        kernel([".u64", ".align 4 .b8", ".u32"], body).replace("p1,", "p1[8],"), 1, 32, y, struct.pack("<ii", 5, 7), 30
    )
    assert (y == 37).all()


def test_dynamic_shared_memory():
    body = """mov.u32 %r1, part; mad.lo.u32 %r2, %r0, 4, %r1; st.shared.u32 [%r2], %r0; bar.sync 0;
xor.b32 %r3, %r0, 31; mad.lo.u32 %r2, %r3, 4, %r1; ld.shared.u32 %r1, [%r2];"""
    module = kernel([".u64"], body + STORE).replace(HEADER, HEADER + ".extern .shared .align 4 .b8 part[];\n")
    y = np.zeros(32, np.int32)
    run_ptx(module, 1, 32, y, shared=128)
    assert (y == np.arange(31, -1, -1)).all()
    with pytest.raises(MemoryFault, match="shared"):
        run_ptx(module, 1, 32, y, shared=64)


def test_ldu_needs_one_address_for_the_whole_warp():
    same = "ldu.global.u32 %r1, [%a0+4];" + STORE
    y = np.arange(32, dtype=np.int32)
    run_ptx(kernel([".u64"], same), 1, 32, y, races=False)
    assert (y == 1).all()
    apart = "mad.wide.u32 %a1, %r0, 4, %a0; ldu.global.u32 %r1, [%a1];" + STORE
    with pytest.raises(ExecutionError, match="thread 1 of block"):
        run_ptx(kernel([".u64"], apart), 1, 32, y)


def test_a_kernel_of_several_is_chosen_by_name():
    two = kernel([".u64"], "mov.u32 %r1, 1;" + STORE, "one")
    two += kernel([".u64"], "mov.u32 %r1, 2;" + STORE, "two").removeprefix(HEADER)
    y = np.zeros(32, np.int32)
    run_ptx(two, 1, 32, y, entry="two")
    assert (y == 2).all()
    with pytest.raises(PtxError, match="one, two"):
        run_ptx(two, 1, 32, y)


def test_the_target_may_be_a_later_one_than_the_module_names():
    y = np.zeros(32, np.int32)
    body = "mov.u32 %r1, %r0;"
    newer = kernel([".u64"], "{ .reg .b64 %q; createpolicy.fractional.L2::evict_first.b64 %q, 1.0; }" + body + STORE)
    run_ptx(newer, 1, 32, y, target="sm_100a")
    assert (y == np.arange(32)).all()
    with pytest.raises(PtxError, match="sm_80"):
        run_ptx(newer, 1, 32, y)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"args": ()}, "has 1 parameters, but 0 were given"),
        ({"block": 33}, "whole warps"),
        ({"block": (8, 4, 1, 1)}, "one to three sizes"),
        ({"block": None}, "does not state its threads"),
        ({"entry": "other"}, "other"),
        ({"unwritten": [3]}, "unwritten= names argument 3"),
        ({"args": ("text",)}, "no buffer, number or bytes"),
    ],
)
def test_a_kernel_that_cannot_be_launched_is_reported(change, words):
    given = {"block": 32, "args": (np.zeros(32, np.int32),)} | change
    block, args = given.pop("block"), given.pop("args")
    with pytest.raises((LaunchError, PtxError), match=words):
        run_ptx(kernel([".u64"], "mov.u32 %r1, 1;" + STORE), 1, block, *args, **given)


def test_a_block_that_the_kernel_does_not_demand_is_refused():
    module = kernel([".u64"], "mov.u32 %r1, 1;" + STORE, directives=".reqntid 16, 2, 1")
    y = np.zeros(32, np.int32)
    run_ptx(module, 1, None, y)
    with pytest.raises(PtxError, match=r"demands blocks of \(16, 2, 1\)"):
        run_ptx(module, 1, 32, y)


def test_unwritten_bytes_and_races_are_detected_and_arrays_stay_unchanged():
    y = np.zeros(64, np.int32)
    with pytest.raises(UndefinedBits, match="never written"):
        run_ptx(kernel([".u64"], "mov.u32 %r1, 1;" + STORE), 1, 32, y, unwritten=[0])
    with pytest.raises(MemoryFault, match="race"):
        run_ptx(kernel([".u64"], "mov.u32 %r1, %r0; shr.u32 %r0, %r0, 1;" + STORE), 1, 64, y)
    assert not y[:2].any() or (y[:32] == 1).all()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("tex.1d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%a0, {%r1}];", "texture or surface"),
        ("suld.b.1d.b32.trap {%r1}, [%a0, {%r1}];", "texture or surface"),
        ("mov.b32 %r1, %envreg3;", "%envreg3, which no run here can know"),
    ],
)
def test_an_instruction_that_the_emulator_does_not_run_is_reported(line, words):
    with pytest.raises(PtxError, match=words):
        run_ptx(kernel([".u64"], line + STORE), 1, 32, np.zeros(32, np.int32))


def test_the_name_of_a_file_is_not_its_text():
    with pytest.raises(LaunchError, match=r"pass a path: run_ptx\(Path\('kernel.ptx'\)"):
        run_ptx("kernel.ptx", 1, 32)
