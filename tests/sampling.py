"""Which rows of a whole table `make unit` runs; `make slow` runs the others.

A sample is the same in every run, and spread: every kind of row (format, family, generation, ...) has one in it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from typing import Any

import pytest


def spread(
    rows: Iterable[Any],
    step: int,
    kinds: Callable[[Any], Iterable[Hashable]] = lambda row: (),
    name: Callable[[Any], str] | None = None,
) -> list[Any]:
    """Rows as parameters, of which the quick ones are every `step`-th, and each that has a kind that is new.

    kinds: what of a row must be met at least once in the sample. A tuple is the values of several parameters.
    """
    met: set[Hashable] = set()
    found = []
    for place, row in enumerate(rows):
        new = set(kinds(row)) - met
        now = place % step == 0 or bool(new)
        if now:
            met |= set(kinds(row))
        values = row if isinstance(row, tuple) else (row,)
        found.append(pytest.param(*values, marks=() if now else pytest.mark.slow, id=name(row) if name else None))
    return found


def only(rows: Iterable[Any], now: Collection[Any]) -> list[Any]:
    """Rows as parameters, of which some are quick. Raises ValueError for a quick one that is no row."""
    rows = list(rows)
    if missing := [row for row in now if row not in rows]:
        raise ValueError(f"no row of the table: {missing}")
    return [pytest.param(row, marks=() if row in now else pytest.mark.slow) for row in rows]


def paired(first: Iterable[Any], second: Iterable[Any], of: int) -> list[Any]:
    """All pairs as parameters, of which one in `of` is quick, so that each value has one with some of the other."""
    second = list(second)
    return [
        pytest.param(a, b, marks=() if (i + j) % of == 0 else pytest.mark.slow)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def sizes(few: int, many: int) -> list[Any]:
    """A number of inputs: a small one quickly, the large one among the slow tests."""
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.slow)]
