"""Blocks that communicate through global memory: what orders them, and what they may see (PTX ISA 8)."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.kernel.run import ORDERED, load_kernel, run_kernel
from tests.support.emulator.grid_kernels import GRID_BARRIER, RELEASED, WRONG_BARRIERS

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 flag, .param .u64 out)
{
    .reg .pred p, q;
    .reg .b32 t, b, n, v, w, i, s;
    .reg .b64 d, f, o, at;
    .shared .b32 ticket[1];
    ld.param.u64 d, [data];
    ld.param.u64 f, [flag];
    ld.param.u64 o, [out];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    mov.u32 n, %nctaid.x;
    setp.eq.u32 q, t, 0;
"""


def run(body: str, blocks: int = 2, threads: int = 32, words: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """The data and the results of a kernel: three buffers of zeros."""
    data, flag, out = (np.zeros(words, np.uint32) for _ in range(3))
    kernel = load_kernel(HEAD + body + "\n ret;\n}\n")
    run_kernel(kernel, [Buffer(data, "data"), Buffer(flag, "flag"), Buffer(out, "out")], (blocks,), num_threads=threads)
    return data, out


@pytest.mark.parametrize("name", WRONG_BARRIERS)
def test_wrong_barriers_of_a_grid_are_found(name):
    data, out = np.zeros(512, np.uint32), np.zeros(512, np.uint32)
    buffers = [Buffer(data, "data"), Buffer(np.zeros(1, np.uint32), "count"), Buffer(out, "out")]
    text = GRID_BARRIER.format(**WRONG_BARRIERS[name])
    with pytest.raises(MemoryFault, match=r"race: .* nothing orders them"):
        run_kernel(text, buffers, (8,), num_threads=64)


FLAGGED = """
    @!q ret;
    setp.ne.u32 p, b, 0;
    @p bra SECOND;
    {first}
    st.relaxed.gpu.global.u32 [f], 1;
    ret;
SECOND:
    ld.relaxed.gpu.global.u32 w, [f];
    setp.eq.u32 p, w, 0;
    @p bra SECOND;
    {second}
"""
"""Block 1 accesses the data when it sees a relaxed flag that block 0 set after its access, which orders nothing."""


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ("st.global.u32 [d], 5;", "ld.global.u32 v, [d];", "reads data at offset 0, which .* wrote"),
        ("st.global.u32 [d], 5;", "st.global.u32 [d], 6;", "overwrites data at offset 0, which .* wrote"),
        ("ld.global.u32 v, [d];", "st.global.u32 [d], 6;", "overwrites data at offset 0, which .* read"),
        ("ld.relaxed.gpu.global.u32 v, [d];", "st.global.u32 [d], 6;", "overwrites data at offset 0, which .* read"),
        ("ld.global.u32 v, [d];", "red.gpu.global.add.u32 [d], 6;", "updates data at offset 0, which .* read"),
        ("red.gpu.global.add.u32 [d], 5;", "ld.global.u32 v, [d];", "reads data at offset 0, which .* updated"),
        ("red.gpu.global.add.u32 [d], 5;", "st.global.u32 [d], 6;", "overwrites data at offset 0, which .* updated"),
    ],
)
def test_conflicting_accesses_that_nothing_orders_are_races_and_say_what_the_first_did(first, second, message):
    with pytest.raises(MemoryFault, match=rf"race: thread 0 of block \(1, 0, 0\) {message}"):
        run(FLAGGED.format(first=first + " st.global.u32 [o], v;" * first.startswith("ld"), second=second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("ld.relaxed.gpu.global.u32 v, [d];", "red.gpu.global.add.u32 [d], 6;"),
        ("red.gpu.global.add.u32 [d], 5;", "ld.relaxed.gpu.global.u32 v, [d];"),
        ("red.gpu.global.add.u32 [d], 5;", "red.gpu.global.add.u32 [d], 6;"),
        ("ld.global.u32 v, [d];", "ld.global.u32 v, [d];"),
    ],
)
def test_strong_accesses_and_reads_do_not_race(first, second):
    run(FLAGGED.format(first=first, second=second))


ROUNDS = """
    shl.b32 i, b, 2;
    cvt.u64.u32 at, i;
    add.u64 d, d, at;
    add.u64 o, o, at;
    @!q ret;
    st.global.u32 [d], 7;
    {arrival}.add.u32 [f], 1;
FIRST:
    ld.acquire.gpu.global.u32 w, [f];
    setp.lt.u32 p, w, n;
    @p bra FIRST;
    xor.b32 i, i, 4;
    ld.param.u64 d, [data];
    cvt.u64.u32 at, i;
    add.u64 d, d, at;
    ld.global.u32 v, [d];
    red.release.gpu.global.add.u32 [f], 1;
    st.global.u32 [o], v;
"""
"""A grid barrier on a counter that goes on growing: arrivals at the next barrier may already be in it."""


def test_a_wait_that_ends_with_an_old_value_learns_what_came_before_it():
    _, out = run(ROUNDS.format(arrival="red.release.gpu.global"), blocks=4)
    np.testing.assert_array_equal(out[:4], 7)


def test_a_wait_that_ends_with_an_old_value_learns_no_relaxed_arrival():
    with pytest.raises(MemoryFault, match=r"race: .* nothing orders them"):
        run(ROUNDS.format(arrival="red.relaxed.gpu.global"), blocks=4)


# message passing -----------------------------------------------------------------------------------------------------

MESSAGE = """
    @!q ret;
    setp.eq.u32 p, b, 0;
    @p bra WAIT;
    {store} [d], 7;
    {release}
    ret;
WAIT:
    {acquire}
    setp.eq.u32 p, v, 0;
    @p bra WAIT;
    {fence}
    {load} v, [d];
    st.global.u32 [o], v;
"""
PASSED = {
    "store": "st.global.u32",
    "release": "st.release.gpu.global.u32 [f], 1;",
    "acquire": "ld.acquire.gpu.global.u32 v, [f];",
    "fence": "",
    "load": "ld.global.u32",
}
RELAXED = PASSED | {
    "release": "st.relaxed.gpu.global.u32 [f], 1;",
    "acquire": "ld.relaxed.gpu.global.u32 v, [f];",
}


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"release": "fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [f], 1;"},
        {"release": "membar.gl; st.volatile.global.u32 [f], 1;"},
        {"release": "red.release.gpu.global.add.u32 [f], 1;"},
        {"release": "atom.release.gpu.global.exch.b32 s, [f], 1;"},
        {"acquire": "ld.volatile.global.u32 v, [f];", "fence": "fence.sc.gpu;"},
        {"acquire": "ld.relaxed.sys.global.u32 v, [f];", "fence": "fence.acq_rel.gpu;"},
        {"acquire": "atom.acquire.gpu.global.add.u32 v, [f], 0;"},
        {"store": "st.relaxed.gpu.global.u32", "load": "ld.relaxed.gpu.global.u32"},
        {"store": "st.global.u32", "load": "ld.volatile.global.u32"},
    ],
)
def test_a_release_and_an_acquire_pass_a_message(parts):
    assert run(MESSAGE.format(**PASSED | parts))[1][0] == 7


@pytest.mark.parametrize(
    "parts",
    [
        RELAXED,
        RELAXED | {"fence": "fence.acq_rel.gpu;"},
        {"release": RELAXED["release"]},
        {"acquire": RELAXED["acquire"]},
        {"release": "st.global.u32 [f], 1;"},
        {"acquire": "ld.global.u32 v, [f];"},
        {"release": "st.release.cta.global.u32 [f], 1;"},
        {"acquire": "ld.acquire.cta.global.u32 v, [f];"},
        {"acquire": "ld.relaxed.gpu.global.u32 v, [f];", "fence": "fence.acq_rel.cta;"},
        {"release": "st.relaxed.gpu.global.u32 [f], 1; fence.acq_rel.gpu;"},
        {"release": "fence.acq_rel.cta; st.relaxed.gpu.global.u32 [f], 1;"},
        {"store": "st.release.gpu.global.u32 [f], 1; st.global.u32", "release": ""},
    ],
)
def test_a_message_that_nothing_orders_is_a_race(parts):
    with pytest.raises(MemoryFault, match="race"):
        run(MESSAGE.format(**PASSED | parts))


def test_a_relaxed_flag_shows_an_old_value_of_relaxed_data():
    """No race: all accesses are strong. But the reader computes with what was there before the message."""
    parts = RELAXED | {"store": "st.relaxed.gpu.global.u32", "load": "ld.relaxed.gpu.global.u32"}
    assert run(MESSAGE.format(**parts))[1][0] == 0
    volatile = {"release": "st.volatile.global.u32 [f], 1;", "acquire": "ld.volatile.global.u32 v, [f];"}
    volatile |= {"store": "st.volatile.global.u32", "load": "ld.volatile.global.u32"}
    assert run(MESSAGE.format(**PASSED | volatile))[1][0] == 0


def test_a_value_that_was_seen_once_is_never_old_again():
    """Coherence: a later read of the block, and what it orders after itself, sees the value or a newer one."""
    body = """
    setp.eq.u32 p, b, 0;
    @p bra WAIT;
    @q st.relaxed.gpu.global.u32 [f], 1;
    ret;
WAIT:
    ld.relaxed.gpu.global.u32 v, [f];
    setp.eq.u32 p, v, 0;
    @p bra WAIT;
    bar.sync 0;
    ld.relaxed.gpu.global.u32 w, [f];
    mul.wide.u32 at, t, 4;
    add.u64 o, o, at;
    st.global.u32 [o], w;
    """
    assert run(body)[1][:32].tolist() == [1] * 32


def test_store_buffering_with_fences_sees_at_least_one_store():
    body = """
    @!q ret;
    mul.wide.u32 at, b, 4;
    add.u64 d, d, at;
    st.relaxed.gpu.global.u32 [d], 1;
    fence.sc.gpu;
    neg.s64 at, at;
    add.u64 d, d, at;
    setp.eq.u32 p, b, 0;
    selp.b64 at, 4, 0, p;
    add.u64 d, d, at;
    ld.relaxed.gpu.global.u32 v, [d];
    mul.wide.u32 at, b, 4;
    add.u64 o, o, at;
    st.global.u32 [o], v;
    """
    assert run(body)[1][:2].any()


# idioms --------------------------------------------------------------------------------------------------------------

LOCK = """
    @!q bra JOIN;
TAKE:
    atom.{acquire}.gpu.global.cas.b32 v, [f], 0, 1;
    setp.ne.u32 p, v, 0;
    @p bra TAKE;
JOIN:
    bar.sync 0;
    mul.wide.u32 at, t, 4;
    add.u64 d, d, at;
    ld.global.u32 v, [d];
    add.u32 v, v, 1;
    st.global.u32 [d], v;
    {barrier}
    @q atom.{release}.gpu.global.exch.b32 v, [f], 0;
"""
"""A lock around a sum in memory, as Triton's tl.atomic_cas, tl.debug_barrier and tl.atomic_xchg make it."""
TAKEN = {"acquire": "acq_rel", "release": "acq_rel", "barrier": "bar.sync 0;"}


@pytest.mark.parametrize("parts", [{}, {"acquire": "acquire", "release": "release"}])
def test_a_lock_orders_those_who_hold_it(parts):
    assert run(LOCK.format(**TAKEN | parts), blocks=6, threads=64)[0].tolist() == [6] * 64


@pytest.mark.parametrize("parts", [{"acquire": "relaxed"}, {"release": "relaxed"}, {"barrier": ""}])
def test_wrong_locks_are_found(parts):
    with pytest.raises(MemoryFault, match="race"):
        run(LOCK.format(**TAKEN | parts), blocks=6, threads=64)


LAST = """
    mad.lo.u32 i, b, 32, t;
    mul.wide.u32 at, i, 4;
    add.u64 at, at, d;
    add.u32 v, b, 1;
    st.global.u32 [at], v;
    {fence}
    {barrier}
    @q atom.global.add.u32 s, [f], 1;
    @q st.shared.u32 [ticket], s;
    bar.sync 0;
    ld.shared.u32 s, [ticket];
    add.u32 s, s, 1;
    setp.ne.u32 p, s, {last};
    @p ret;
    {behind}
    mov.u32 v, 0;
    mov.u32 i, 0;
    mul.wide.u32 at, t, 4;
    add.u64 d, d, at;
SUM:
    ld.global.u32 w, [d];
    add.u32 v, v, w;
    add.u64 d, d, 128;
    add.u32 i, i, 1;
    setp.lt.u32 p, i, n;
    @p bra SUM;
    add.u64 o, o, at;
    st.global.u32 [o], v;
"""
"""The last block to come sums what all have stored: CUDA's threadFenceReduction."""
FENCED = {"fence": "membar.gl;", "barrier": "bar.sync 0;", "last": "n", "behind": "membar.gl;"}


def test_the_last_block_sums_what_all_have_stored():
    assert run(LAST.format(**FENCED), blocks=5, words=160)[1][:32].tolist() == [15] * 32


@pytest.mark.parametrize("parts", [{"fence": ""}, {"barrier": ""}, {"behind": ""}, {"last": "4"}])
def test_wrong_sums_by_the_last_block_are_found(parts):
    with pytest.raises(MemoryFault, match="race"):
        run(LAST.format(**FENCED | parts), blocks=5, words=160)


STREAM_K = """
    mul.wide.u32 at, t, 4;
    add.u64 d, d, at;
    add.u64 o, o, at;
    setp.eq.u32 p, b, 0;
    @p bra FIX;
    setp.eq.u32 p, b, 1;
    @p bra FIRST;
    @!q bra READY;
TURN:
    {acquire}
    setp.ne.u32 p, v, b;
    @p bra TURN;
READY:
    bar.sync 0;
    ld.global.u32 w, [d];
    bra ADD;
FIRST:
    mov.u32 w, 0;
ADD:
    add.u32 w, w, b;
    st.global.u32 [d], w;
    bar.sync 0;
    @q {release}
    ret;
FIX:
    @!q bra DONE;
ALL:
    {acquire}
    setp.ne.u32 p, v, n;
    @p bra ALL;
DONE:
    bar.sync 0;
    ld.global.u32 w, [d];
    st.global.u32 [o], w;
"""
"""Stream-K's fix-up: block after block adds to a partial tile when the semaphore names it; the first finishes it."""
SEMAPHORE = {
    "acquire": "ld.acquire.gpu.global.u32 v, [f]; add.u32 v, v, 1;",
    "release": "red.release.gpu.global.add.u32 [f], 1;",
}


def test_semaphores_of_stream_k_pass():
    assert run(STREAM_K.format(**SEMAPHORE), blocks=5)[1][:32].tolist() == [1 + 2 + 3 + 4] * 32


@pytest.mark.parametrize(
    "parts",
    [
        {"acquire": SEMAPHORE["acquire"].replace("acquire", "relaxed")},
        {"release": SEMAPHORE["release"].replace("release", "relaxed")},
        {"release": SEMAPHORE["release"].replace("gpu", "cta")},
    ],
)
def test_wrong_semaphores_are_found(parts):
    with pytest.raises(MemoryFault, match="race"):
        run(STREAM_K.format(**SEMAPHORE | parts), blocks=5)


LOOK_BACK = """
    @!q ret;
    atom.relaxed.gpu.global.add.u32 b, [f], 1;
    mul.wide.u32 at, b, 8;
    add.u64 d, d, at;
    mov.u32 w, 0;
    setp.eq.u32 p, b, 0;
    @p bra OWN;
BACK:
    {load}
    setp.eq.u32 p, s, 0;
    @p bra BACK;
OWN:
    add.u32 i, b, 1;
    add.u32 w, w, i;
    {store}
    mul.wide.u32 at, b, 4;
    add.u64 o, o, at;
    st.global.u32 [o], w;
"""
"""A scan by decoupled look-back: each block waits for the sum of the one before, in a word beside its state."""
ONE_WORD = {
    "load": "ld.relaxed.gpu.global.b64 at, [d-8]; mov.b64 {w, s}, at;",
    "store": "mov.u32 s, 1; mov.b64 at, {w, s}; st.relaxed.gpu.global.b64 [d], at;",
}
TWO_WORDS = {
    "load": "ld.acquire.gpu.global.u32 s, [d-4]; ld.relaxed.gpu.global.u32 w, [d-8];",
    "store": "st.relaxed.gpu.global.u32 [d], w; st.release.gpu.global.u32 [d+4], 1;",
}


def scanned(parts: dict[str, str]) -> bool:
    body = LOOK_BACK.replace("{load}", parts["load"]).replace("{store}", parts["store"])
    return run(body, blocks=6)[1][:6].tolist() == [1, 3, 6, 10, 15, 21]


@pytest.mark.parametrize("parts", [ONE_WORD, TWO_WORDS], ids=["one word", "two words"])
def test_decoupled_look_back_passes(parts):
    assert scanned(parts)


def test_look_back_with_a_relaxed_state_beside_the_sum_gives_old_sums():
    relaxed = {k: v.replace("acquire", "relaxed").replace("release", "relaxed") for k, v in TWO_WORDS.items()}
    assert not scanned(relaxed)


def test_atomics_of_many_blocks_need_no_order():
    body = """
    and.b32 i, t, 7;
    mul.wide.u32 at, i, 4;
    add.u64 d, d, at;
    atom.acq_rel.gpu.global.add.u32 v, [d], 1;
    """
    assert run(body, blocks=8, threads=64)[0][:8].tolist() == [8 * 8] * 8


def test_atomics_of_block_scope_by_several_blocks_are_a_race():
    with pytest.raises(MemoryFault, match="race"):
        run("red.relaxed.cta.global.add.u32 [d], 1;")
    assert run("red.relaxed.cta.global.add.u32 [d], 1;", blocks=1)[0][0] == 32


def test_a_grid_that_is_too_large_to_be_judged_says_so():
    blocks = ORDERED // 64 + 1
    buffers = [Buffer(np.zeros(n, np.uint32), "") for n in (64 * blocks, 1, 64 * blocks)]
    executed = run_kernel(GRID_BARRIER.format(**RELEASED), buffers, (blocks,), num_threads=64)
    assert "races between blocks are judged only up to" in executed.notes[0]


def test_a_lock_that_is_never_given_back_is_a_deadlock():
    body = LOCK.format(**TAKEN).replace("@q atom.acq_rel.gpu.global.exch.b32 v, [f], 0;", "")
    with pytest.raises(ExecutionError, match=r"deadlock: .* waits in a loop"):
        run(body, blocks=3)
