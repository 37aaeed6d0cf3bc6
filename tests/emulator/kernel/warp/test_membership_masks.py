"""Membership masks of instructions between threads of a warp: masks for which the ISA defines no result are errors."""

import numpy as np
import pytest

from ptxdiff.emulator.errors import ExecutionError
from tests.support.emulator.one_warp import LANES, STORE, one_warp

OPERATIONS = {
    "redux": "redux.sync.add.u32 %r3, %r2, {mask};",
    "ballot": "vote.sync.ballot.b32 %r3, 1, {mask};",
    "vote": "vote.sync.any.pred %p2, 1, {mask}; selp.b32 %r3, 1, 0, %p2;",
    "match": "match.any.sync.b32 %r3, %r2, {mask};",
    "shfl": "shfl.sync.bfly.b32 %r3, %r2, 1, 0x1f, {mask};",
    "elect": "elect.sync %r3|%p2, {mask};",
    "bar.warp": "mov.u32 %r3, 0; bar.warp.sync {mask};",
}
GATHERS = ("redux", "ballot", "vote", "match")


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_mask_must_contain_every_thread_that_executes_the_instruction(name: str) -> None:
    one_warp(OPERATIONS[name].format(mask=-1) + STORE, LANES)
    with pytest.raises(ExecutionError, match=r"thread 31 of .* 0x7fffffff, which leaves this thread out") as raised:
        one_warp(OPERATIONS[name].format(mask="0x7fffffff") + STORE, LANES)
    assert "line" in str(raised.value)


@pytest.mark.parametrize("name", OPERATIONS)
def test_all_threads_of_a_mask_must_give_the_same_mask(name: str) -> None:
    halves = "setp.lt.u32 %p1, %r1, 16; selp.b32 %r9, 0xffff, {other}, %p1; " + OPERATIONS[name].format(mask="%r9")
    one_warp(halves.format(other="0xffff0000") + STORE, LANES)  # two groups of threads with a mask each
    with pytest.raises(ExecutionError, match=r"thread 16 of .* 0xffffffff, and a thread of that mask .* another mask"):
        one_warp(halves.format(other="-1") + STORE, LANES)


@pytest.mark.parametrize("name", GATHERS)
def test_all_members_must_execute_an_instruction_that_combines_their_values(name: str) -> None:
    some = "mov.u32 %r3, 0; setp.lt.u32 %p1, %r1, 20; {skip} " + OPERATIONS[name].format(mask=-1) + " DONE: "
    with pytest.raises(ExecutionError, match=r"thread 0 of .* neither executes it now nor has ended"):
        one_warp(some.format(skip="@!%p1 bra DONE;") + STORE, LANES)


def test_threads_that_ended_are_not_waited_for() -> None:
    y = one_warp(f"setp.ge.u32 %p1, %r1, 20; @%p1 ret; vote.sync.ballot.b32 %r3, 1, -1; {STORE}", LANES)
    np.testing.assert_array_equal(y[:20], 0xFFFFF)


HALVES = "mov.u32 %r3, %r2; setp.lt.u32 %p1, %r1, 16; @!%p1 bra ELSE; {first} bra DONE; ELSE: {second} DONE: {after}"
SWAP = "shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;"

INSTEAD = {
    "shfl, and bar.warp.sync": (SWAP, "", "bar.warp.sync -1;"),
    "bar.warp.sync, and shfl": ("bar.warp.sync -1;", SWAP, ""),
    "two kinds of shfl": (SWAP, "shfl.sync.down.b32 %r3, %r2, 1, 31, -1;", ""),
    "shfl of all, and one of a half": (SWAP, SWAP.replace("-1;", "0xffff0000;"), SWAP + "bar.warp.sync -1;"),
    "shfl, and a vote of a half": (SWAP, "vote.sync.ballot.b32 %r3, %p1, 0xffff0000;", "bar.warp.sync -1;"),
    "elect, and bar.warp.sync": ("elect.sync %r3|%p2, -1;", "", "bar.warp.sync -1;"),
    "three shfl, and two": (SWAP * 3, SWAP * 2, "bar.warp.sync -1;"),
    "shfl of a half, and bar.warp.sync": (SWAP.replace("-1;", "0x1ffff;"), "", "bar.warp.sync -1;"),
}


@pytest.mark.parametrize("name", INSTEAD)
def test_no_thread_passes_an_exchange_whose_members_execute_another(name: str) -> None:
    first, second, after = INSTEAD[name]
    with pytest.raises(
        ExecutionError, match=r"executes .* with the membership mask .* of that mask .* neither can go on"
    ):
        one_warp(HALVES.format(first=first, second=second, after=after) + STORE, LANES)


def test_lanes_that_elect_at_two_places_have_one_leader() -> None:
    elect = "elect.sync %r3|%p2, -1; selp.b32 %r4, 100, 0, %p2; add.u32 %r3, %r3, %r4;"
    np.testing.assert_array_equal(
        one_warp(HALVES.format(first=elect, second=elect, after="") + STORE, LANES), np.where(LANES == 0, 100, 0)
    )
    ended = "setp.lt.u32 %p1, %r1, 3; @%p1 exit; " + elect
    np.testing.assert_array_equal(one_warp(ended + STORE, LANES)[3:], np.where(LANES == 3, 103, 3)[3:])


IN_TWO_PLACES = {
    "shfl, before a barrier": (SWAP, SWAP, "bar.sync 0;"),
    "shfl, before bar.warp.sync": (SWAP, SWAP, "bar.warp.sync -1;"),
    "three each": (SWAP * 3, SWAP * 3, "bar.sync 0;"),
    "one half synchronises alone first": (SWAP, "bar.warp.sync 0xffff0000;" + SWAP, "bar.sync 0;"),
    "each half alone, then both": (
        SWAP.replace("-1;", "0xffff;"),
        SWAP.replace("-1;", "0xffff0000;"),
        "bar.warp.sync -1;",
    ),
}


@pytest.mark.parametrize("name", IN_TWO_PLACES)
def test_halves_of_a_warp_execute_an_exchange_in_two_places(name: str) -> None:
    """Since sm_70 they may; the half that comes later waits for nobody."""
    first, second, after = IN_TWO_PLACES[name]
    body = HALVES.format(first=first, second=second, after=after + " mov.u32 %r3, %r1; " + SWAP)
    np.testing.assert_array_equal(one_warp(body + STORE, LANES), LANES ^ 1)
