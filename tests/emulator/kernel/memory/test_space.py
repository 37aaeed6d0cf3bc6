"""Bytes of many accesses at once: every bit pattern survives, and the last lane wins."""

from __future__ import annotations

import numpy as np
import pytest

from ptxdiff.emulator.kernel.memory.races import UnitCounts, UnitStates
from ptxdiff.emulator.kernel.memory.space import gather, scatter

SIGNALLING = [0x7FF0000000000001, 0xFFF4000000000000, 0x7F8000017F800001]


@pytest.mark.parametrize(("width", "count"), [(32, 4), (64, 2), (32, 2), (32, 1), (16, 8), (8, 1)])
def test_scattered_values_are_gathered_again(width: int, count: int) -> None:
    rng, size = np.random.default_rng(width), width // 8 * count
    data, offsets = np.zeros(1024, np.uint8), rng.permutation(1024 // size)[:40] * size
    rows = rng.integers(0, 256, (len(offsets), size), np.uint8)
    rows[:3, : min(size, 8)] = np.array(SIGNALLING).astype(np.uint64).view(np.uint8).reshape(3, 8)[:, : min(size, 8)]
    values = list(np.ascontiguousarray(rows.view(f"u{width // 8}").T))
    scatter(data, offsets, values, width)
    for value, found in zip(values, gather(data, offsets, width, count), strict=True):
        np.testing.assert_array_equal(found, value)
    assert data.sum() == rows.astype(np.int64).sum()


def test_of_several_values_for_one_place_the_last_stays() -> None:
    data = np.zeros(64, np.uint8)
    scatter(data, np.array([16, 32, 16]), [np.arange(3, dtype=np.uint32) + k for k in range(4)], 32)
    np.testing.assert_array_equal(data.view(np.uint32)[4:12], [2, 3, 4, 5, 1, 2, 3, 4])


@pytest.mark.parametrize("unit", [1, 2, 4, 16])
def test_marks_of_units_are_those_of_their_bytes(unit: int) -> None:
    """Against a count for each byte, with accesses smaller and larger than a unit."""
    rng, counts = np.random.default_rng(unit), UnitCounts(256, unit)
    states = UnitStates(np.zeros(256 // unit, np.int32), unit)
    count_of, state_of = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for _ in range(200):
        size = max(int(rng.choice([4, 8, 16, 32])), unit)
        offsets = rng.integers(0, 256 // size, int(rng.integers(1, 6))) * size
        touched = offsets[:, None] + np.arange(size)
        for marks, expected in ((counts, count_of > 0), (states, state_of != 0)):
            hit = expected[touched].any(axis=1)
            assert marks.first(offsets, size) == (int(np.flatnonzero(hit)[0]) if hit.any() else -1)
        by = -1 if (count_of[touched].min() > 0 and len(np.unique(offsets)) == len(offsets)) else 1
        counts.add(offsets, size, by)
        np.add.at(count_of, touched, by)
        to = int(rng.integers(-1, 3))
        states.set(offsets, size, to)
        state_of[touched] = to
        small = rng.integers(0, 256, 1)
        assert (counts.first(small, 1) == 0) == bool(count_of[small[0]] > 0)
