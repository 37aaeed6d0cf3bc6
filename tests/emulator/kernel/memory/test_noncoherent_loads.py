"""Loads of what nobody may write while the kernel runs: `ld.global.nc` and `ldu` of bytes that the kernel wrote."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.errors import MemoryFault

KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry moved(.param .u64 x, .param .u64 y)
{{
    .reg .b32 t, a, b;
    .reg .b64 at, from, to, px, py;
    ld.param.u64 px, [x];
    ld.param.u64 py, [y];
    mov.u32 t, %tid.x;
    mul.wide.u32 at, t, 4;
    add.u64 from, px, at;
    add.u64 to, py, at;
    {body}
    st.global.u32 [to], b;
    ret;
}}
"""
WRITE, COUNT = "st.global.u32 [from], t;", "red.global.add.u32 [from], 5;"
STALE = r"reads argument 0 at offset \d+ by {}, which may give what was there before this kernel wrote it"


def run(*statements: str) -> list[int]:
    x, y = np.full(64, 7, np.uint32), np.zeros(64, np.uint32)
    run_ptx(KERNEL.format(body="\n    ".join(statements)), 1, 64, x, y)
    return [int(v) for v in np.unique(y)]


@pytest.mark.parametrize("load", ["ld.global.nc.u32", "ld.global.nc.L1::no_allocate.u32"])
@pytest.mark.parametrize("before", [[WRITE], [WRITE, "bar.sync 0;"], [COUNT]])
def test_a_load_that_is_not_coherent_must_not_read_what_the_kernel_wrote(load, before):
    """Neither order within a thread nor a barrier helps: the cache may hold the bytes from before the store."""
    with pytest.raises(MemoryFault, match=STALE.format(r"ld\.nc")):
        run(*before, f"{load} b, [from];")


def test_a_load_of_one_address_for_a_warp_must_not_either():
    assert run("ldu.global.u32 b, [px];") == [7]
    with pytest.raises(MemoryFault, match=STALE.format("ldu")):
        run(WRITE, "bar.sync 0;", "ldu.global.u32 b, [px];")


@pytest.mark.parametrize("before", [[WRITE], [COUNT]])
def test_a_coherent_load_reads_it(before):
    assert run(*before, "ld.global.u32 b, [from];") == (list(range(64)) if before == [WRITE] else [12])


def test_a_store_after_the_thread_s_own_load_is_no_fault():
    assert run("ld.global.nc.u32 b, [from];", WRITE) == [7]
    assert run("ld.global.nc.u32 b, [from];") == [7]
