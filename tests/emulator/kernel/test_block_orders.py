"""Blocks that wait for each other: every block gets its turn, in several orders, and a deadlock ends the run."""

from __future__ import annotations

import time

import numpy as np
import pytest

from ptxdiff import run_ptx
from ptxdiff.emulator.errors import ExecutionError, PtxError
from ptxdiff.emulator.kernel.block_orders import ONE_FRAME, TOGETHER, BlockOrder, orders
from ptxdiff.emulator.kernel.memory.space import Buffer
from ptxdiff.emulator.kernel.run import load_kernel, orders_of, run_kernel
from ptxdiff.emulator.kernel.trace.thread import Launched, followed
from tests.support.emulator.grid_kernels import GRID_BARRIER, RELEASED, RIGHT_BARRIERS

ORDERS = orders(True, True, 8, 64)
HANDED_ON = """.version 8.0
.target sm_90
.address_size 64
.visible .entry handed_on(.param .u64 flags, .param .u64 y)
{
    .reg .pred p, last, leader;
    .reg .b32 t, b, n, i, v;
    .reg .b64 f, o, at;
    ld.param.u64 f, [flags];
    ld.param.u64 o, [y];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    mov.u32 n, %nctaid.x;
    setp.ne.u32 leader, t, 0;
    @leader ret;
    mul.wide.u32 at, b, 4;
    add.u64 f, f, at;
    add.u64 o, o, at;
    mov.u32 v, 0;
    add.u32 i, b, 1;
    setp.eq.u32 last, i, n;
    @last bra READY;
WAIT:
    ld.acquire.gpu.global.u32 v, [f+4];
    setp.eq.u32 p, v, 0;
    @p bra WAIT;
READY:
    add.u32 v, v, 1;
    st.global.u32 [o], v;
    st.release.gpu.global.u32 [f], v;
    ret;
}
"""
"""Each block waits for the one behind it."""
TICKETS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry tickets(.param .u64 count, .param .u64 y)
{
    .reg .pred p;
    .reg .b32 t, b, i;
    .reg .b64 c, o, at;
    ld.param.u64 c, [count];
    ld.param.u64 o, [y];
    mov.u32 t, %tid.x;
    mov.u32 b, %ctaid.x;
    setp.ne.u32 p, t, 0;
    @p ret;
    atom.add.relaxed.gpu.global.u32 i, [c], 1;
    mul.wide.u32 at, i, 4;
    add.u64 o, o, at;
    st.global.u32 [o], b;
    ret;
}
"""
"""Each block stores its number in the place that its ticket says."""


def barrier(blocks: int = 8, order: BlockOrder | None = None, **parts: str) -> bool:
    threads = 64
    data, out = np.zeros(blocks * threads, np.uint32), np.zeros(blocks * threads, np.uint32)
    buffers = [Buffer(data, "data"), Buffer(np.zeros(1, np.uint32), "count"), Buffer(out, "out")]
    text = GRID_BARRIER.format(**RELEASED | parts)
    run_kernel(text, buffers, (blocks,), num_threads=threads, order=order)
    number = np.arange(blocks * threads)
    return np.array_equal(out, (number // threads + 1) % blocks * threads + (number % threads + 1) % threads)


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", RIGHT_BARRIERS)
def test_right_barriers_of_a_grid_pass_in_every_order_of_blocks(name):
    assert barrier(**RIGHT_BARRIERS[name])


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: order.words or "together")
def test_the_bits_are_right_in_each_order(order):
    assert barrier(order=order)


@pytest.mark.sample(2)
@pytest.mark.parametrize(("blocks", "threads"), [(3, 32), (40, 32), (ONE_FRAME // 512 + 3, 512)])
def test_blocks_that_wait_for_later_blocks_do_not_starve_them(blocks, threads):
    """With more blocks than run together, too."""
    flags, y = np.zeros(blocks + 1, np.uint32), np.zeros(blocks, np.uint32)
    began = time.process_time()
    run_ptx(HANDED_ON, blocks, threads, flags, y)
    assert time.process_time() - began < 20
    assert np.array_equal(y, np.arange(blocks, 0, -1))


def test_more_waiting_threads_than_a_gpu_holds_are_a_deadlock(monkeypatch):
    monkeypatch.setattr("ptxdiff.emulator.kernel.run.RESIDENT", 512)
    monkeypatch.setattr("ptxdiff.emulator.kernel.run.ONE_FRAME", 512)
    monkeypatch.setattr("ptxdiff.emulator.kernel.run.LANES", 512)
    with pytest.raises(ExecutionError, match=r"deadlock: .* before it ends: .* no GPU runs more at a time"):
        run_ptx(HANDED_ON, 40, 32, np.zeros(41, np.uint32), np.zeros(40, np.uint32))


def test_a_wait_for_what_never_comes_ends_at_once_and_names_the_loop():
    began = time.process_time()
    with pytest.raises(ExecutionError, match=r"deadlock: thread 0 of block \(0, 0, 0\) waits in a loop") as caught:
        barrier(wanted="9")
    assert "ld.acquire" in str(caught.value)
    assert time.process_time() - began < 5


def test_a_loop_that_counts_its_attempts_is_no_deadlock():
    assert barrier(
        arrive=RELEASED["arrive"] + " mov.u32 i, 0;",
        load="ld.acquire.gpu.global.u32 v, [c]; add.u32 i, i, 1; setp.gt.u32 p, i, 20; @p mov.u32 v, 9;",
        wanted="9",
    )


def test_the_message_names_the_order_in_which_a_fault_occurs():
    """The block that comes third traps where the last block runs first."""
    trap = TICKETS.replace(
        "    mul.wide", "    setp.eq.u32 p, i, 2;\n    setp.eq.and.u32 p, b, 1, p;\n    @p trap;\n    mul.wide"
    )
    with pytest.raises(PtxError, match=r"\(with the last blocks and threads first\)"):
        run_ptx(trap, 4, 32, np.zeros(1, np.uint32), np.zeros(4, np.uint32))


def test_atomics_that_wait_for_nobody_are_also_tried_in_reverse():
    kernel = load_kernel(TICKETS)
    assert [o.words for o in orders_of(kernel, (4, 1, 1), 32)] == ["", "with the last blocks and threads first"]
    for order, expected in [(TOGETHER, [0, 1, 2, 3]), (BlockOrder(reverse=True), [3, 2, 1, 0])]:
        y = np.zeros(4, np.uint32)
        buffers = [Buffer(np.zeros(1, np.uint32), "count"), Buffer(y, "y")]
        run_kernel(kernel, buffers, (4,), num_threads=32, order=order)
        assert y.tolist() == expected


def test_a_launch_leaves_the_bits_of_the_usual_order():
    y = np.zeros(4, np.uint32)
    run_ptx(TICKETS, 4, 32, np.zeros(1, np.uint32), y)
    assert y.tolist() == [0, 1, 2, 3]


def test_kernels_whose_blocks_cannot_communicate_run_in_one_order():
    plain = TICKETS.replace("atom.add.relaxed.gpu.global.u32 i, [c], 1;", "mov.u32 i, b;")
    assert orders_of(load_kernel(plain), (4, 1, 1), 32) == (TOGETHER,)
    assert orders_of(load_kernel(TICKETS), (1, 1, 1), 32) == (TOGETHER,)


def test_a_thread_of_a_kernel_that_waits_can_be_followed():
    def launch(**parts: str) -> Launched:
        words = [np.zeros(n, np.uint32) for n in (4 * 32, 1, 4 * 32)]
        text = GRID_BARRIER.format(**RELEASED | parts)
        return Launched(load_kernel(text), [Buffer(w, "memory") for w in words], (4, 1, 1), (32, 1, 1))

    began = time.process_time()
    trace = followed(launch(), 0)
    assert trace.fault is None
    assert sum(step.opcode == "ld" and "acquire" in step.text for step in trace.steps) >= 2
    assert trace.steps[-1].opcode == "ret"
    assert "race" in str(followed(launch(load="ld.relaxed.gpu.global.u32 v, [c];"), 0).fault)
    assert time.process_time() - began < 30
