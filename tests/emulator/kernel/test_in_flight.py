"""Bytes that one kind of work in flight owns, and accesses of threads and of other kinds to them.

Each kernel is right with its wait, and each without it is refused with the wait's name.
"""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import MemoryFault
from tests.support.emulator.cluster_kernels import MAKE, THREADS, WAIT, run

BYTES = 4 * THREADS
BEGIN = f"""{MAKE.format(count=1)} bar.sync 0; mul.wide.u32 %rd4, %r1, 4; add.s64 %rd4, %rd3, %rd4;
mov.u32 %r7, 7; mov.b32 %r13, 0; """
COPY = "cp.async.ca.shared.global [%r5], [%rd4], 4;"
COPIED = "cp.async.wait_all; bar.sync 0;"
LOAD = f"""@%p1 mbarrier.arrive.expect_tx.shared.b64 _, [bar], {BYTES};
@%p1 cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r4], [%rd3], {BYTES}, [bar]; bar.sync 0;"""
FILL = "st.shared.b32 [%r5], %r1; fence.proxy.async; bar.sync 0;"
STORE = f"""@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r4], {BYTES};
@%p1 cp.async.bulk.commit_group;"""
STORED = "@%p1 cp.async.bulk.wait_group.read 0; bar.sync 0;"
READ = "ld.shared.b32 %r9, [%r5];"
BOUND = "to which an asynchronous copy is under way .*cp.async.wait_group or wait_all must come first"
BULK = "to which the bulk copy in line .* is under way .*a wait for the mbarrier"
LEAVING = "writes to shared memory at offset .*, which the bulk copy in line .* still reads.*wait_group"

CASES = {
    "cp.async, load": (COPY, COPIED, READ, "reads .*" + BOUND),
    "cp.async, load of one byte": (COPY, COPIED, "ld.shared.u8 %r9, [%r5+3];", "reads .*" + BOUND),
    "cp.async, store": (COPY, COPIED, "st.shared.b32 [%r5], %r7;", "writes to .*" + BOUND),
    "cp.async, store of one byte": (COPY, COPIED, "st.shared.u8 [%r5+1], %r7;", "writes to .*" + BOUND),
    "cp.async, atomic": (COPY, COPIED, "red.shared.add.u32 [%r5], %r7;", "updates .*" + BOUND),
    "cp.async, bulk load": (COPY, COPIED + "fence.proxy.async;", f"bar.sync 0; {LOAD} {WAIT}", "copies to .*" + BOUND),
    "cp.async, bulk store": (
        COPY, COPIED + "fence.proxy.async;", f"bar.sync 0; {STORE} {STORED}", "copies from .*" + BOUND
    ),
    "bulk load, load": (LOAD, WAIT, READ, "reads .*" + BULK),
    "bulk load, store": (LOAD, WAIT + "bar.sync 0;", "st.shared.b32 [%r5], %r7;", "writes to .*" + BULK),
    "bulk load, atomic": (LOAD, WAIT + "bar.sync 0;", "red.shared.add.u32 [%r5], %r7;", "updates .*" + BULK),
    "bulk load, cp.async": (LOAD, WAIT + "bar.sync 0;", f"{COPY} {COPIED}", "copies to .*" + BULK),
    "bulk load, bulk store": (LOAD, WAIT + "bar.sync 0;", f"{STORE} {STORED}", "copies from .*" + BULK),
    "bulk store, store": (FILL + STORE, STORED, "st.shared.b32 [%r5], %r7;", LEAVING),
    "bulk store, store of one byte": (FILL + STORE, STORED, "st.shared.u8 [%r5+2], %r7;", LEAVING),
    "bulk store, atomic": (FILL + STORE, STORED, "red.shared.add.u32 [%r5], %r7;", LEAVING),
    # from other bytes than those to which the bulk copy writes
    "bulk store, cp.async": (FILL + STORE, STORED, f"{COPY.replace('%rd4', '%rd4+512')} {COPIED}", LEAVING),
    "bulk store, bulk load": (
        FILL + STORE, STORED + "fence.proxy.async;", f"bar.sync 0; {LOAD.replace('%rd3', '%rd3+512')} {WAIT}", LEAVING
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_work_in_flight_owns_its_bytes_until_it_is_waited_for(name: str) -> None:
    """Zeros are copied, so that no value shows the mistake."""
    work, wait, access, words = CASES[name]
    zeros = np.zeros(256, np.uint32)
    run(f"{BEGIN} {work} {wait} {access}", (1,), x=zeros, cluster="")
    with pytest.raises(MemoryFault, match=words):
        run(f"{BEGIN} {work} {access}", (1,), x=zeros, cluster="")


@pytest.mark.parametrize("name", ["cp.async, load", "bulk load, load", "bulk store, store"])
def test_other_bytes_are_free(name: str) -> None:
    """Work of the first half of `word` owns nothing of the second."""
    work, _, access, _ = CASES[name]
    ended = {"cp.async, load": COPIED, "bulk load, load": WAIT, "bulk store, store": STORED}[name]
    there = f"st.shared.b32 [%r5+{BYTES}], %r7; " + access.replace("[%r5]", f"[%r5+{BYTES}]")
    run(f"{BEGIN} {work} {there} {ended}", (1,), cluster="")


@pytest.mark.parametrize("name", ["cp.async, load", "bulk store, store"])
def test_the_second_of_two_works_still_owns_the_bytes(name: str) -> None:
    """Two copies of equal bytes, or two readers: a wait for one of them is not enough."""
    _, _, access, words = CASES[name]
    some, other = {
        "cp.async, load": (f"{COPY} cp.async.commit_group;", "cp.async.wait_group 1;"),
        "bulk store, store": (FILL + STORE, "@%p1 cp.async.bulk.wait_group.read 1; bar.sync 0;"),
    }[name]
    again = some.removeprefix(FILL)
    with pytest.raises(MemoryFault, match=words):
        run(f"{BEGIN} {some} {again} {other} {access}", (1,), cluster="")
