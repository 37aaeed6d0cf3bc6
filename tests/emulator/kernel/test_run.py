"""Whole kernels written by hand: memory, barriers, warps, and mistakes that a run reports."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, NotElementwise, PtxError, UndefinedBits
from ptxdiff.emulator.kernel.frame import KernelFrame
from ptxdiff.emulator.kernel.run import Buffer, load_kernel, pointers, run_kernel
from tests.support.emulator.launched_text import SHARED, SHARED_ADDRESS, X, launch, module


class TestGlobalMemory:
    def test_load_and_store(self) -> None:
        y = launch("ld.global.b32 %r5, [%rd11]; add.s32 %r5, %r5, 7; st.global.b32 [%rd12], %r5;", X)
        np.testing.assert_array_equal(y, X + 7)

    def test_masks_offsets_and_hints(self) -> None:
        body = """
            createpolicy.fractional.L2::evict_last.b64 %rd9, 1.0;
            setp.lt.u32 %p1, %r4, 100;
            mov.b32 %r5, -1;
            @%p1 ld.global.L1::evict_last.L2::cache_hint.b32 { %r5 }, [ %rd11 + 4 ], %rd9;
            st.global.cs.b32 [%rd12+0], %r5;
        """
        y = launch(body, X)
        np.testing.assert_array_equal(y, np.where(np.arange(128) < 100, X + 1, -1))

    @pytest.mark.parametrize(
        ("load", "expected"),
        [
            ("ld.global.s8 %r5, [%rd11+3];", (X >> 24).astype(np.int8).astype(np.int32)),
            ("ld.global.u8 %r5, [%rd11];", X & 0xFF),
            ("ld.global.s16 %r5, [%rd11+2];", X >> 16),
            ("ld.global.v2.b16 {%rs1, %rs2}, [%rd11]; mov.b32 %r5, {%rs2, %rs1};", X << 16 | X >> 16),
            ("ld.b32 %r5, [%rd11];", X),
        ],
    )
    def test_widths(self, load: str, expected: np.ndarray) -> None:
        np.testing.assert_array_equal(launch(load + "st.global.b32 [%rd12], %r5;", X), expected)

    def test_vectors(self) -> None:
        body = """
            shl.b32 %r30, %r4, 4; cvt.u64.u32 %rd20, %r30;
            add.s64 %rd21, %rd1, %rd20; add.s64 %rd22, %rd2, %rd20;
            ld.global.v4.b32 {%r5, %r6, %r7, _}, [%rd21];
            mov.b32 %r8, 0;
            st.global.v4.b32 [%rd22], {%r7, %r6, %r5, %r8};
        """
        x = np.arange(512, dtype=np.int32)
        y = launch(body, x)
        expected = x.reshape(-1, 4)[:, [2, 1, 0, 3]].copy()
        expected[:, 3] = 0
        np.testing.assert_array_equal(y.reshape(-1, 4), expected)

    def test_out_of_bounds_names_buffer_thread_and_line(self) -> None:
        with pytest.raises(
            MemoryFault, match=r"4 bytes at offset 512 of y, which has 512 bytes.*thread 0 of block \(2"
        ) as e:
            launch("st.global.b32 [%rd12], %r4;", X, blocks=3)
        assert "kernel.py:11" in str(e.value)
        with pytest.raises(MemoryFault, match="4 bytes before the start of x"):
            launch("ld.global.b32 %r5, [%rd11+-4];", X)
        with pytest.raises(MemoryFault, match="null pointer"):
            launch("mov.b64 %rd9, 0; ld.global.b32 %r5, [%rd9];", X)

    def test_nothing_is_written_when_a_run_fails(self) -> None:
        y = np.full(128, 9, np.int32)
        with pytest.raises(MemoryFault, match="4 bytes at offset 512 of a buffer"):
            run_kernel(module("st.global.b32 [%rd12], %r4;"), [Buffer(X), Buffer(y)], (3,))
        assert (y == 9).all()

    def test_misaligned(self) -> None:
        with pytest.raises(MemoryFault, match="misaligned access of 4 bytes at 4 bytes at offset 2 of x"):
            launch("ld.global.b32 %r5, [%rd11+2];", X)
        x, y = np.zeros(129, np.int32), np.zeros(128, np.int32)
        body = "ld.global.v2.b32 {%r5,%r6}, [%rd1]; st.global.b32 [%rd12], %r5;"
        run_kernel(module(body), [Buffer(x, "x", residue=8), Buffer(y, "y")], (2,))
        with pytest.raises(MemoryFault, match="misaligned access of 8 bytes"):
            run_kernel(module(body), [Buffer(x, "x", residue=4), Buffer(y, "y")], (2,))

    def test_undefined_memory(self) -> None:
        with pytest.raises(UndefinedBits, match="reach a store to y in thread 0"):
            launch("ld.global.b32 %r5, [%rd12]; st.global.b32 [%rd12], %r5;", X)
        with pytest.raises(UndefinedBits, match="reach an address"):
            launch("ld.global.b32 %r5, [%rd12]; cvt.u64.u32 %rd9, %r5; ld.global.b32 %r6, [%rd9];", X)
        with pytest.raises(UndefinedBits, match="predicate of a store"):
            launch("setp.eq.u32 %p1, %r30, 0; @%p1 st.global.b32 [%rd12], %r1;", X)

    def test_races(self) -> None:
        with pytest.raises(MemoryFault, match=r"race: .* store different values to one address"):
            launch("st.global.b32 [%rd2], %r1;", X)
        launch("mov.b32 %r5, 3; st.global.b32 [%rd2], %r5;", X)
        body = """
            st.global.b32 [%rd12], %r1;
            xor.b32 %r6, %r4, 64; mul.wide.u32 %rd20, %r6, 4; add.s64 %rd21, %rd2, %rd20;
            ld.global.b32 %r7, [%rd21];
        """
        with pytest.raises(
            MemoryFault, match=r"race: thread 0 of block \(0, 0, 0\) reads y at offset 256, which thread 0 of block \(1"
        ):
            launch(body, X)
        with pytest.raises(MemoryFault, match="nothing orders them"):
            launch(body.replace("64;", "1;"), X)
        launch(body.replace("64;", "1;").replace("xor", "bar.sync 0; xor"), X)


class TestSharedMemory:
    NEIGHBOUR = """
        xor.b32 %r23, %r22, 128;
        ld.shared.b32 %r6, [%r23];
        st.global.b32 [%rd12], %r6;
    """
    STORE = SHARED_ADDRESS + "ld.global.b32 %r5, [%rd11]; st.shared.b32 [%r22], %r5;"

    def test_exchange_through_a_barrier(self) -> None:
        y = launch(self.STORE + "bar.sync 0;" + self.NEIGHBOUR, X, shared=256, variables=SHARED)
        np.testing.assert_array_equal(y, X ^ 32)

    def test_missing_barrier(self) -> None:
        with pytest.raises(MemoryFault, match=r"race: .* reads shared memory .* no barrier lies between"):
            launch(self.STORE + self.NEIGHBOUR, X, shared=256, variables=SHARED)
        again = self.STORE + "bar.sync 0;" + self.NEIGHBOUR + "add.s32 %r6, %r6, 1; st.shared.b32 [%r22], %r6;"
        with pytest.raises(MemoryFault, match=r"race: .* overwrites shared memory"):
            launch(again, X, shared=256, variables=SHARED)

    @pytest.mark.parametrize("threads", [32, 64])
    def test_one_thread_may_overwrite_after_a_barrier_a_word_that_many_read(self, threads: int) -> None:
        """The last thread overwrites the word that all have read; a barrier of the warp is enough for one warp."""
        body = self.STORE + "bar.sync 0; ld.shared.b32 %r6, [smem]; st.global.b32 [%rd12], %r6; WAIT"
        body += f" setp.eq.u32 %p1, %r1, {threads - 1}; add.u32 %r6, %r6, 9; @%p1 st.shared.b32 [smem], %r6;"
        x = X[:threads]
        more = {"threads": threads, "shared": 256, "variables": SHARED}
        with pytest.raises(MemoryFault, match="overwrites shared memory at offset 0"):
            launch(body.replace("WAIT", ""), x, 1, **more)
        launch(body.replace("WAIT", "bar.sync 0;"), x, 1, **more)
        if threads == 32:
            launch(body.replace("WAIT", "bar.warp.sync -1;"), x, 1, **more)
        else:
            with pytest.raises(MemoryFault, match="overwrites shared memory at offset 0"):
                launch(body.replace("WAIT", "bar.warp.sync -1;"), x, 1, **more)

    def test_warp_barrier_orders_one_warp(self) -> None:
        near = self.NEIGHBOUR.replace("128", "4")
        y = launch(self.STORE + "bar.warp.sync -1;" + near, X, shared=256, variables=SHARED)
        np.testing.assert_array_equal(y, X ^ 1)
        with pytest.raises(MemoryFault, match="race"):
            launch(self.STORE + "bar.warp.sync -1;" + self.NEIGHBOUR, X, shared=256, variables=SHARED)

    def test_never_written(self) -> None:
        with pytest.raises(UndefinedBits, match="reach a store"):
            launch(SHARED_ADDRESS + "bar.sync 0;" + self.NEIGHBOUR, X, shared=256, variables=SHARED)

    def test_bounds(self) -> None:
        with pytest.raises(MemoryFault, match="lie outside the 252 bytes of shared memory"):
            launch(self.STORE, X, shared=252, variables=SHARED)

    def test_static_and_generic(self) -> None:
        body = """
            mov.u64 %rd20, tile; cvta.shared.u64 %rd21, %rd20; add.s64 %rd22, %rd21, %rd5;
            st.b32 [%rd22], %r4; bar.sync 0; ld.shared.b32 %r6, [tile+8]; st.global.b32 [%rd12], %r6;
        """
        y = launch(body, X, variables=".shared .align 8 .b8 pad[4]; .shared .align 8 .b32 tile[64];")
        np.testing.assert_array_equal(y, np.repeat([2, 66], 64))

    def test_blocks_do_not_share(self) -> None:
        body = (
            SHARED_ADDRESS
            + "st.shared.b32 [%r22], %r2; bar.sync 0; ld.shared.b32 %r6, [smem]; st.global.b32 [%rd12], %r6;"
        )
        np.testing.assert_array_equal(launch(body, X, shared=256, variables=SHARED), np.repeat([0, 1], 64))

    def test_asynchronous_copies_land_when_waited_for(self) -> None:
        body = SHARED_ADDRESS + "cp.async.ca.shared.global [%r22], [%rd11], 4; cp.async.commit_group; WAIT bar.sync 0;"
        wait = body.replace("WAIT", "cp.async.wait_group 0;") + self.NEIGHBOUR
        np.testing.assert_array_equal(launch(wait, X, shared=256, variables=SHARED), X ^ 32)
        with pytest.raises(MemoryFault, match="to which an asynchronous copy is under way"):
            launch(body.replace("WAIT", "") + self.NEIGHBOUR, X, shared=256, variables=SHARED)

    def test_local_memory(self) -> None:
        body = """
            .local .align 16 .b8 depot[64];
            mov.u64 %rd20, depot; cvta.local.u64 %rd21, %rd20;
            st.local.b32 [%rd20+4], %r4; ld.b32 %r6, [%rd21+4]; st.global.b32 [%rd12], %r6;
        """
        np.testing.assert_array_equal(launch(body, X), X)


class TestBarriers:
    def test_divergent_threads_meet(self) -> None:
        body = (
            SHARED_ADDRESS
            + """
            setp.lt.u32 %p1, %r1, 32;
            @%p1 bra FIRST;
            st.shared.b32 [%r22], %r1;
            bar.sync 0;
            bra.uni JOIN;
        FIRST:
            mov.b32 %r7, 1000;
            st.shared.b32 [%r22], %r7;
            bar.sync 0;
        JOIN:
            xor.b32 %r23, %r22, 128; ld.shared.b32 %r6, [%r23]; st.global.b32 [%rd12], %r6;
        """
        )
        y = launch(body, X, shared=256, variables=SHARED)
        np.testing.assert_array_equal(y[:64], [*range(32, 64), *[1000] * 32])

    def test_deadlock(self) -> None:
        body = "setp.lt.u32 %p1, %r1, 32; @%p1 bra OTHER; bar.sync 0; bra END; OTHER: bar.sync 1; END:"
        with pytest.raises(ExecutionError, match=r"deadlock: thread .* waits at this barrier"):
            launch(body, X)

    def test_threads_that_ended_do_not_count(self) -> None:
        body = "setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0; st.global.b32 [%rd12], %r1;"
        y = launch(body, X)
        np.testing.assert_array_equal(y[32:64], np.arange(32, 64))

    def test_a_lock_is_passed_on(self) -> None:
        body = """
            setp.ne.u32 %p1, %r1, 0; @%p1 ret;
        SPIN:
            atom.global.acquire.gpu.cas.b32 %r5, [%rd1], 0, 1;
            setp.ne.u32 %p2, %r5, 0;
            @%p2 bra SPIN;
            ld.volatile.global.b32 %r6, [%rd1+4]; add.u32 %r6, %r6, 1; st.volatile.global.b32 [%rd1+4], %r6;
            atom.global.release.gpu.exch.b32 %r7, [%rd1], 0;
        """
        x = np.zeros(128, np.int32)
        run_kernel(module(body), [Buffer(x, "x"), Buffer(np.zeros(128, np.int32))], (3,))
        assert x[:2].tolist() == [0, 3]


class TestWarps:
    @pytest.mark.parametrize(
        ("mode", "b", "c", "source"),
        [
            ("bfly", "5", "31", lambda i: i ^ 5),
            ("down", "3", "31", lambda i: np.where(i % 32 + 3 < 32, i + 3, i)),
            ("up", "3", "0", lambda i: np.where(i % 32 >= 3, i - 3, i)),
            ("idx", "7", "31", lambda i: i // 32 * 32 + 7),
            ("down", "1", "0x181f", lambda i: np.where(i % 8 < 7, i + 1, i)),
            ("bfly", "1", "0x1c1f", lambda i: i ^ 1),
        ],
    )
    def test_shuffles(self, mode: str, b: str, c: str, source: object) -> None:
        body = (
            f"shfl.sync.{mode}.b32 %r6|%p1, %r4, {b}, {c}, -1; selp.b32 %r7, %r6, %r6, %p1; st.global.b32 [%rd12], %r7;"
        )
        np.testing.assert_array_equal(launch(body, X), source(X))  # type: ignore[operator]

    def test_a_shuffle_from_an_absent_thread_is_undefined(self) -> None:
        body = (
            "setp.lt.u32 %p1, %r1, 8; @%p1 bra L; shfl.sync.idx.b32 %r6, %r4, 0, 31, -1; st.global.b32 [%rd12], %r6; L:"
        )
        with pytest.raises(UndefinedBits, match="undefined bits reach a store to y in thread 8"):
            launch(body, X)

    @pytest.mark.parametrize(
        ("body", "expected"),
        [
            ("setp.gt.u32 %p1, %r1, 35; vote.sync.ballot.b32 %r6, %p1, -1;", [0, 0xFFFFFFF0]),
            ("setp.gt.u32 %p1, %r1, 35; vote.sync.any.pred %p2, %p1, -1; selp.u32 %r6, 1, 0, %p2;", [0, 1]),
            ("setp.gt.u32 %p1, %r1, 31; vote.sync.all.pred %p2, %p1, -1; selp.u32 %r6, 1, 0, %p2;", [0, 1]),
            ("redux.sync.add.u32 %r6, %r1, -1;", [496, 1520]),
            ("sub.s32 %r7, 40, %r1; redux.sync.min.s32 %r6, %r7, -1;", [9, 0xFFFFFFE9]),
            ("elect.sync %r7|%p1, -1; selp.u32 %r8, 100, 0, %p1; redux.sync.max.u32 %r6, %r8, -1;", [100, 100]),
            ("activemask.b32 %r6;", [0xFFFFFFFF, 0xFFFFFFFF]),
            ("shr.u32 %r7, %r1, 5; match.any.sync.b32 %r6, %r7, -1;", [0xFFFFFFFF, 0xFFFFFFFF]),
        ],
    )
    def test_votes_and_reductions(self, body: str, expected: list[int]) -> None:
        y = launch(body + "st.global.b32 [%rd12], %r6;", X, blocks=1)
        np.testing.assert_array_equal(y[:64].view(np.uint32), np.repeat(expected, 32))

    def test_ldmatrix_places_fragments(self) -> None:
        body = """
            mov.u32 %r20, smem; and.b32 %r21, %r1, 31; shl.b32 %r21, %r21, 4; add.u32 %r22, %r20, %r21;
            shl.b32 %r23, %r1, 2; add.u32 %r23, %r20, %r23;
            ld.global.b32 %r5, [%rd11]; st.shared.b32 [%r23], %r5;
            bar.sync 0;
            ldmatrix.sync.aligned.m8n8.x1TRANS.shared.b16 {%r6}, [%r22];
            st.global.b32 [%rd12], %r6;
        """
        x = np.arange(64, dtype=np.int16).view(np.int32)
        whole = np.concatenate([x, np.zeros(96, np.int32)])[:128]
        straight = launch(body.replace("TRANS", ""), whole, 1, threads=32, shared=512, variables=SHARED)
        np.testing.assert_array_equal(straight[:32], x)
        turned = launch(body.replace("TRANS", ".trans"), whole, 1, threads=32, shared=512, variables=SHARED)
        matrix = np.arange(64, dtype=np.int16).reshape(8, 8).T
        np.testing.assert_array_equal(turned[:32], np.ascontiguousarray(matrix).reshape(-1).view(np.int32))


class TestAtomics:
    @pytest.mark.parametrize(
        ("op", "start", "expected"),
        [("add.u32", 5, 5 + 8128), ("max.s32", -3, 127), ("min.s32", 50, 0), ("or.b32", 0, 127), ("and.b32", -1, 0),
         ("xor.b32", 0, 0), ("inc.u32", 0, 0)],
    )  # fmt: skip
    def test_reductions(self, op: str, start: int, expected: int) -> None:
        x = np.full(128, start, np.int32)
        body = (
            f"red.global.{op} [%rd1], %r4;"
            if not op.startswith("inc")
            else "mov.b32 %r4, 127; red.global.inc.u32 [%rd1], %r4;"
        )
        run_kernel(module(body), [Buffer(x, "x"), Buffer(X.copy())], (2,))
        assert x[0] == expected

    def test_returned_values_and_float(self) -> None:
        x = np.zeros(128, np.float32)
        y = np.zeros(128, np.float32)
        body = "mov.f32 %f1, 0f3f000000; atom.global.gpu.acq_rel.add.f32 %f2, [%rd1], %f1; st.global.f32 [%rd12], %f2;"
        run_kernel(module(body), [Buffer(x, "x"), Buffer(y, "y")], (2,))
        assert x[0] == 64
        np.testing.assert_array_equal(np.sort(y), np.arange(128) / 2)

    def test_undefined_memory(self) -> None:
        with pytest.raises(UndefinedBits, match="atomic"):
            launch("red.global.add.u32 [%rd12], %r1;", X)


def test_grid_and_parameters() -> None:
    body = """
        ld.param.u32 %r5, [p2];
        mov.u32 %r6, %ctaid.y; mov.u32 %r7, %nctaid.x; mad.lo.u32 %r8, %r6, %r7, %r2; add.u32 %r9, %r8, %r5;
        mad.lo.u32 %r10, %r8, 32, %r1; mul.wide.u32 %rd20, %r10, 4; add.s64 %rd21, %rd2, %rd20;
        st.global.b32 [%rd21], %r9;
    """
    y = np.zeros((2, 3, 32), np.int32)
    report = run_kernel(module(body, 32), [Buffer(X), Buffer(y, "y"), 100], (3, 2))
    np.testing.assert_array_equal(y[:, :, 0], [[100, 101, 102], [103, 104, 105]])
    assert (report.blocks, report.threads) == (6, 32)
    assert report.thread_instructions == 6 * 32 * (11 + 9 + 1)


def test_many_blocks_run_in_several_frames() -> None:
    x = np.arange(64 * 1000, dtype=np.int32)
    y = launch("ld.global.b32 %r5, [%rd11]; xor.b32 %r5, %r5, 1; st.global.b32 [%rd12], %r5;", x, 1000)
    np.testing.assert_array_equal(y, x ^ 1)


@pytest.mark.parametrize(
    ("body", "kind", "words"),
    [
        ("wmma.mma.sync;", NotElementwise, "tensor core instruction that the emulator does"),
        ("trap;", ExecutionError, "stops the kernel"),
        ("ld.param.u32 %r5, [p9];", PtxError, "no parameter"),
        ("frob.b32 %r5, %r6;", PtxError, "unknown instruction"),
        ("redux.sync.max.f32 %f1, %f2, -1;", PtxError, "needs sm_100a"),
    ],
)
def test_refusals(body: str, kind: type[PtxError], words: str) -> None:
    with pytest.raises(kind, match=words):
        launch(body, X)


def test_launch_mistakes() -> None:
    kernel = load_kernel(module("st.global.b32 [%rd12], %r1;"))
    with pytest.raises(PtxError, match="3 parameters, 4 were given"):
        run_kernel(kernel, [0, 0, 0, 0], (1,))
    with pytest.raises(PtxError, match="demands 64 threads"):
        run_kernel(kernel, [0], (1,), num_threads=128)
    with pytest.raises(PtxError, match="one to three sizes"):
        run_kernel(kernel, [0], ())
    with pytest.raises(PtxError, match="is no buffer, number or bytes"):
        run_kernel(kernel, [None], (1,))
    assert run_kernel(kernel, [0, 0, 0], (0,)).blocks == 0


def test_pointers_into_one_array() -> None:
    memory = np.zeros(300, np.int32)
    x, y = memory[1:129], memory[129:257]
    x[:] = X
    body = "ld.global.b32 %r5, [%rd11]; add.s32 %r5, %r5, 1; st.global.b32 [%rd12], %r5;"
    run_kernel(module(body), pointers([x, y], ["x", "y"]), (2,))
    np.testing.assert_array_equal(y, X + 1)
    with pytest.raises(MemoryFault, match="out of bounds"):
        run_kernel(module(body), pointers([x, y], ["x", "y"]), (3,))
    inside = pointers([memory, x])
    assert inside[0].buffer is inside[1].buffer
    assert inside[1].offset == 4
    run_kernel(module(body), pointers([x, x]), (2,))
    np.testing.assert_array_equal(x, X + 1)


def test_analysis_and_contraction() -> None:
    body = "ld.global.f32 %f1, [%rd11]; mul.f32 %f2, %f1, %f1; add.f32 %f2, %f2, %f1; st.global.f32 [%rd12], %f2;"
    x, y = np.float32([1.1] * 128), np.zeros(128, np.float32)
    assert load_kernel(module(body)).analysis.contraction_open
    run_kernel(module(body), [Buffer(x), Buffer(y)], (2,))
    assert y[0] == x[0] * x[0] + x[0]
    run_kernel(load_kernel(module(body), fuse=True), [Buffer(x), Buffer(y)], (2,))
    assert y[0] == np.float32(float(x[0]) ** 2 + float(x[0]))


@pytest.mark.parametrize("begins", ["", "atom.global.relaxed.gpu.add.u32 %r7, [%rd11], 0;"], ids=["alone", "in turns"])
def test_threads_that_have_ended_keep_no_memory(begins: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their registers are arrays, of which no collection of garbage knows how large they are."""
    frames: list[weakref.ref[KernelFrame]] = []

    def noted(self: KernelFrame, *given: Any) -> None:
        begin(self, *given)
        frames.append(weakref.ref(self))

    begin = KernelFrame.__init__
    monkeypatch.setattr(KernelFrame, "__init__", noted)
    gc.disable()
    try:
        launch(begins + "st.global.b32 [%rd12], %r4;", X, blocks=1)
        assert len(frames) > 0
        assert [frame() for frame in frames] == [None] * len(frames)
    finally:
        gc.enable()
