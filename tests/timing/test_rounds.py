"""Rounds: in random order from a seed, as many as needed; a report of the noise if the budget is too small."""

import numpy as np
import pytest

from ptxdiff.timing import rounds
from ptxdiff.timing.rounds import BATCH, LEAST, WARM_UP, measure


class Device:
    """A model of a device: every launch returns its level; the timer adds noise, and records the order."""

    name = "model"

    def __init__(self, spread=0.001, drift=0.0):
        self.rng = np.random.default_rng(3)
        self.spread, self.drift = spread, drift
        self.order = []

    def times(self, launches):
        found = []
        for launch in launches:
            arm, level = launch()
            self.order.append(arm)
            level *= 1 + self.drift * len(self.order)
            found.append(level * (1 + self.spread * self.rng.standard_normal()))
        return found


ARMS = {name: (lambda n=name, s=level: (n, s)) for name, level in (("a", 1e-5), ("b", 2e-5), ("/twin", 1e-5))}


def test_samples_go_to_the_arm_that_was_launched():
    found = measure(ARMS, Device(), seed=1, budget=5)
    assert np.median(found.seconds["a"]) == pytest.approx(1e-5, rel=0.01)
    assert np.median(found.seconds["b"]) == pytest.approx(2e-5, rel=0.01)
    assert found.rounds == LEAST  # with so little noise, the least number of rounds is enough
    assert not found.wide


def test_every_round_has_every_arm_once_in_random_order():
    device = Device()
    measure(ARMS, device, seed=1, budget=5)
    order = device.order[WARM_UP * len(ARMS) :]
    assert len(order) == LEAST * len(ARMS)
    whole = [tuple(order[k : k + len(ARMS)]) for k in range(0, len(order), len(ARMS))]
    assert all(sorted(r) == sorted(ARMS) for r in whole)
    assert len(set(whole)) == 6  # every permutation of three occurs in thirty-two rounds
    assert {r[0] for r in whole} == set(ARMS)


def test_the_seed_gives_the_order():
    orders = []
    for seed in (1, 1, 2):
        device = Device()
        measure(ARMS, device, seed=seed, budget=5)
        orders.append(device.order)
    assert orders[0] == orders[1] != orders[2]


def test_noisy_arms_get_more_rounds_until_they_are_known():
    found = measure(ARMS, Device(spread=0.02), seed=1, budget=30)
    assert found.rounds > 2 * LEAST
    assert found.rounds % BATCH == 0
    assert not found.wide


def test_an_interval_that_is_wide_at_the_end_of_the_budget_is_reported():
    found = measure(ARMS, Device(spread=0.5), seed=1, budget=0.0)
    assert found.rounds == LEAST
    assert set(found.wide) == set(ARMS)
    assert min(found.wide.values()) > rounds.PRECISION


def test_rounds_end_when_the_judged_arms_are_known():
    rng = np.random.default_rng(1)
    noisy = {**ARMS, "/empty": lambda: ("/empty", 1e-6 * rng.gamma(1))}
    found = measure(noisy, Device(), seed=1, budget=30, judged=["a", "b"])
    assert found.rounds == LEAST
    assert not found.wide


def test_a_drift_affects_all_arms_equally():
    """Arms timed one after the other would differ by the drift, here by 18%; in random rounds it cancels."""
    found = measure({"a": ARMS["a"], "/twin": ARMS["a"]}, Device(drift=0.002), seed=4, budget=0.0)
    assert found.seconds["a"][-1] > 1.1 * found.seconds["a"][0]
    assert np.median(found.seconds["a"]) == pytest.approx(np.median(found.seconds["/twin"]), rel=0.01)


def test_a_clock_of_coarse_steps_ends_the_rounds():
    class Coarse(Device):
        def times(self, launches):
            return [round(t / 32e-9) * 32e-9 for t in super().times(launches)]

    found = measure({"a": lambda: ("a", 1.5e-6)}, Coarse(spread=0.02), seed=1, budget=30)
    assert found.rounds < 20 * LEAST  # more rounds do not make the interval narrower than a step
    assert found.wide["a"] == pytest.approx(32e-9 / 1.5e-6, rel=0.05)


def test_the_clocks_are_read_after_every_batch():
    read = []
    found = measure(ARMS, Device(), seed=1, budget=5, after_batch=lambda: read.append(1))
    assert len(read) == found.rounds // BATCH


def test_what_a_launch_changed_is_restored_before_each_and_not_timed():
    """An arm changes its input: without the restore only its first launch would be right. A restore takes a second."""
    value, seen = [0], []

    def restore():
        value[0] = 0
        return "restore", 1.0

    def launch():
        seen.append(value[0])
        value[0] += 1
        return "c", 3e-5 * 10 ** seen[-1]

    changing = rounds.Restoring(launch, restore)
    device = Device()
    found = measure({**ARMS, "c": changing, "/copy": changing}, device, seed=1, budget=5)
    assert set(seen) == {0}
    assert max(found.seconds["c"]) < 4e-5
    assert {len(s) for s in found.seconds.values()} == {LEAST}
    assert all(device.order[k - 1] == "restore" for k, arm in enumerate(device.order) if arm == "c")
    assert device.order.count("restore") == len(seen) == 2 * (LEAST + WARM_UP)
