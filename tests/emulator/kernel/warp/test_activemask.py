"""activemask in a branch: right for each set of lanes that may run together, or an error."""

from __future__ import annotations

import pytest

from ptxdiff.emulator.errors import ExecutionError, PtxError
from tests.support.emulator.one_warp import LANES, STORE, one_warp

BRANCH = "mov.u32 %r3, 7; setp.lt.u32 %p1, %r1, 20; @!%p1 bra OUT; {} OUT: "
MASK = "activemask.b32 %r9;"
LEADER = "brev.b32 %r10, %r9; bfind.shiftamt.u32 %r10, %r10;"
"""%r10: the lowest lane of the mask in %r9."""
COUNT = "popc.b32 %r11, %r9;"

MISUSED = {
    "a sum by redux": f"{MASK} redux.sync.add.u32 %r3, %r2, %r9;",
    "a count": f"{MASK} popc.b32 %r3, %r9;",
    "a vote": f"{MASK} setp.eq.u32 %p2, %r1, 5; vote.sync.any.pred %p3, %p2, %r9; selp.b32 %r3, 1, 0, %p3;",
    "a ballot": f"{MASK} setp.lt.u32 %p2, %r1, 5; vote.sync.ballot.b32 %r3, %p2, %r9;",
    "a neighbour by shfl": f"{MASK} shfl.sync.bfly.b32 %r3, %r2, 1, 31, %r9;",
    "a value of lane 0": f"{MASK} shfl.sync.idx.b32 %r3, %r2, 0, 31, %r9;",
    "a value of the lowest lane": f"{MASK} {LEADER} shfl.sync.idx.b32 %r3, %r1, %r10, 31, %r9;",
    "an elected lane": f"{MASK} elect.sync _|%p2, %r9; selp.b32 %r3, 1, 0, %p2;",
    "equal values by match": f"{MASK} mov.u32 %r4, 5; match.any.sync.b32 %r3, %r4, %r9;",
    "a barrier of the warp": f"{MASK} shl.b32 %r5, %r1, 2; mov.u32 %r6, smem; add.u32 %r5, %r5, %r6; "
    "st.shared.b32 [%r5], %r1; bar.warp.sync %r9; xor.b32 %r7, %r1, 1; shl.b32 %r7, %r7, 2; add.u32 %r7, %r7, %r6; "
    "ld.shared.b32 %r3, [%r7];",
    "the mask in shared memory": f"{MASK} setp.eq.u32 %p2, %r1, 0; @%p2 st.shared.b32 [smem], %r9; "
    "bar.warp.sync 0xfffff; ld.shared.b32 %r3, [smem];",
}


@pytest.mark.parametrize("name", MISUSED)
def test_results_must_not_depend_on_the_lanes_that_run_together(name: str) -> None:
    with pytest.raises(PtxError, match=r"come (?:here|to activemask)"):
        one_warp(BRANCH.format(MISUSED[name]) + STORE, LANES)


AGGREGATED = f"""{MASK} {LEADER} {COUNT} setp.eq.u32 %p2, %r1, %r10;
@%p2 red.global.add.u32 [%rd2+128], %r11; mov.u32 %r3, 1;"""
SUMMED = f"""{MASK} {LEADER} redux.sync.add.u32 %r11, %r2, %r9; setp.eq.u32 %p2, %r1, %r10;
@%p2 red.global.add.u32 [%rd2+128], %r11; mov.u32 %r3, 1;"""
TICKETS = f"""{MASK} {LEADER} {COUNT} setp.eq.u32 %p2, %r1, %r10; mov.u32 %r12, 0;
@%p2 atom.global.add.u32 %r12, [%rd2+128], %r11; shfl.sync.idx.b32 %r12, %r12, %r10, 31, %r9;
mov.u32 %r14, %lanemask_lt; and.b32 %r14, %r14, %r9; popc.b32 %r14, %r14; add.u32 %r3, %r12, %r14;"""
MATCHED = f"""{MASK} and.b32 %r4, %r1, 1; match.any.sync.b32 %r9, %r4, %r9; {LEADER} {COUNT}
setp.eq.u32 %p2, %r1, %r10; mul.wide.u32 %rd7, %r4, 4; add.s64 %rd7, %rd7, %rd2;
@%p2 red.global.add.u32 [%rd7+128], %r11; mov.u32 %r3, 1;"""
ZEROED = "setp.lt.u32 %p4, %r1, 2; @%p4 st.global.b32 [%rd5+128], 0; bar.sync 0;"


@pytest.mark.parametrize(
    ("body", "total"), [(AGGREGATED, [20, 0]), (SUMMED, [190, 0]), (TICKETS, [20, 0]), (MATCHED, [10, 10])],
    ids=["a count", "a sum", "tickets", "by address"],
)  # fmt: skip
def test_aggregated_atomics_are_right_for_each_set_of_lanes(body: str, total: list[int]) -> None:
    y = one_warp(ZEROED + BRANCH.format(body) + STORE, LANES, size=34)
    assert y[32:].tolist() == total
    if body is TICKETS:
        assert sorted(y[:20]) == list(range(20))


RIGHT = {
    "a mask by ballot": "vote.sync.ballot.b32 %r9, %p1, -1; @!%p1 bra OUT; redux.sync.add.u32 %r3, %r2, %r9; OUT:",
    "a mask that nobody uses": BRANCH.format(MASK),
    "the whole warp": f"{MASK} redux.sync.add.u32 %r3, %r2, %r9;",
    "one lane": f"setp.eq.u32 %p1, %r1, 3; @!%p1 bra OUT; {MASK} redux.sync.add.u32 %r3, %r2, %r9; OUT:",
    "each lane for itself": BRANCH.format(f"{MASK} shr.u32 %r3, %r9, %r1; and.b32 %r3, %r3, 1;"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_uses(name: str) -> None:
    one_warp("setp.lt.u32 %p1, %r1, 20; mov.u32 %r3, 7; " + RIGHT[name] + STORE, LANES)


def test_lanes_that_came_alone_meet_the_others_later() -> None:
    one_warp(BRANCH.format(f"{MASK} bar.warp.sync %r9;") + "bar.warp.sync -1; mov.u32 %r3, 1;" + STORE, LANES)


def test_a_lane_that_owes_a_barrier_to_those_for_which_it_is_no_leader() -> None:
    """All lanes but the lowest of the mask synchronise, by a mask that takes lane 0 for it."""
    body = f"{MASK} {LEADER} setp.eq.u32 %p2, %r1, %r10; @%p2 bra OUT; bar.warp.sync {{mask}};"
    right = body.format(mask="%r9").replace("@%p2 bra OUT;", "")
    one_warp(BRANCH.format(right) + "bar.sync 0;" + STORE, LANES)
    with pytest.raises(ExecutionError, match="come to activemask in two groups"):
        one_warp(BRANCH.format(body.format(mask="0xffffe")) + "bar.sync 0;" + STORE, LANES)


GROUPS = "setp.lt.u32 %p1, %r1, 16; selp.b32 %r9, 0xffff, 0xffff0000, %p1; setp.eq.u32 %p3, %r1, 3; mov.u32 %r4, 0;"
LOW, HIGH = 0xFFFF, 0xFFFF0000
EACH = {
    "redux": ("redux.sync.add.u32 %r3, %r1, %r9;", 120, 376),
    "ballot": ("vote.sync.ballot.b32 %r3, 1, %r9;", LOW, HIGH),
    "any": ("vote.sync.any.pred %p2, %p3, %r9; selp.b32 %r3, 1, 0, %p2;", 1, 0),
    "match": ("match.any.sync.b32 %r3, %r4, %r9;", LOW, HIGH),
    "match all": ("match.all.sync.b32 %r3|%p2, %r4, %r9;", LOW, HIGH),
    "elect": ("elect.sync %r3|%p2, %r9;", 0, 16),
    "shfl": ("shfl.sync.bfly.b32 %r3, %r4, 15, 31, %r9;", 0, 0),
}


@pytest.mark.parametrize("name", EACH)
def test_groups_of_lanes_with_a_mask_each_exchange_among_themselves(name: str) -> None:
    instruction, low, high = EACH[name]
    y = one_warp(GROUPS + instruction + STORE, LANES)
    assert y.tolist() == [low] * 16 + [high] * 16


def test_a_group_gets_no_value_of_another() -> None:
    """ISA 9.7.9.6: undefined if a thread sources a register from a thread that is not in the membership mask."""
    with pytest.raises(PtxError, match="undefined bits"):
        one_warp(GROUPS + "shfl.sync.idx.b32 %r3, %r1, 0, 31, %r9;" + STORE, LANES)
