"""mbarriers and named barriers in kernels written by hand: phases, tokens, arrivals, and reported mistakes."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, PtxError
from ptxdiff.emulator.kernel.run import Buffer, run_kernel

THREADS = 128


def run(body: str, threads: int = THREADS) -> np.ndarray:
    """The %r9 that each thread stores. %r1 is the thread, %r2 its warp, `bar` an mbarrier, `word` shared memory."""
    text = f"""
.version 8.8
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 y)
.reqntid {threads}
{{
.shared .align 8 .b64 bar; .shared .align 16 .b8 word[1024];
.reg .b32 %r<20>; .reg .b64 %rd<9>; .reg .pred %p<9>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; shl.b32 %r3, %r1, 2; mov.u32 %r4, word;
add.u32 %r5, %r4, %r3; mul.wide.u32 %rd2, %r1, 4; add.s64 %rd1, %rd1, %rd2; mov.b32 %r9, 0;
{body}
st.global.b32 [%rd1], %r9;
ret;
}}
"""
    y = np.zeros(threads, np.uint32)
    run_kernel(text, [Buffer(y, "y")], (1,))
    return y


MAKE = "setp.eq.u32 %p1, %r1, 0; @%p1 mbarrier.init.shared.b64 [bar], {count}; bar.sync 0;"
OTHERS = "xor.b32 %r6, %r3, 256; add.u32 %r6, %r4, %r6; ld.shared.b32 %r9, [%r6];"
"""Loads the word of the thread whose number differs by 64."""
STORE = "add.u32 %r7, %r1, 1000; st.shared.b32 [%r5], %r7;"


def wait(phase: int) -> str:
    return f"W{phase}: mbarrier.try_wait.parity.shared.b64 %p2, [bar], {phase & 1}; @!%p2 bra W{phase};"


EXPECTED = (np.arange(THREADS) ^ 64) + 1000


def test_a_wait_orders_a_thread_after_all_arrivals() -> None:
    body = f"{MAKE.format(count=THREADS)} {STORE} mbarrier.arrive.shared.b64 _, [bar]; {wait(0)} {OTHERS}"
    np.testing.assert_array_equal(run(body), EXPECTED)


def test_one_try_wait_without_a_loop_does_not_wait() -> None:
    """ISA: try_wait may return "before the phase completes following a system-dependent time limit"."""
    arrive = f"{STORE} mbarrier.arrive.shared.b64 _, [bar];"
    body = f"{MAKE.format(count=THREADS)} {arrive}"
    np.testing.assert_array_equal(run(f"{body} {wait(0)} {OTHERS}"), EXPECTED)
    once = "mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0;"
    with pytest.raises(MemoryFault, match="race"):
        run(f"{body} {once} {OTHERS}")


def test_one_try_wait_is_enough_after_a_barrier_of_all_threads() -> None:
    once = "bar.sync 0; mbarrier.try_wait.parity.shared.b64 %p2, [bar], 0; selp.b32 %r9, 1, 0, %p2;"
    found = run(f"{MAKE.format(count=THREADS)} mbarrier.arrive.shared.b64 _, [bar]; {once}")
    np.testing.assert_array_equal(found, np.ones(THREADS))


def test_a_token_names_the_phase() -> None:
    body = f"""{MAKE.format(count=THREADS)} {STORE} mbarrier.arrive.shared.b64 %rd3, [bar];
    AGAIN: mbarrier.test_wait.shared.b64 %p2, [bar], %rd3; @!%p2 bra AGAIN; {OTHERS}"""
    np.testing.assert_array_equal(run(body), EXPECTED)


def test_phases_follow_each_other() -> None:
    arrive = "mbarrier.arrive.shared.b64 _, [bar];"
    body = f"{MAKE.format(count=THREADS)} {arrive} {wait(0)} {STORE} {arrive} {wait(1)} {OTHERS}"
    np.testing.assert_array_equal(run(body), EXPECTED)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (f"{MAKE.format(count=THREADS)} {STORE} mbarrier.arrive.shared.b64 _, [bar]; {OTHERS}", MemoryFault, "race"),
        (f"{MAKE.format(count=129)} mbarrier.arrive.shared.b64 _, [bar]; {wait(0)}", ExecutionError,
         "deadlock: .* waits for the phase of parity 0 .* lacks 1 of 129 arrivals"),
        (f"{MAKE.format(count=THREADS)} {STORE} {wait(1)} mbarrier.arrive.shared.b64 _, [bar]; {OTHERS}", MemoryFault,
         "race"),
        (f"{MAKE.format(count=8)} mbarrier.arrive.shared.b64 _, [bar], 9;", ExecutionError, "arrives 9 times"),
        (f"{MAKE.format(count=0)}", ExecutionError, "makes an mbarrier of 0 arrivals"),
        (f"{MAKE.format(count=2)} @%p1 mbarrier.arrive.shared.b64 _, [bar]; {MAKE.format(count=2)}", ExecutionError,
         "makes an mbarrier where one is in use"),
        (f"{MAKE.format(count=1)} @%p1 mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];",
         ExecutionError, r"no mbarrier.init has made an mbarrier"),
    ],
    ids=["no wait", "one arrival too few", "other parity", "too many", "none", "made again", "invalidated"],
)  # fmt: skip
def test_mistakes_are_reported(body: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        run(body)


# barriers with numbers ------------------------------------------------------------------------------------------


def test_warps_meet_at_barriers_of_their_own() -> None:
    """Two warps meet at barrier 1, two at barrier 2; each reads the words that the other warp of its pair wrote."""
    body = f"""{STORE} and.b32 %r8, %r2, 1; add.u32 %r8, %r8, 1; setp.eq.u32 %p3, %r8, 1;
    @%p3 bra ONE; bar.sync 2, 64; bra BOTH; ONE: bar.sync 1, 64; BOTH: {OTHERS}"""
    np.testing.assert_array_equal(run(body), EXPECTED)


def test_threads_that_arrive_need_not_wait() -> None:
    body = f"""setp.ge.u32 %p3, %r1, 64; @%p3 bra WRITE; bar.sync 3, 128; {OTHERS} bra END;
    WRITE: {STORE} bar.arrive 3, 128; mov.b32 %r9, 7; END:"""
    np.testing.assert_array_equal(run(body), np.where(np.arange(THREADS) < 64, EXPECTED, 7))


@pytest.mark.parametrize(("count", "words"), [(128, "deadlock"), (32, "64 threads reach barrier 3, which is for 32")])
def test_a_barrier_with_a_wrong_number_of_threads_is_reported(count: int, words: str) -> None:
    body = f"setp.ge.u32 %p3, %r1, 64; @%p3 bra END; bar.sync 3, {count}; END:"
    with pytest.raises(ExecutionError, match=words):
        run(body)


@pytest.mark.parametrize(("op", "result"), [("popc.u32 %r9", 37), ("and.pred %p3", 0), ("or.pred %p3", 1)])
@pytest.mark.parametrize("threads", ["", "128,"], ids=["all threads", "a number of threads"])
def test_a_reduction_at_a_barrier(op: str, result: int, threads: str) -> None:
    select = "" if op.startswith("popc") else "selp.b32 %r9, 1, 0, %p3;"
    body = f"setp.lt.u32 %p1, %r1, 37; bar.red.{op}, 3, {threads} %p1; {select}"
    np.testing.assert_array_equal(run(body), np.full(THREADS, result))
    negated = run(f"setp.ge.u32 %p1, %r1, 37; bar.red.{op}, 3, {threads} !%p1; {select}")
    np.testing.assert_array_equal(negated, np.full(THREADS, result))


def test_a_reduction_of_threads_at_two_places() -> None:
    body = """setp.lt.u32 %p1, %r1, 37; @%p1 bra LOW; barrier.red.popc.u32 %r9, 0, %p1; bra END;
    LOW: barrier.red.popc.u32 %r9, 0, %p1; END:"""
    np.testing.assert_array_equal(run(body), np.full(THREADS, 37))


def test_the_pending_count_of_a_state_is_that_before_its_arrival() -> None:
    body = f"""{MAKE.format(count=THREADS + 1)} mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 1;
    mbarrier.pending_count.b64 %r9, %rd3;"""
    np.testing.assert_array_equal(np.sort(run(body)), np.arange(2, THREADS + 2))


def test_a_state_without_completion_names_the_phase() -> None:
    body = f"""{MAKE.format(count=THREADS + 1)} {STORE} mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], 1;
    @%p1 mbarrier.arrive.shared.b64 _, [bar];
    AGAIN: mbarrier.test_wait.shared.b64 %p2, [bar], %rd3; @!%p2 bra AGAIN; {OTHERS}"""
    with pytest.raises(ExecutionError, match="complete with this arrival"):
        run(f"{body} mbarrier.arrive.noComplete.shared.b64 %rd3, [bar], {THREADS + 1};")
    np.testing.assert_array_equal(run(body), EXPECTED)


def test_dropping_with_bytes_expected() -> None:
    """Of 128 arrivals all but one are dropped, so that the next phase takes one."""
    body = f"""{MAKE.format(count=THREADS)} @!%p1 mbarrier.arrive_drop.release.cta.shared::cta.b64 %rd3, [bar];
    @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], 64; bar.sync 0;
    @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 64; {wait(0)} {STORE} bar.sync 0;
    @%p1 mbarrier.arrive.shared.b64 _, [bar]; {wait(1)} {OTHERS}"""
    np.testing.assert_array_equal(run(body), EXPECTED)


def test_more_cannot_be_dropped_than_a_phase_takes() -> None:
    with pytest.raises(ExecutionError, match="arrives 3 times"):
        run(f"{MAKE.format(count=2)} @%p1 mbarrier.arrive_drop.shared.b64 _, [bar], 3;")


def test_copies_that_arrive_with_and_without_increment() -> None:
    """With the increment a copy's arrival comes beside those that the phase takes."""
    begin = f"{MAKE.format(count=THREADS)} cp.async.ca.shared.global [%r5], [%rd1], 4;"
    for arrives in ("noinc.shared.b64 [bar];", "shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];"):
        body = f"{begin} cp.async.mbarrier.arrive.{arrives} {wait(0)} {OTHERS} add.u32 %r9, %r9, 5;"
        np.testing.assert_array_equal(run(body), np.full(THREADS, 5))


def test_an_address_with_a_constant_in_a_move() -> None:
    body = "mov.u32 %r6, word+8; st.shared.u32 [word+8], 11; bar.sync 0; ld.shared.u32 %r9, [%r6];"
    np.testing.assert_array_equal(run(f"setp.eq.u32 %p1, %r1, 0; {body}"), np.full(THREADS, 11))
    with pytest.raises(PtxError, match="only the address of a variable"):
        run("mov.u32 %r6, %r5+8;")
    with pytest.raises(PtxError, match="only the address of a variable"):
        run("mov.u32 %r6, %tid.x+8;")


def test_memory_mapped_accesses_are_strong() -> None:
    body = """st.mmio.relaxed.sys.global.u32 [%rd1], 4; ld.mmio.relaxed.sys.global.u32 %r9, [%rd1];"""
    np.testing.assert_array_equal(run(body), np.full(THREADS, 4))
    with pytest.raises(MemoryFault, match="race"):  # a plain load of what another thread stores
        run(
            "ld.param.u64 %rd4, [y]; setp.eq.u32 %p1, %r1, 64; @%p1 st.mmio.relaxed.sys.global.u32 [%rd4], 4; "
            "setp.eq.u32 %p1, %r1, 0; @%p1 ld.global.u32 %r9, [%rd4];"
        )


@pytest.mark.parametrize("layout", [".row", ".col"])
def test_the_layout_of_ldmatrix_is_ignored(layout: str) -> None:
    """ptxas 12.9 generates the same code for both words as for none."""
    body = f"""{STORE} bar.sync 0; and.b32 %r6, %r1, 31; shl.b32 %r6, %r6, 4; add.u32 %r6, %r6, %r4;
    ldmatrix.sync.aligned.m8n8.x4{layout}.shared.b16 {{%r9, %r10, %r11, %r12}}, [%r6];"""
    np.testing.assert_array_equal(run(body), run(body.replace(layout, "")))
