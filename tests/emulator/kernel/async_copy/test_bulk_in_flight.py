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
