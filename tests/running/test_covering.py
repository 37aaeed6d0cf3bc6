"""Covering rows: every two values of any two axes occur together, in all rows or in all parts together."""

from __future__ import annotations

import itertools

import pytest

from ptxdiff.running.plan import pairwise, share

AXES = [[range(3)], [range(3), range(4)], [range(3), range(6), range(2), range(2), range(3)]]


@pytest.mark.parametrize("axes", AXES)
def test_every_two_values_of_any_two_axes_occur_together(axes):
    rows = pairwise([list(a) for a in axes])
    assert rows[0] == tuple(0 for _ in axes)
    for i, j in itertools.combinations(range(len(axes)), 2):
        assert {(r[i], r[j]) for r in rows} == set(itertools.product(axes[i], axes[j]))
    largest = sorted((len(a) for a in axes), reverse=True)
    assert len(rows) <= 2 * largest[0] * (largest[1] if len(largest) > 1 else 1)


@pytest.mark.parametrize("parts", [1, 2, 6, 14])
@pytest.mark.parametrize("axes", AXES)
def test_all_parts_together_have_every_pair(axes, parts):
    rows = [share([list(a) for a in axes], part, parts) for part in range(parts)]
    assert min(map(len, rows)) >= 1
    for i, j in itertools.combinations(range(len(axes)), 2):
        together = {(r[i], r[j]) for part in rows for r in part}
        assert together == set(itertools.product(axes[i], axes[j]))
    assert {r[0] for part in rows for r in part} == set(axes[0])


def test_a_part_is_less_than_the_whole():
    axes = [list(a) for a in AXES[-1]]
    assert len(share(axes, 3, 6)) < len(pairwise(axes)) / 4
    assert share(axes, 0, 1) == pairwise(axes)
