"""Asynchronous copies: when they complete and for which threads, and errors for earlier accesses."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError, MemoryFault, OperandError
from tests.support.emulator.launched_text import SHARED, SHARED_ADDRESS, X, launch

COPY = "cp.async.ca.shared.global [%r22], [%rd11], 4;"
OWN = "ld.shared.b32 %r6, [%r22]; st.global.b32 [%rd12], %r6;"
MORE = {"shared": 512, "variables": SHARED}


def test_a_thread_reads_its_own_copy_after_its_wait() -> None:
    y = launch(SHARED_ADDRESS + COPY + "cp.async.commit_group; cp.async.wait_group 0;" + OWN, X, **MORE)
    np.testing.assert_array_equal(y, X)


@pytest.mark.parametrize(
    "wait",
    ["", "cp.async.commit_group;", "cp.async.commit_group; cp.async.wait_group 1;", "cp.async.wait_group 0;"],
    ids=["nothing", "commit alone", "wait for one too few", "wait without commit"],
)
def test_a_read_before_the_copy_has_landed_is_refused(wait: str) -> None:
    words = r"reads shared memory at offset 0, to which an asynchronous copy is under way \(issued by thread 0"
    with pytest.raises(MemoryFault, match=words):
        launch(SHARED_ADDRESS + COPY + wait + OWN, X, **MORE)


def test_wait_all_needs_no_commit() -> None:
    np.testing.assert_array_equal(launch(SHARED_ADDRESS + COPY + "cp.async.wait_all;" + OWN, X, **MORE), X)


def test_a_missing_wait_is_detected_although_the_bytes_were_written_before() -> None:
    """In a pipeline an earlier round has written the bytes, so no bit is undefined."""
    old = "st.shared.b32 [%r22], %r4; bar.sync 0;"
    with pytest.raises(MemoryFault, match="an asynchronous copy is under way"):
        launch(SHARED_ADDRESS + old + COPY + "cp.async.commit_group; bar.sync 0;" + OWN, X, **MORE)


def test_groups_land_in_order_and_the_last_ones_are_still_under_way() -> None:
    second = "add.u32 %r23, %r22, 256; cp.async.ca.shared.global [%r23], [%rd11], 4; cp.async.commit_group;"
    both = SHARED_ADDRESS + COPY + "cp.async.commit_group;" + second + "cp.async.wait_group 1;"
    np.testing.assert_array_equal(launch(both + OWN, X, **MORE), X)
    with pytest.raises(MemoryFault, match="reads shared memory at offset 256"):
        launch(both + OWN.replace("%r22", "%r23"), X, **MORE)


def test_groups_belong_to_threads() -> None:
    """The second warp's threads commit one more group, so only their copies have landed after `wait_group 1`."""
    body = SHARED_ADDRESS + COPY + "cp.async.commit_group; setp.ge.u32 %p1, %r1, 32;"
    body += "@%p1 cp.async.commit_group; cp.async.wait_group 1;"
    np.testing.assert_array_equal(launch(f"{body} @%p1 {OWN.replace('; st', '; @%p1 st')}", X, **MORE)[32:64], X[32:64])
    with pytest.raises(MemoryFault, match="thread 0 of block"):
        launch(body + OWN, X, **MORE)


def test_other_threads_need_a_barrier_after_the_wait() -> None:
    far = "xor.b32 %r23, %r22, 128; ld.shared.b32 %r6, [%r23]; st.global.b32 [%rd12], %r6;"
    body = SHARED_ADDRESS + COPY + "cp.async.wait_all; BARRIER" + far
    np.testing.assert_array_equal(launch(body.replace("BARRIER", "bar.sync 0;"), X, **MORE), X ^ 32)
    with pytest.raises(MemoryFault, match="another thread wrote, and no barrier"):
        launch(body.replace("BARRIER", ""), X, **MORE)


def test_a_barrier_before_the_wait_is_too_early() -> None:
    far = "xor.b32 %r23, %r22, 128; ld.shared.b32 %r6, [%r23]; st.global.b32 [%rd12], %r6;"
    with pytest.raises(MemoryFault, match="another thread wrote, and no barrier"):
        launch(SHARED_ADDRESS + COPY + "bar.sync 0; cp.async.wait_all;" + far, X, **MORE)


def test_a_copy_to_bytes_that_other_threads_still_read_is_a_race() -> None:
    """The next round's copy is issued without a barrier after this round's reads."""
    body = SHARED_ADDRESS + "st.shared.b32 [%r22], %r4; bar.sync 0; xor.b32 %r23, %r22, 128; ld.shared.b32 %r6, [%r23];"
    body += "BARRIER add.s64 %rd11, %rd11, 4; setp.lt.u32 %p1, %r4, 127; @%p1 " + COPY + "cp.async.wait_all;"
    with pytest.raises(MemoryFault, match="overwrites shared memory at offset"):
        launch(body.replace("BARRIER", "") + "st.global.b32 [%rd12], %r6;", X, **MORE)
    launch(body.replace("BARRIER", "bar.sync 0;") + "st.global.b32 [%rd12], %r6;", X, **MORE)


def test_two_copies_to_one_place_race() -> None:
    other = "xor.b32 %r5, %r4, 1; mul.wide.u32 %rd6, %r5, 4; add.s64 %rd7, %rd1, %rd6;"
    body = SHARED_ADDRESS + other + COPY + "cp.async.ca.shared.global [%r22], [%rd7], 4; cp.async.wait_all;" + OWN
    with pytest.raises(MemoryFault, match="another asynchronous copy is under way"):
        launch(body, X, **MORE)
    np.testing.assert_array_equal(launch(body.replace("[%rd7]", "[%rd11]"), X, **MORE), X)


def test_a_store_while_a_copy_is_under_way_is_refused() -> None:
    with pytest.raises(MemoryFault, match="writes to shared memory at offset 0, to which an asynchronous copy"):
        launch(SHARED_ADDRESS + COPY + "st.shared.b32 [%r22], %r4; cp.async.wait_all;" + OWN, X, **MORE)


@pytest.mark.parametrize(("size", "mask"), [(0, 0), (1, 0xFF), (3, 0xFFFFFF), (4, 0xFFFFFFFF)])
def test_bytes_that_the_source_does_not_fill_are_zero(size: int, mask: int) -> None:
    x = (X * 0x01010101 + 0x11223344).astype(np.int32)
    body = SHARED_ADDRESS + f"mov.u32 %r8, {size};" + COPY.replace(", 4", ", 4, %r8") + "cp.async.wait_all;" + OWN
    np.testing.assert_array_equal(launch(body, x, **MORE), x & np.uint32(mask).view(np.int32))


def test_a_predicate_says_whether_the_source_is_ignored() -> None:
    body = SHARED_ADDRESS + "setp.lt.u32 %p1, %r1, 8;" + COPY.replace(", 4", ", 4, %p1") + "cp.async.wait_all;" + OWN
    np.testing.assert_array_equal(launch(body, X, **MORE), np.where(X % 64 < 8, 0, X))


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ExecutionError, match="copies 5 bytes to 4"):
        launch(SHARED_ADDRESS + "mov.u32 %r8, 5;" + COPY.replace(", 4", ", 4, %r8"), X, **MORE)
    with pytest.raises(OperandError, match="copies 16 bytes, not 4"):
        launch(SHARED_ADDRESS + COPY.replace(".ca", ".cg"), X, **MORE)
