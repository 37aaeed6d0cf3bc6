"""The compiled code that records accesses to shared memory agrees with its numpy definition on every access."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from harness.ptx.kernel.memory import Shared


class Defined(Shared):
    """Records accesses by the definition in numpy."""

    compiled = False


STATE = ("writer", "written", "reader", "read", "unfenced")


def drawn(rng: np.random.Generator, unit: int, threads: int) -> tuple[str, Any]:
    """One instruction's accesses: several threads access the same units, at times that differ from lane to lane."""
    lanes = int(rng.integers(1, 97))
    size = int(rng.choice([unit, 2 * unit, 4 * unit]))
    offsets = rng.integers(0, 256 // size, lanes) * size
    thread = rng.integers(0, threads, lanes) if rng.random() < 0.8 else np.full(lanes, rng.integers(threads))
    now = int(rng.integers(0, 12))
    since = rng.integers(0, 12) if rng.random() < 0.5 else rng.integers(-1, 12, lanes)
    times = (np.broadcast_to(since, lanes), rng.integers(-1, 12, lanes))
    return ("read" if rng.random() < 0.6 else "write"), (offsets, size, thread.astype(np.int64), now, times)


@pytest.mark.parametrize("unit", [1, 4, 16])
@pytest.mark.parametrize("threads", [3, 32, 1024])
def test_both_versions_record_the_same(unit: int, threads: int) -> None:
    rng = np.random.default_rng(unit * threads)
    found = 0
    for _ in range(40):
        two = [kind(1, 256, unit, True) for kind in (Shared, Defined)]
        for _ in range(12):
            what, arguments = drawn(rng, unit, threads)
            changes = rng.random(len(arguments[0])) < 0.7
            if what == "read":
                bad = [one.note_read(*arguments) for one in two]
            else:
                bad = [one.note_write(*arguments, changes) for one in two]
            np.testing.assert_array_equal(bad[0], bad[1])
            found += int(bad[0].sum())
            if rng.random() < 0.3:
                for one in two:
                    one.note_landing(arguments[0], arguments[1], arguments[2], arguments[3])
            for name in STATE:
                np.testing.assert_array_equal(getattr(two[0], name), getattr(two[1], name), err_msg=name)
    assert found > 100, "some accesses race"


def test_a_race_is_detected() -> None:
    """Thread 40 reads the word that thread 3 of another warp wrote, without a barrier and with one."""
    shared = Shared(1, 64, 4, True)
    one = (np.array([8]), 4)
    shared.note_write(*one, np.array([3]), 5, (np.array([0]), np.array([0])), np.array([True]))
    assert shared.note_read(*one, np.array([40]), 6, (np.array([5]), np.array([0])))[0]
    assert not shared.note_read(*one, np.array([40]), 7, (np.array([6]), np.array([0])))[0]
    assert not shared.note_read(*one, np.array([4]), 7, (np.array([0]), np.array([6])))[0], "its warp has synced"
