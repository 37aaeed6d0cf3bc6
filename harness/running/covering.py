"""Rows in which every pair of values of any two axes occurs (pairwise testing): all rows, or one target's share."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence


def pairwise(axes: Sequence[Sequence[object]]) -> list[tuple[object, ...]]:
    """Rows in which every pair of values of any two axes occurs, chosen greedily; the first row has each first value.

    Deterministic: the same axes give the same rows.
    """
    places = _places(tuple(map(len, axes)))
    return [tuple(axis[k] for axis, k in zip(axes, row, strict=True)) for row in places]


def share(axes: Sequence[Sequence[object]], part: int, parts: int, least: int = 1) -> list[tuple[object, ...]]:
    """The rows of part number `part` out of `parts`, at least `least`; all parts together contain every pair of values.

    For an axis that is costly and matters little, such as the target: each pair is run on at least one target.
    Deterministic: a part has the same rows, whichever other parts are run.
    """
    rows = pairwise(axes)
    count = min(len(rows), max(least, -(-len(rows) // parts)))
    return [rows[(part * count + k) % len(rows)] for k in range(count)]


@functools.cache
def _places(sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The rows for axes of these sizes, as indices on the axes."""
    wanted = {
        (i, a, j, b)
        for i, j in itertools.combinations(range(len(sizes)), 2)
        for a in range(sizes[i])
        for b in range(sizes[j])
    }
    row = (0,) * len(sizes)
    rows = []
    while True:
        rows.append(row)
        wanted -= {(i, row[i], j, row[j]) for i, j in itertools.combinations(range(len(sizes)), 2)}
        if not wanted:
            break
        row = _next_row(sizes, wanted)
    return tuple((k,) for k in range(sizes[0])) if len(sizes) == 1 else tuple(rows)


def _next_row(sizes: Sequence[int], wanted: set[tuple[int, int, int, int]]) -> tuple[int, ...]:
    """A row with the smallest pair still wanted, and on each other axis the value that covers most wanted pairs."""
    i, a, j, b = min(wanted)
    chosen = {i: a, j: b}
    for axis in range(len(sizes)):
        if axis in chosen:
            continue

        def gain(value: int, axis: int = axis) -> int:
            return sum(_pair(axis, value, k, v) in wanted for k, v in chosen.items())

        chosen[axis] = max(range(sizes[axis]), key=lambda value: (gain(value), -value))
    return tuple(chosen[k] for k in range(len(sizes)))


def _pair(i: int, a: int, j: int, b: int) -> tuple[int, int, int, int]:
    return (i, a, j, b) if i < j else (j, b, i, a)
