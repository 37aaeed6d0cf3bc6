"""The order of all threads of a grid: as `HappensBefore` of one team, and what fences release beyond their thread."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory.grid_order import GridOrder
from ptxdiff.emulator.kernel.memory.happens_before import HappensBefore

THREADS, BLOCKS = 32, 3
SEMS = ["weak", "relaxed", "acquire", "release", "acq_rel"]
SCOPES = ["cta", "cluster", "gpu", "sys"]


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(4))
def test_it_agrees_with_the_order_that_writes_everything_down(seed: int) -> None:
    """Random releases and acquires at a few locations. No barriers: those hand over fences here, and not there."""
    rng = np.random.default_rng(seed)
    lanes = THREADS * BLOCKS
    orders = HappensBefore(lanes, THREADS, lanes, THREADS), GridOrder(lanes, THREADS, THREADS, narrow=True)
    everyone = np.arange(lanes)
    for _ in range(300):
        kind = rng.choice(["load", "store", "update", "fence"])
        lane, location = int(rng.choice([0, 1, 40, 41, 70])), int(rng.integers(3))
        sem, scope = str(rng.choice(SEMS)), str(rng.choice(SCOPES))
        if kind == "store":
            sem = sem if sem in ("weak", "relaxed", "release") else "release"
        if kind == "load":
            sem = sem if sem in ("weak", "relaxed", "acquire") else "acquire"
        if kind == "update" and sem == "weak":
            sem = "relaxed"
        for order in orders:
            if kind == "fence":
                order.fence(np.array([lane]), scope)
            else:
                getattr(order, kind)(lane, location, sem, scope)
        one, two = (order.components(everyone, np.tile(everyone, (lanes, 1))) for order in orders)
        assert np.array_equal(one, two)


@pytest.mark.parametrize("others_first", [False, True])
def test_fences_of_all_threads_before_a_barrier_release_what_all_did(others_first: bool) -> None:
    """The last block of a reduction (PyTorch): all fence and meet, then one thread adds to a counter."""
    order = GridOrder(2 * THREADS, THREADS, THREADS, narrow=False)
    first, second = np.arange(2 * THREADS) < THREADS, np.arange(2 * THREADS) >= THREADS
    when = order.tick()
    order.fence(np.flatnonzero(first), "gpu")
    if others_first:
        order.fence(np.flatnonzero(second), "gpu")
        order.block_barriers(second)
    order.block_barriers(first)
    order.update(0, "counter", "relaxed")
    order.update(THREADS, "counter", "relaxed")
    order.block_barriers(second)
    order.fence(np.flatnonzero(second), "gpu")
    assert order.components(np.array([THREADS + 3]), np.array([[5]]))[0, 0] > when
    assert order.components(np.array([3]), np.array([[THREADS + 5]]))[0, 0] <= when


def test_a_fence_of_one_thread_releases_nothing_of_the_others() -> None:
    order = GridOrder(2 * THREADS, THREADS, THREADS, narrow=False)
    when = order.tick()
    order.fence(np.array([0]), "gpu")
    order.block_barriers(np.arange(2 * THREADS) < THREADS)
    order.update(0, "counter", "relaxed")
    order.load(THREADS, "counter", "acquire")
    components = order.components(np.array([THREADS, THREADS]), np.array([[0], [5]]))[:, 0]
    assert components[0] > when >= components[1]


@pytest.mark.parametrize("last", ["store", "update", "relaxed update", "relaxed store"])
def test_a_load_of_the_value_before_the_last_write_learns_what_came_before_it(last: str) -> None:
    order = GridOrder(128, 32, 32, False)
    order.store(0, "flag", "release", "gpu")
    wrote = order.clock - 1
    order.tick()
    sem = "relaxed" if "relaxed" in last else "release"
    (order.update if "update" in last else order.store)(32, "flag", sem, "gpu")
    order.load_before(64, "flag", "acquire", "gpu")
    components = order.components(np.array([64, 64]), np.array([[0], [32]]))[:, 0]
    assert components[0] > wrote, "the writer of the value that was seen"
    assert components[1] == 0, "the writer of the newest value, which was not seen"
