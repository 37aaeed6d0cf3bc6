"""Covering rows: every two values of any two axes together, in one part or over all."""

from __future__ import annotations

import itertools

import pytest

from harness.running.covering import pairwise, spread

AXES = [[range(3)], [range(3), range(4)], [range(3), range(6), range(2), range(2), range(3)]]


@pytest.mark.parametrize("axes", AXES)
def test_every_two_values_of_any_two_axes_meet(axes):
    rows = pairwise([list(a) for a in axes])
    assert rows[0] == tuple(0 for _ in axes)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(r[i], r[j]) for r in rows} == set(itertools.product(axes[i], axes[j]))
    largest = sorted((len(a) for a in axes), reverse=True)
    assert len(rows) <= 2 * largest[0] * (largest[1] if len(largest) > 1 else 1)


@pytest.mark.parametrize("parts", [1, 2, 6])
@pytest.mark.parametrize("axes", AXES)
def test_all_parts_together_have_every_pair_and_each_has_every_value(axes, parts):
    rows = {part: spread([list(a) for a in axes], part, parts) for part in range(parts)}
    for part in rows.values():
        for i, axis in enumerate(axes):
            assert {r[i] for r in part} == set(axis)
    for i, j in itertools.combinations(range(len(axes)), 2):
        together = {(r[i], r[j]) for part in rows.values() for r in part}
        assert together == set(itertools.product(axes[i], axes[j]))


def test_a_part_is_less_than_the_whole():
    axes = [list(a) for a in AXES[-1]]
    assert max(len(spread(axes, part, 6)) for part in range(6)) < len(pairwise(axes)) / 2
    assert spread(axes, 0, 1) == pairwise(axes)
