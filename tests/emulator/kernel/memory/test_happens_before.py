"""What threads know of each other after barriers, releases and acquires."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore


def ordered(order: HappensBefore, writer: int, when: int, reader: int) -> bool:
    """Whether an access of one lane at a time is ordered before another lane of its team."""
    return bool(when < order.components(np.array([reader]), np.array([[writer % order.team]]))[0, 0])


def test_a_barrier_orders_only_its_threads() -> None:
    order = HappensBefore(128, 128)
    wrote = order.clock
    order.barrier(np.arange(64))
    assert ordered(order, 0, wrote, 63)
    assert not ordered(order, 0, wrote, 64)
    assert not ordered(order, 64, wrote, 0)
    order.barrier(np.arange(63, 65))
    assert ordered(order, 0, wrote, 64), "thread 63 hands over what it knows"
    assert not ordered(order, 0, order.clock, 64), "and nothing later"


def test_a_thread_that_only_arrives_acquires_nothing() -> None:
    order = HappensBefore(64, 64)
    wrote = order.clock
    order.tick()
    arrived = order.release(np.arange(32))
    late = order.clock
    order.barrier(np.arange(32, 64), arrived)
    assert ordered(order, 0, wrote, 40)
    assert not ordered(order, 0, late, 40), "what it did after its arrival"
    assert not ordered(order, 40, wrote, 0)


def test_the_whole_block_shares_what_one_thread_acquired() -> None:
    order = HappensBefore(128, 64, 128)
    wrote = order.clock
    order.tick()
    order.acquire(np.array([70]), order.release(np.array([3])))
    assert ordered(order, 3, wrote, 70)
    assert not ordered(order, 3, wrote, 71)
    order.warp_barriers(np.arange(128) // 32 == 2)
    assert ordered(order, 3, wrote, 71)
    assert not ordered(order, 3, wrote, 100)
    order.block_barriers(np.arange(128) >= 64)
    assert ordered(order, 3, wrote, 100)
    assert not ordered(order, 4, wrote, 100)


@pytest.mark.parametrize(
    ("store", "load", "acquires"),
    [
        ("release", "acquire", True),
        ("release", "relaxed", False),
        ("relaxed", "acquire", False),
        ("weak", "weak", False),
    ],
)
def test_a_release_and_an_acquire_of_a_location_order(store: str, load: str, acquires: bool) -> None:
    order = HappensBefore(64, 64)
    wrote = order.clock
    order.store(0, "flag", store, "cta")
    order.load(40, "flag", load, "cta")
    assert ordered(order, 0, wrote, 40) is acquires


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("behind", [True, False])
def test_relaxed_accesses_need_a_fence_on_both_sides(before: bool, behind: bool) -> None:
    order = HappensBefore(64, 64)
    wrote = order.clock
    if before:
        order.fence(np.array([0]), "gpu")
    late = order.clock
    order.store(0, "flag", "relaxed", "gpu")
    order.load(40, "flag", "relaxed", "gpu")
    if behind:
        order.fence(np.array([40]), "gpu")
    assert ordered(order, 0, wrote, 40) is (before and behind)
    assert not ordered(order, 0, late, 40), "what it did after its fence"


def test_updates_go_on_with_a_release_sequence_and_stores_end_it() -> None:
    order = HappensBefore(96, 96)
    wrote = order.clock
    order.store(0, "flag", "release", "cta")
    order.update(40, "flag", "relaxed", "cta")
    order.load(70, "flag", "acquire", "cta")
    assert ordered(order, 0, wrote, 70)
    order.store(40, "flag", "relaxed", "cta")
    order.load(71, "flag", "acquire", "cta")
    assert not ordered(order, 0, wrote, 71)


@pytest.mark.parametrize(
    ("scope", "reader", "acquires"),
    [("cta", 20, True), ("cta", 40, False), ("cluster", 40, True), ("cluster", 70, False), ("gpu", 70, True)],
)
@pytest.mark.parametrize("narrow", ["store", "load"])
def test_both_scopes_must_contain_the_other_thread(scope: str, reader: int, acquires: bool, narrow: str) -> None:
    """Blocks of 32 threads, clusters of two, one team."""
    order = HappensBefore(128, 32, 128, 64)
    wrote = order.clock
    order.store(0, "flag", "release", scope if narrow == "store" else "sys")
    order.load(reader, "flag", "acquire", scope if narrow == "load" else "sys")
    assert ordered(order, 0, wrote, reader) is acquires


def test_asynchronous_work_is_a_member_too() -> None:
    order = HappensBefore(64, 64)
    order.barrier(np.array([1, 2]))
    landed = order.clock
    copy = order.agent("copies to a barrier")
    assert order.agent("copies to a barrier") == copy >= 64
    times = np.zeros(copy + 1, np.int32)
    times[copy] = order.tick()
    order.acquire(np.array([5]), times)
    components = order.components(np.array([5, 6]), np.array([[copy], [copy]]))
    assert components[0, 0] > landed >= components[1, 0]


def test_rows_that_nobody_holds_are_dropped() -> None:
    order = HappensBefore(64, 64)
    for _ in range(1000):
        order.barrier(np.arange(32))
        order.barrier(np.arange(32, 64))
    assert len(order.vectors) < 40


@pytest.mark.sample(2)
@pytest.mark.parametrize("sem", ["acquire", "release", "acq_rel"])
@pytest.mark.parametrize("team", [64, 128])
def test_updates_together_are_those_one_after_the_other(sem: str, team: int) -> None:
    """Lanes of two blocks update few locations, after random barriers."""
    rng = np.random.default_rng(team)
    for _ in range(10):
        two = [HappensBefore(128, 64, team, team) for _ in range(2)]
        for _ in range(6):
            lanes = np.sort(rng.choice(64, rng.integers(1, 30), replace=False)) + 64 * int(rng.integers(2))
            where = rng.integers(0, 4, len(lanes)).tolist()
            for order in two:
                order.barrier(lanes[:5])
            how = sem if rng.random() < 0.7 else "acq_rel"
            two[0].updates(lanes, where, how, "gpu")
            for lane, location in zip(lanes.tolist(), where, strict=True):
                two[1].update(lane, location, how, "gpu")
            members = np.tile(np.arange(team), (128, 1))
            known = [order.components(np.arange(128), members) for order in two]
            # Moments differ, as each update alone is one: compare who knows anything of whom.
            np.testing.assert_array_equal(known[0] > 0, known[1] > 0)


def test_teams_acquire_nothing_of_each_other() -> None:
    order = HappensBefore(64, 32)
    wrote = order.clock
    order.store(0, "flag", "release", "gpu")
    order.load(40, "flag", "acquire", "gpu")
    assert not ordered(order, 0, wrote, 40)


def test_agents_of_many_groups_at_once_are_those_one_after_the_other() -> None:
    """After random barriers: `acquire_agents` is `acquire` of the agent's time for each lane, and no more."""
    rng = np.random.default_rng(2)
    for _ in range(40):
        one, other = HappensBefore(512, 256), HappensBefore(512, 256)
        for order in (one, other):
            assert [order.agent(name) for name in "ab"] == [256, 288]
        for _ in range(int(rng.integers(1, 6))):
            if rng.random() < 0.6:
                some = 256 * int(rng.integers(2)) + np.sort(rng.choice(256, 9, replace=False))
                one.barrier(some)
                other.barrier(some)
            firsts = np.sort(rng.choice(4, rng.integers(1, 5), replace=False)) * 128
            agents = np.where(firsts % 256 == 0, 256, 288)
            one.acquire_agents(firsts, agents, 128)
            now = other.tick()
            for first, agent in zip(firsts.tolist(), agents.tolist(), strict=True):
                times = np.zeros(other.vectors.shape[1], np.int32)
                times[agent] = now
                other.acquire(np.arange(first, first + 128), times)
        lanes = np.arange(512)
        members = np.broadcast_to(np.arange(320), (512, 320))
        np.testing.assert_array_equal(one.vectors[one.vector][:, :320], other.vectors[other.vector][:, :320])
        np.testing.assert_array_equal(one.components(lanes, members), other.components(lanes, members))
