"""What bulk copies write to global memory, and read there: missing waits, and races of threads and of blocks."""

from __future__ import annotations

import re

import numpy as np
import pytest

from ptxdiff.emulator.errors import MemoryFault
from tests.support.emulator.cluster_kernels import MAKE, THREADS, WAIT, run

BYTES = 4 * THREADS
OWN = f"mad.wide.u32 %rd4, %r3, {BYTES}, %rd3;"
"""%rd4: the part of x for the block, by its number in %r3."""
HERE = "mov.u32 %r3, %ctaid.x;"
SAME = "mov.u32 %r3, 0;"
COPY = f"""@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd4], [%r4], {BYTES};
cp.async.bulk.commit_group;"""
PUT = f"mad.lo.u32 %r7, %r10, 1000, %r1; st.shared.b32 [%r5], %r7; fence.proxy.async; bar.sync 0; {COPY}"
DONE = "cp.async.bulk.wait_group 0;"
READ_ONLY = "cp.async.bulk.wait_group.read 0;"
MINE = "mul.wide.u32 %rd5, %r1, 4; add.s64 %rd5, %rd4, %rd5;"
LOAD = f"{MINE} ld.global.b32 %r9, [%rd5];"
STORE = f"{MINE} st.global.b32 [%rd5], 7;"
FETCH = f"""{MAKE.format(count=1)} bar.sync 0; @%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {BYTES};
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%rd4], {BYTES}, [bar]; {WAIT}"""


def launch(body: str, grid: int = 1) -> np.ndarray:
    return run(body, (grid,), cluster="", x=np.arange(256, dtype=np.uint32))


def refused(words: str, body: str, grid: int = 1) -> None:
    with pytest.raises(MemoryFault, match=words):
        launch(body, grid)


def test_its_thread_sees_a_copys_bytes_after_the_wait_and_others_after_a_barrier() -> None:
    sent = np.arange(THREADS) + 1000 * np.arange(THREADS)
    body = f"{SAME} {OWN} {PUT} {DONE} bar.sync 0; {LOAD}"
    np.testing.assert_array_equal(launch(body), [sent])
    under_way = r"reads x at offset 0, to which the bulk copy in line \d+ is under way \(issued by thread 0 .*\): "
    refused(
        f"{under_way}cp.async.bulk.wait_group 0 .or less. must come first, without .read", body.replace(DONE, READ_ONLY)
    )
    refused(under_way, body.replace(DONE, ""))
    refused(
        "commit_group and cp.async.bulk.wait_group must come first", body.replace("cp.async.bulk.commit_group;", "")
    )
    refused("race: thread 1 .* reads x at offset 4, which thread 0 .* wrote", body.replace(f"{DONE} bar.sync 0;", DONE))


def test_a_wait_leaves_the_last_groups_in_flight() -> None:
    again = f"add.s64 %rd6, %rd4, {BYTES}; {COPY.replace('%rd4', '%rd6')}"
    both = f"{SAME} {OWN} {PUT} {again} {{wait}} bar.sync 0; {LOAD} {DONE}"
    launch(both.format(wait="cp.async.bulk.wait_group 1;"))
    refused("cp.async.bulk.wait_group 1 .or less. must come first", both.format(wait="cp.async.bulk.wait_group 2;"))


@pytest.mark.parametrize(
    "access", [STORE, f"{MINE} atom.global.add.u32 %r9, [%rd5], 1;", FETCH], ids=["st", "atom", "copy"]
)
def test_no_access_comes_before_the_wait(access: str) -> None:
    launch(f"{SAME} {OWN} {PUT} {DONE} fence.proxy.async; bar.sync 0; {access}")
    refused("to which the bulk copy in line", f"{SAME} {OWN} {PUT} {READ_ONLY} bar.sync 0; {access}")


@pytest.mark.parametrize(
    ("first", "second"),
    [(PUT, PUT), (STORE, PUT), (LOAD, PUT), (FETCH, PUT), (FETCH, STORE)],
    ids=["two copies", "a store", "a load", "a copy from there", "a copy and a store"],
)
@pytest.mark.parametrize("turned", [False, True])
def test_blocks_race(first: str, second: str, turned: bool) -> None:
    """Each block does both beside each other with half of x, or one of them each with the same part."""
    one = f"setp.lt.u32 %p4, %r10, {THREADS};"
    first, second = (second, first) if turned else (first, second)
    second = re.sub(r"\bW\b", "V", second)
    body = f"{HERE} {one} {{part}} {OWN} @!%p4 bra B; {first} bra E; B: {second} E: {DONE}"
    launch(body.format(part=""), grid=2)
    refused("race: .* x at offset", body.format(part=SAME), grid=2)


def test_equal_bytes_of_blocks_are_no_race() -> None:
    body = f"{SAME} {OWN} {PUT} {DONE}".replace("mad.lo.u32 %r7, %r10, 1000, %r1", "add.u32 %r7, %r1, 5")
    launch(body, grid=2)


def test_a_box_in_place_is_no_race() -> None:
    """A block reads its part by a copy, and writes it by another thread's copy."""
    put = PUT.replace("@%p1 cp", "@%p4 cp")
    launch(f"{HERE} {OWN} {FETCH} setp.eq.u32 %p4, %r1, 33; {put} {DONE}", grid=2)


def test_reductions_of_blocks_are_no_race_and_loads_beside_them_are() -> None:
    add = PUT.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(
        ".bulk_group", ".bulk_group.add.u32"
    )
    launch(f"{SAME} {OWN} {add} {DONE}", grid=2)
    refused("to which the bulk copy", f"{SAME} {OWN} {add} {READ_ONLY} bar.sync 0; {LOAD}")


ADD = COPY.replace("cp.async.bulk.global", "cp.reduce.async.bulk.global").replace(
    "bulk_group [", "bulk_group.add.u32 ["
)
FILL = f"mov.u32 %r7, 5; st.shared.b32 [%r5], %r7; fence.proxy.async; {SAME} {OWN} "
FENCE = "fence.proxy.async;"
TOO_EARLY = "thread 0 .* {} x at offset 0, which a thread wrote, and no fence.proxy.async lies between"


@pytest.mark.parametrize(
    ("copy", "verb", "result"), [(ADD, "reduces", 12), (COPY, "copies to", 5)], ids=["add", "copy"]
)
def test_what_threads_wrote_needs_a_proxy_fence_before_a_bulk_copy_over_it(copy: str, verb: str, result: int) -> None:
    body = f"{FILL}{STORE} {{fence}} bar.sync 0; {{late}} {copy} {DONE}"
    read = f" bar.sync 0; {LOAD}"
    assert launch(body.format(fence=FENCE, late="") + read).tolist() == [[result] * THREADS]
    # A fence of the copying thread behind the barrier covers what all threads wrote before it.
    launch(body.format(fence="", late=FENCE))
    refused(TOO_EARLY.format(verb), body.format(fence="", late=""))
    refused(TOO_EARLY.format(verb), body.format(fence="fence.proxy.async.shared::cta;", late=""))
    refused(TOO_EARLY.format(verb), f"{FILL}{FENCE} {STORE} bar.sync 0; {copy} {DONE}")


def test_a_threads_own_stores_need_a_proxy_fence_before_its_reduction() -> None:
    own = "@%p1 st.global.b32 [%rd4], 7;"
    right = f"{FILL}bar.sync 0; {own} {FENCE} {ADD} {DONE}"
    assert launch(f"{right} bar.sync 0; {LOAD}")[0, 0] == 12
    updated = own.replace("st.global.b32", "red.global.add.u32")
    for before in (own, updated):
        refused(TOO_EARLY.format("reduces"), f"{FILL}bar.sync 0; {before} {ADD} {DONE}")


def test_a_thread_waits_for_its_reduction_before_it_uses_the_destination() -> None:
    again = "@%p1 st.global.b32 [%rd4], 7;"
    launch(f"{FILL}bar.sync 0; {ADD} {DONE} {again}")
    under_way = r"writes to x at offset 0, to which the bulk copy in line \d+ is under way"
    refused(under_way, f"{FILL}bar.sync 0; {ADD} {again} {DONE}")
    refused(under_way, f"{FILL}bar.sync 0; {ADD} {READ_ONLY} {again} {DONE}")
    refused(under_way.replace("writes to", "reads"), f"{FILL}bar.sync 0; {ADD} @%p1 ld.global.b32 %r9, [%rd4]; {DONE}")


def test_what_the_kernel_did_not_write_needs_no_proxy_fence() -> None:
    """Two reductions over the same bytes need none either: they access memory by one proxy."""
    launch(f"{FILL}bar.sync 0; {ADD} {DONE} {ADD} {DONE}")
