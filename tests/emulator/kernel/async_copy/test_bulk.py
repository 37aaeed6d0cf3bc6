"""Bulk copies of bytes: to shared memory of one block and of several, from it, reductions, and mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError, PtxError
from ptxdiff.emulator.kernel.run import Buffer, HostMap, run_kernel
from tests.support.emulator.bulk_text import ALONE, BYTES, EXPECT, FENCED, FROM, MOVE, TELLS
from tests.support.emulator.cluster_kernels import SYNC, THREADS, WAIT, run, text

READ = "ld.shared.b32 %r9, [%r5];"
LOAD = f"@%p1 cp.async.bulk.shared::cta.global.{TELLS} [%r4], [%rd3], {BYTES}, [bar];"
MULTICAST = f"""mov.b16 %h1, {{mask}}; setp.eq.and.u32 %p3, %r2, 0, %p1;
@%p3 cp.async.bulk.shared::cluster.global.{TELLS}.multicast::cluster [%r4], [%rd3], {BYTES}, [bar], %h1;"""
LEAVE = "cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0;"
STORE = f"""add.u32 %r7, %r1, 500; st.shared.b32 [%r5], %r7; fence.proxy.async; bar.sync 0;
@%p1 cp{{reduce}}.async.bulk.global.shared::cta.bulk_group{{op}} [%rd3], [%r4], {BYTES}{{mask}}; {LEAVE} bar.sync 0;"""


def refused(kind: type[PtxError], words: str, body: str, **options: object) -> None:
    with pytest.raises(kind, match=words):
        run(body, **options)  # type: ignore[arg-type]


def test_a_copy_has_landed_after_a_wait_for_its_mbarrier() -> None:
    body = f"{ALONE} {EXPECT.format(BYTES)} {LOAD} {WAIT} {READ}"
    np.testing.assert_array_equal(run(body, (1,), cluster="")[0], np.arange(THREADS))
    refused(MemoryFault, "to which the bulk copy .* is under way", body.replace(WAIT, ""), grid=(1,), cluster="")
    refused(ExecutionError, "deadlock: .* lacks 16 bytes", body.replace(f"[bar], {BYTES};", f"[bar], {BYTES + 16};"))


def test_a_copy_goes_to_the_blocks_of_a_mask() -> None:
    body = f"{FENCED} {EXPECT.format(BYTES)} {MULTICAST.format(mask=3)} {WAIT} {READ} {SYNC}"
    np.testing.assert_array_equal(run(body), [np.arange(THREADS)] * 2)


def test_a_wrong_mask_is_named() -> None:
    body = f"{FENCED} {EXPECT.format(BYTES)} {MULTICAST} {WAIT} {READ} {SYNC}"
    refused(ExecutionError, "deadlock: thread 0 of block .1, 0, 0. .* lacks 256 bytes", body.format(mask=1))
    refused(ExecutionError, "mask 0x7, and its cluster has 2", body.format(mask=7))
    refused(ExecutionError, "mask 0x0, which names none", body.format(mask=0))
    refused(MemoryFault, "may not have begun", body.format(mask=3).replace(SYNC, "", 1))
    unfenced = body.format(mask=3).replace("fence.mbarrier_init.release.cluster;", "")
    refused(ExecutionError, "fence.mbarrier_init", unfenced.replace("cluster.arrive", "cluster.arrive.relaxed"))


@pytest.mark.parametrize("op", ["", ".add.u32", ".max.s32", ".xor.b32"])
def test_a_copy_goes_to_another_blocks_shared_memory(op: str) -> None:
    move = MOVE.format(reduce=".reduce" if op else "", op=op)
    body = f"{FENCED} st.shared.b32 [%r5+512], 3; {EXPECT.format(BYTES)} {FROM} {move} {WAIT} "
    body += f"ld.shared.b32 %r9, [%r5+512]; {SYNC}"
    sent = np.array([1000 + np.arange(THREADS), np.arange(THREADS)])
    expected = {"": sent, ".add.u32": sent + 3, ".max.s32": np.maximum(sent, 3), ".xor.b32": sent ^ 3}
    np.testing.assert_array_equal(run(body), expected[op])


def test_a_copy_between_shared_memories_goes_to_another_block() -> None:
    """ISA 9.7.9.25.4.1: the destination lies in another block; reductions may stay in their own."""
    for reduce, op in (("", ""), (".reduce", ".add.u32")):
        move = MOVE.format(reduce=reduce, op=op).replace("%r3;", "%r2;")
        body = f"{FENCED} st.shared.b32 [%r5+512], 3; {EXPECT.format(BYTES)} {FROM} {move} {WAIT} "
        body += f"ld.shared.b32 %r9, [%r5+512]; {SYNC}"
        if reduce:
            np.testing.assert_array_equal(run(body), [np.arange(THREADS) + 3, np.arange(THREADS) + 1003])
        else:
            refused(ExecutionError, "the destination of .* lies in another block of the cluster", body)


def test_a_reduction_waits_for_copies_of_threads_to_its_destination() -> None:
    """A proxy fence behind the issue of cp.async is no wait for it."""
    move = MOVE.format(reduce=".reduce", op=".add.u32").replace("%r3;", "%r2;")
    wait = f"cp.async.wait_all; {SYNC}"
    whole = f"{FENCED} st.shared.b32 [%r5+512], 3; {SYNC} @%p1 cp.async.cg.shared.global [%r4+512], [%rd3], 16; {wait} "
    whole += f"{EXPECT.format(BYTES)} {FROM} {move} {WAIT} ld.shared.b32 %r9, [%r5+512]; {SYNC}"
    early = whole.replace(wait, "", 1).replace("ld.shared", f"{wait} ld.shared", 1)
    run(whole)
    refused(MemoryFault, "to which an asynchronous copy is under way", early)


def test_the_source_of_a_copy_must_not_change_before_it_has_landed() -> None:
    move = MOVE.format(reduce="", op="")
    body = f"{FENCED} {EXPECT.format(BYTES)} {FROM} {move} @%p1 st.shared.b32 [%r5], 1; {WAIT} {SYNC}"
    refused(MemoryFault, "the bulk copy in line .* still reads: a wait for its mbarrier", body)
    body = body.replace("@%p1 st.shared.b32 [%r5], 1;", "").replace("fence.proxy.async;", "")
    refused(MemoryFault, "no fence.proxy.async lies between", body)
    other = f"{FENCED} {EXPECT.format(BYTES)} {FROM} {move.replace('bar, %r3', 'bar, %r2')} {WAIT} {SYNC}"
    refused(ExecutionError, "names an mbarrier of another", other)


def stored(body: str, x: np.ndarray) -> np.ndarray:
    run(body, (1,), x=x, cluster="", target="sm_100a")
    return x


@pytest.mark.parametrize(
    ("op", "function"),
    [(".add.u32", np.add), (".min.u32", np.minimum), (".max.s32", np.maximum), (".and.b32", np.bitwise_and)],
)
def test_reductions_in_global_memory(op: str, function: np.ufunc) -> None:
    x = np.arange(0, 16 * THREADS, 16, dtype=np.uint32)
    expected = function(x, np.arange(500, 500 + THREADS, dtype=np.uint32))
    np.testing.assert_array_equal(stored(STORE.format(reduce=".reduce", op=op, mask=""), x), expected)


def test_reductions_of_floats_round_once() -> None:
    x = np.linspace(0, 3, 2 * THREADS).astype(np.float16)
    words = np.arange(500, 500 + THREADS, dtype=np.uint32).view(np.float16)
    expected = (x + words).view(np.uint16)
    np.testing.assert_array_equal(
        stored(STORE.format(reduce=".reduce", op=".add.noftz.f16", mask=""), x).view(np.uint16), expected
    )


def test_a_copy_leaves_shared_memory_in_groups() -> None:
    x = np.zeros(THREADS, np.uint32)
    body = STORE.format(reduce="", op="", mask="")
    np.testing.assert_array_equal(stored(body, x), 500 + np.arange(THREADS))
    refused(
        ExecutionError,
        "commit_group and cp.async.bulk.wait_group must come first",
        body.replace(LEAVE, ""),
        grid=(1,),
        cluster="",
    )
    refused(MemoryFault, "no fence.proxy.async", body.replace("fence.proxy.async;", ""), grid=(1,), cluster="")


def test_a_mask_chooses_bytes_of_every_sixteen() -> None:
    x = np.full(THREADS, 0xFFFFFFFF, np.uint32)
    body = "mov.b16 %h1, 0x00f3; " + STORE.format(reduce="", op=".cp_mask", mask=", %h1")
    whole, left = 500 + np.arange(THREADS), np.full(THREADS, 0xFFFFFFFF)
    lows = whole & 0xFFFF | 0xFFFF0000
    place = np.arange(THREADS) % 4
    np.testing.assert_array_equal(stored(body, x), np.choose(place, [lows, whole, left, left]))


def test_wrong_sizes_and_addresses_are_refused() -> None:
    ready = f"{ALONE} {EXPECT.format(BYTES)} "
    refused(OperandError, "a multiple of 16 bytes, not 24", ready + LOAD.replace(f"{BYTES},", "24,"))
    refused(ExecutionError, "a multiple of 16", ready + "mov.u32 %r13, 24; " + LOAD.replace(f"{BYTES},", "%r13,"))
    refused(MemoryFault, "begins at multiples of 16", ready + LOAD.replace("[%rd3]", "[%rd3+8]"))
    refused(MemoryFault, "out of bounds: .* of x", ready + LOAD.replace("[%rd3]", "[%rd3+896]"))
    refused(MemoryFault, "lie outside the", ready + LOAD.replace("[%r4]", "[%r4+896]"))


def test_boxes_go_to_the_blocks_of_a_mask() -> None:
    """A box of a tensor map, 8 rows of 32 bytes, is copied to both blocks of a cluster."""
    load = f"""setp.eq.and.u32 %p3, %r2, 0, %p1; mov.b32 %r13, 0; mov.b16 %h1, 3; mov.b64 %rd4, m;
    cvta.param.u64 %rd4, %rd4;
    @%p3 cp.async.bulk.tensor.2d.shared::cluster.global.tile.{TELLS}.multicast::cluster
    [%r4], [%rd4, {{%r13, %r13}}], [bar], %h1;"""
    body = f"{FENCED} {EXPECT.format(BYTES)} {load} {WAIT} {READ} {SYNC}"
    written = text(body).replace(".param .u64 x)", ".param .u64 x, .param .align 64 .b8 m[128])")
    x, y = np.arange(256, dtype=np.uint32), np.zeros((2, THREADS), np.uint32)
    source = Buffer(x, "x")
    tensor = HostMap(source, 0, (32, 8), (8, 1), (8, 8), 2, 0, 0)
    run_kernel(written, [Buffer(y, "y"), source, tensor], (2,))
    np.testing.assert_array_equal(y, [np.arange(THREADS)] * 2)
    with pytest.raises(ExecutionError, match=r"deadlock: .* lacks 256 bytes"):
        run_kernel(written.replace("%h1, 3;", "%h1, 2;"), [Buffer(y, "y"), source, tensor], (2,))


# a pipeline of two blocks: each loads half of a stage and sends it to both ------------------------------------------

STAGES = 3
RING = f"""mov.u32 %r16, bar; add.u32 %r16, %r16, 8;
@%p1 mbarrier.init.shared.b64 [bar], 1; @%p1 mbarrier.init.shared.b64 [%r16], {2 * THREADS};
fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;
mov.b32 %r13, 0; mov.b16 %h1, 3; shl.b32 %r14, %r2, 7; add.u32 %r14, %r14, %r4; mul.wide.u32 %rd4, %r2, 128;
add.s64 %rd4, %rd3, %rd4;
LOOP: setp.eq.u32 %p4, %r13, 0; @%p4 bra FULL;
sub.u32 %r15, %r13, 1; and.b32 %r15, %r15, 1;
EMPTY: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r16], %r15; @!%p2 bra EMPTY;
FULL: @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {BYTES};
@%p1 cp.async.bulk.shared::cluster.global.{TELLS}.multicast::cluster [%r14], [%rd4], 128, [bar], %h1;
and.b32 %r15, %r13, 1;
W: mbarrier.try_wait.parity.shared.b64 %p2, [bar], %r15; @!%p2 bra W;
ld.shared.b32 %r7, [%r5]; add.u32 %r9, %r9, %r7;
mapa.shared::cluster.u32 %r17, %r16, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r17];
mapa.shared::cluster.u32 %r17, %r16, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r17];
add.s64 %rd4, %rd4, {BYTES}; add.u32 %r13, %r13, 1; setp.lt.u32 %p4, %r13, {STAGES}; @%p4 bra LOOP;
{SYNC}"""


def test_a_pipeline_of_multicasts() -> None:
    stages = np.arange(STAGES * THREADS).reshape(STAGES, THREADS)
    np.testing.assert_array_equal(run(RING), [stages.sum(0)] * 2)


def test_a_pipeline_without_its_arrivals_or_waits() -> None:
    second = "mapa.shared::cluster.u32 %r17, %r16, 1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r17];"
    with pytest.raises(ExecutionError, match=r"deadlock: .* arrivals"):
        run(RING.replace(second, ""))
    wait = "EMPTY: mbarrier.try_wait.parity.acquire.cluster.shared.b64 %p2, [%r16], %r15; @!%p2 bra EMPTY;"
    with pytest.raises(MemoryFault, match=r"race: .* copies to shared memory .* another thread read or wrote"):
        run(RING.replace(wait, ""))
    with pytest.raises((MemoryFault, ExecutionError), match=r"may have ended|while the copy"):
        run(RING.removesuffix(SYNC))
