"""Clusters: distributed shared memory, their barriers and mbarriers, and the errors for mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError, PtxError, TooLarge, UnsupportedOnTarget
from ptxdiff.emulator.kernel.run import load_kernel, run_kernel
from tests.support.emulator.cluster_kernels import EXCHANGED, MAKE, REMOTE, STORE, SYNC, THREADS, WAIT, run, text

EXCHANGE = f"{STORE} {SYNC} {REMOTE} {SYNC}"
FENCED = f"{MAKE} fence.mbarrier_init.release.cluster; barrier.cluster.arrive.relaxed; barrier.cluster.wait;"


def test_blocks_read_each_others_shared_memory() -> None:
    np.testing.assert_array_equal(run(EXCHANGE), EXCHANGED)


def test_generic_addresses_reach_other_blocks() -> None:
    body = f"""{STORE} {SYNC} cvta.shared.u64 %rd4, word; cvt.u64.u32 %rd5, %r6; add.s64 %rd4, %rd4, %rd5;
    mapa.u64 %rd6, %rd4, %r3; ld.b32 %r9, [%rd6]; {SYNC}"""
    np.testing.assert_array_equal(run(body), EXCHANGED)


def test_ranks_and_windows_of_addresses() -> None:
    """Bits 0 to 2: the address is in shared::cta, in shared::cluster, in global. Bits 4 and 8: ranks."""
    body = f"""cvta.shared.u64 %rd4, word; mapa.u64 %rd6, %rd4, 1; isspacep.shared::cta %p2, %rd6;
    isspacep.shared::cluster %p3, %rd6; isspacep.global %p4, %rd6; selp.u32 %r13, 1, 0, %p2; selp.u32 %r14, 2, 0, %p3;
    selp.u32 %r15, 4, 0, %p4; add.u32 %r9, %r13, %r14; add.u32 %r9, %r9, %r15; getctarank.u64 %r16, %rd6;
    getctarank.shared::cluster.u32 %r17, %r4; shl.b32 %r16, %r16, 4; shl.b32 %r17, %r17, 8; add.u32 %r9, %r9, %r16;
    add.u32 %r9, %r9, %r17; {SYNC}"""
    np.testing.assert_array_equal(run(body)[:, 0], [0x12, 0x113])


@pytest.mark.parametrize("register", ["clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"])
def test_special_registers_of_a_grid_of_clusters(register: str) -> None:
    body = f"mov.u32 %r13, %{register}.x; mov.u32 %r14, %{register}.y; mad.lo.u32 %r9, %r14, 100, %r13;"
    x, y = np.meshgrid(np.arange(4), np.arange(6), indexing="xy")
    expected = {
        "clusterid": y // 3 * 100 + x // 2, "nclusterid": 0 * x + 202, "cluster_ctaid": y % 3 * 100 + x % 2,
        "cluster_nctaid": 0 * x + 302,
    }  # fmt: skip
    np.testing.assert_array_equal(run(body, (4, 6), cluster="2, 3")[:, 0], expected[register].reshape(-1))


def test_ranks_count_along_x_first() -> None:
    body = "mov.u32 %r13, %cluster_nctarank; mad.lo.u32 %r9, %r13, 100, %r2;"
    x, y = np.meshgrid(np.arange(4), np.arange(6), indexing="xy")
    found = run(body, (4, 6), cluster="2, 3")[:, 0]
    np.testing.assert_array_equal(found, (600 + x % 2 + y % 3 * 2).reshape(-1))


def test_a_launch_may_state_the_clusters() -> None:
    body = "mov.pred %p2, %is_explicit_cluster; selp.u32 %r13, 10, 0, %p2; add.u32 %r9, %r13, %r2;"
    np.testing.assert_array_equal(run(body, cluster="")[:, 0], [0, 0])
    np.testing.assert_array_equal(run(body, cluster="", launched=(2,))[:, 0], [10, 11])


def test_many_clusters_are_apart() -> None:
    """There are more blocks than run at once; each cluster exchanges words only within itself."""
    body = f"mad.lo.u32 %r7, %r10, 3, 1; st.shared.b32 [%r5], %r7; {SYNC} {REMOTE} {SYNC}"
    number = np.arange(1024 * THREADS).reshape(1024, THREADS)
    np.testing.assert_array_equal(run(body, (1024,)), number[np.arange(1024) ^ 1] * 3 + 1)


@pytest.mark.parametrize("order", [".relaxed.cluster", ""])
def test_atomics_reach_other_blocks(order: str) -> None:
    body = f"""st.shared.b32 [%r5], 0; {SYNC} mapa.shared::cluster.u32 %r8, %r4, %r3;
    atom{order}.shared::cluster.add.u32 %r13, [%r8], %r1; red{order}.shared::cluster.add.u32 [%r8], 1; {SYNC}
    ld.shared.b32 %r9, [%r4];"""
    np.testing.assert_array_equal(run(body), np.full((2, THREADS), THREADS * (THREADS - 1) // 2 + THREADS))


def test_stores_reach_other_blocks() -> None:
    body = f"{SYNC} mapa.shared::cluster.u32 %r8, %r5, %r3; mad.lo.u32 %r7, %r2, 1000, %r1; "
    body += f"st.shared::cluster.b32 [%r8], %r7; {SYNC} ld.shared.b32 %r9, [%r5];"
    np.testing.assert_array_equal(run(body), EXCHANGED)


# mbarriers --------------------------------------------------------------------------------------------------------

ARRIVE = "mapa.shared::cluster.u32 %r8, bar, %r3; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8];"


def test_an_arrival_from_another_block_orders_its_accesses() -> None:
    """Each block waits for the arrivals of the other, then reads the words that the other stored before them."""
    body = f"{FENCED.format(count=THREADS)} {STORE} {ARRIVE} {WAIT} {REMOTE} {SYNC}"
    np.testing.assert_array_equal(run(body), EXCHANGED)


def test_a_barrier_gives_a_block_the_order_that_one_of_its_threads_waited_for() -> None:
    body = f"""{MAKE.format(count=1)} {SYNC} {STORE} bar.sync 0; mapa.shared::cluster.u32 %r8, bar, %r3;
    @%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r8]; @!%p1 bra S; {WAIT}
    S: bar.sync 0; {REMOTE} {SYNC}"""
    np.testing.assert_array_equal(run(body), EXCHANGED)
    refused(MemoryFault, "race: .* reads shared memory", body.replace("S: bar.sync 0;", "S:"))


def test_a_loop_needs_a_barrier_after_its_reads_too() -> None:
    body = f"""mov.b32 %r13, 0; L: st.shared.b32 [%r5], %r13; {SYNC} {REMOTE} {{}} add.u32 %r13, %r13, 1;
    setp.lt.u32 %p3, %r13, 3; @%p3 bra L; {SYNC}"""
    np.testing.assert_array_equal(run(body.format(SYNC)), np.full((2, THREADS), 2))
    refused(MemoryFault, "race: .* overwrites shared memory", body.format(""))


def test_clusters_of_sixteen() -> None:
    found = run(EXCHANGE, (32,), cluster="16")
    rank = np.arange(32) % 16 ^ 1
    np.testing.assert_array_equal(found, rank[:, None] * 1000 + np.arange(THREADS))


@pytest.mark.parametrize("opcode", ["st.async", "red.async.relaxed.cluster"])
def test_asynchronous_stores_have_landed_after_a_wait_for_their_mbarrier(opcode: str) -> None:
    reduces = opcode.startswith("red")
    body = f"""{FENCED.format(count=1)} st.shared.b32 [%r5], 5; {SYNC}
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {4 * THREADS};
    mapa.shared::cluster.u32 %r8, %r5, %r3; mapa.shared::cluster.u32 %r13, bar, %r3; mad.lo.u32 %r7, %r2, 1000, %r1;
    {opcode}.shared::cluster.mbarrier::complete_tx::bytes{".add" if reduces else ""}.u32 [%r8], %r7, [%r13];
    {WAIT} ld.shared.b32 %r9, [%r5]; {SYNC}"""
    np.testing.assert_array_equal(run(body), EXCHANGED + 5 * reduces)


def test_st_async_stores_vectors() -> None:
    body = f"""{FENCED.format(count=1)} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {16 * 32};
    shl.b32 %r6, %r1, 4; add.u32 %r8, %r4, %r6; mapa.shared::cluster.u32 %r8, %r8, %r3;
    mapa.shared::cluster.u32 %r13, bar, %r3; mad.lo.u32 %r14, %r2, 1000, %r1; setp.lt.u32 %p3, %r1, 32;
    @%p3 st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r8], {{%r1, %r2, %r14, %r1}}, [%r13];
    {WAIT} shl.b32 %r6, %r1, 3; add.u32 %r8, %r4, %r6; ld.shared.v2.b32 {{%r15, %r9}}, [%r8]; {SYNC}"""
    found = run(body)
    for block in range(2):
        np.testing.assert_array_equal(found[block, 1::2], np.arange(32))
        np.testing.assert_array_equal(found[block, 0::2], np.full(32, 1 - block))


# mistakes ---------------------------------------------------------------------------------------------------------


def refused(kind: type[PtxError], words: str, body: str, **options: object) -> None:
    with pytest.raises(kind, match=words):
        run(body, **options)  # type: ignore[arg-type]


def test_reading_before_the_other_block_wrote_is_a_race() -> None:
    refused(MemoryFault, "race: .* reads shared memory .* another thread wrote", f"{SYNC} {STORE} {REMOTE} {SYNC}")
    refused(MemoryFault, "may not have begun", f"{STORE} {REMOTE} {SYNC}")


def test_a_barrier_of_the_block_does_not_order_the_cluster() -> None:
    refused(MemoryFault, "race: .* reads shared memory", f"{SYNC} {STORE} bar.sync 0; {REMOTE} {SYNC}")


def test_a_relaxed_arrival_orders_no_memory() -> None:
    relaxed = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
    refused(MemoryFault, "race: .* reads shared memory", f"{STORE} {relaxed} {REMOTE} {SYNC}")


def test_stores_after_the_arrival_are_not_ordered() -> None:
    body = f"{SYNC} barrier.cluster.arrive; {STORE} barrier.cluster.wait; {REMOTE} {SYNC}"
    refused(MemoryFault, "race: .* reads shared memory", body)


def test_memory_of_a_block_that_may_have_ended_is_not_accessible() -> None:
    refused(MemoryFault, "may have ended: no barrier of the cluster lies between", f"{STORE} {SYNC} {REMOTE}")
    refused(MemoryFault, "which has ended", f"{STORE} {SYNC} setp.eq.u32 %p2, %r2, 1; @%p2 exit; {REMOTE}")


def test_overwriting_a_word_that_another_block_still_reads_is_a_race() -> None:
    refused(MemoryFault, "race: .* overwrites shared memory", f"{STORE} {SYNC} {REMOTE} st.shared.b32 [%r5], 7; {SYNC}")


def test_a_wrong_rank_is_refused_or_gives_other_words() -> None:
    refused(MemoryFault, "rank 5 in a cluster of 2 blocks", EXCHANGE.replace("%r5, %r3;", "%r5, 5;"))
    assert (run(EXCHANGE.replace("%r5, %r3;", "%r5, %r2;")) != EXCHANGED).all()


def test_shared_cta_reaches_only_the_own_block() -> None:
    refused(MemoryFault, "accesses only its own block's", EXCHANGE.replace("ld.shared::cluster", "ld.shared"))


def test_a_cluster_barrier_needs_one_arrival_and_one_wait() -> None:
    refused(ExecutionError, "arrives at the cluster's barrier twice", "barrier.cluster.arrive; barrier.cluster.arrive;")
    refused(ExecutionError, "at which it has not arrived", "barrier.cluster.wait;")
    body = "setp.eq.u32 %p2, %r2, 1; @%p2 bra E; barrier.cluster.arrive; barrier.cluster.wait; E: bar.sync 0;"
    assert run(body).shape == (2, THREADS)  # threads that have ended need not arrive
    body = f"{MAKE.format(count=1)} setp.eq.u32 %p2, %r2, 1; @%p2 bra E; {SYNC} E: bar.sync 0; {WAIT}"
    refused(ExecutionError, "deadlock: thread 0 of block ", body)


def test_another_block_may_use_an_mbarrier_only_after_its_fence() -> None:
    body = f"{FENCED.format(count=THREADS)} {STORE} {ARRIVE} {WAIT} {REMOTE} {SYNC}"
    unfenced = body.replace("fence.mbarrier_init.release.cluster;", "")
    refused(ExecutionError, "needs fence.mbarrier_init before", unfenced)
    np.testing.assert_array_equal(run(unfenced.replace(".relaxed", "")), EXCHANGED)


def test_a_wait_for_an_mbarrier_of_another_block_is_refused() -> None:
    body = f"""{FENCED.format(count=1)} cvta.shared.u64 %rd5, bar; mapa.u64 %rd4, %rd5, %r3;
    W: mbarrier.try_wait.parity.b64 %p2, [%rd4], 0; @!%p2 bra W;"""
    refused(ExecutionError, "only threads of its own may wait", body)


def test_st_async_with_a_wrong_expectation_or_without_a_wait_is_refused() -> None:
    store = f"""{FENCED.format(count=1)} {"{}"} mapa.shared::cluster.u32 %r8, %r5, %r3;
    mapa.shared::cluster.u32 %r13, {"{}"};
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r8], %r1, [%r13];"""
    expect = "@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {};"
    refused(ExecutionError, "lacks 4 bytes", store.format(expect.format(4 * THREADS + 4), "bar, %r3") + WAIT)
    refused(MemoryFault, "while the copy of .* is under way", store.format(expect.format(4 * THREADS), "bar, %r3"))
    refused(ExecutionError, "names an mbarrier of another", store.format(expect.format(4), "bar, %r2"))


def test_st_async_needs_another_block_in_its_cluster() -> None:
    """ISA 9.7.9.12: undefined where %cluster_nctarank is 1."""
    body = f"""{FENCED.format(count=1)} @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {4 * THREADS};
    mapa.shared::cluster.u32 %r8, %r5, %r2; mapa.shared::cluster.u32 %r13, bar, %r2;
    st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r8], %r1, [%r13]; {WAIT} {SYNC}"""
    run(body)
    refused(ExecutionError, "is alone in its cluster, where st.async is undefined", body, grid=(1,), cluster="1")


def test_bits_that_were_never_written_are_undefined() -> None:
    refused(PtxError, "undefined bits", f"{SYNC} {REMOTE} {SYNC}")


def test_a_cluster_barrier_orders_global_memory() -> None:
    swap = "mul.wide.u32 %rd4, %r10, 4; xor.b64 %rd5, %rd4, 256; add.s64 %rd4, %rd3, %rd4; add.s64 %rd5, %rd3, %rd5;"
    body = f"{swap} mul.lo.u32 %r7, %r10, 7; st.global.b32 [%rd4], %r7; {{}} ld.global.b32 %r9, [%rd5];"
    expected = 7 * np.arange(2 * THREADS, dtype=np.uint32).reshape(2, THREADS)[::-1]
    np.testing.assert_array_equal(run(body.format(SYNC)), expected)
    refused(MemoryFault, "race: .* reads x", body.format("bar.sync 0;"))
    refused(MemoryFault, "race: .* reads x", body.format("barrier.cluster.arrive.relaxed; barrier.cluster.wait;"))


# launches and directives ------------------------------------------------------------------------------------------


def test_launches_that_cuda_refuses() -> None:
    refused(PtxError, "not made of clusters", EXCHANGE, grid=(3,))
    refused(PtxError, "demands clusters of", EXCHANGE, grid=(4,), launched=(4,))
    with pytest.raises(TooLarge, match="clusters of 2 blocks: the kernel allows 1"):
        run_kernel(text("", "").replace(".reqntid 64", ".reqntid 64 .maxclusterrank 1"), [0, 0], (2,), cluster=(2,))
    with pytest.raises(PtxError, match="has to be launched in clusters"):
        run_kernel(text("", "").replace(".reqntid 64", ".reqntid 64 .explicitcluster"), [0, 0], (2,))
    with pytest.raises(PtxError, match="clusters need sm_90"):
        run_kernel(text("", "").replace("sm_90a", "sm_80").replace("%cluster_ctarank", "1"), [0, 0], (2,), cluster=(2,))


def test_directives_that_ptxas_refuses() -> None:
    for directive in (".reqnctapercluster 2", ".explicitcluster", ".maxclusterrank 8"):
        plain = ".version 8.8\n.target sm_80\n.address_size 64\n.visible .entry k() " + directive + " { ret; }"
        with pytest.raises(UnsupportedOnTarget, match="needs sm_90"):
            load_kernel(plain)
    with pytest.raises(OperandError, match="cannot both"):
        load_kernel(text("", "2 .maxclusterrank 4"))
    with pytest.raises(TooLarge, match="at most 16 blocks"):
        load_kernel(text("", "4, 4, 4"))
