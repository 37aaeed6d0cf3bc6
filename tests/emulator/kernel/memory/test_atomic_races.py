"""Stores that race with atomic operations of other threads: either of the two may come first."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.errors import MemoryFault

GLOBAL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry counted(.param .u64 y)
{{
    .reg .pred p;
    .reg .b32 t, old;
    .reg .b64 at;
    ld.param.u64 at, [y];
    mov.u32 t, %tid.x;
    setp.eq.u32 p, t, 0;
    {body}
    ret;
}}
"""
SHARED = """.version 8.0
.target sm_90
.address_size 64
.visible .entry counted(.param .u64 y)
{{
    .reg .pred p;
    .reg .b32 t, old, place;
    .reg .b64 at;
    .shared .align 4 .b8 count[4];
    ld.param.u64 at, [y];
    mov.u32 t, %tid.x;
    setp.eq.u32 p, t, 0;
    mov.u32 place, count;
    {body}
    bar.sync 0;
    ld.shared.u32 old, [place];
    @p st.global.u32 [at], old;
    ret;
}}
"""
ZERO, ADD, FIVE = "@p st.global.u32 [at], 0;", "atom.global.add.u32 old, [at], 1;", "@p st.global.u32 [at], 5;"
IN_SHARED = {ZERO: "@p st.shared.u32 [place], 0;", ADD: "atom.shared.add.u32 old, [place], 1;"}
FOREIGN = r"race: thread 1 of block .* updates .* which (thread 0 of block \(0, 0, 0\)|another thread) (read or )?wrote"


def run(template: str, *statements: str, before: int = 7) -> int:
    y = np.full(1, before, dtype=np.uint32)
    run_ptx(template.format(body="\n    ".join(statements)), 1, 64, y)
    return int(y[0])


def test_an_atomic_after_a_store_needs_a_barrier_between_them():
    assert run(GLOBAL, ZERO, "bar.sync 0;", ADD) == 64
    with pytest.raises(MemoryFault, match=FOREIGN):
        run(GLOBAL, ZERO, ADD)


def test_a_store_after_atomics_needs_a_barrier_between_them():
    assert run(GLOBAL, ADD, "bar.sync 0;", FIVE) == 5
    with pytest.raises(MemoryFault, match=r"race: thread 0 .* overwrites .* other threads of its block updated"):
        run(GLOBAL, ADD, FIVE)


def test_atomics_do_not_race_with_each_other_nor_with_their_own_thread():
    assert run(GLOBAL, ADD, ADD) == 7 + 128
    assert run(GLOBAL, ZERO, "@p " + ADD, "@p " + ADD) == 2
    assert run(GLOBAL, "@p " + ADD, FIVE) == 5


def test_a_store_that_changes_nothing_is_no_race():
    """The same holds for other stores: a layout that replicates an element stores it from several threads."""
    assert run(GLOBAL, "@p " + ADD, "st.global.u32 [at], 8;") == 8


def test_an_atomic_on_shared_memory_after_a_store_needs_a_barrier_too():
    zero, add = IN_SHARED[ZERO], IN_SHARED[ADD]
    assert run(SHARED, zero, "bar.sync 0;", add) == 64
    assert run(SHARED, zero, "bar.sync 0;", add, add) == 128
    with pytest.raises(MemoryFault, match=FOREIGN):
        run(SHARED, zero, add)


def test_a_read_of_shared_memory_after_atomics_needs_a_barrier_between_them():
    zero, add = IN_SHARED[ZERO], IN_SHARED[ADD]
    with pytest.raises(MemoryFault, match=r"reads shared memory .* and no barrier lies between"):
        run(SHARED, zero, "bar.sync 0;", add, "ld.shared.u32 old, [place]; @p st.global.u32 [at], old;")
