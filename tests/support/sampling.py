"""Choose the rows of a table that `make unit` runs; `make slow` runs the others.

A sample is the same in every run. It has at least one row of each kind (format, family, generation, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from itertools import product
from typing import Any

import pytest


def spread(
    rows: Iterable[Any],
    step: int,
    kinds: Callable[[Any], Iterable[Hashable]] = lambda row: (),
    name: Callable[[Any], str] | None = None,
) -> list[Any]:
    """Rows as parameters. The quick ones are every `step`-th row, and each row with a kind that no quick row has yet.

    kinds: the kinds of a row. A row that is a tuple is the values of several parameters.
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


def mixed(*axes: Iterable[Any], of: int) -> list[Any]:
    """All combinations as parameters. One in `of` is quick, so that each pair of values of two axes is quick with some
    values of the others, if there are at least three axes and each has `of` values or more."""
    found = []
    for place in product(*(tuple(enumerate(axis)) for axis in axes)):
        now = sum(number for number, _ in place) % of == 0
        found.append(pytest.param(*(value for _, value in place), marks=() if now else pytest.mark.slow))
    return found


def only(rows: Iterable[Any], now: Collection[Any]) -> list[Any]:
    """Rows as parameters, of which those in `now` are quick. Raises ValueError if one of `now` is no row."""
    rows = list(rows)
    if missing := [row for row in now if row not in rows]:
        raise ValueError(f"no row of the table: {missing}")
    return [pytest.param(row, marks=() if row in now else pytest.mark.slow) for row in rows]


def paired(first: Iterable[Any], second: Iterable[Any], of: int) -> list[Any]:
    """All pairs as parameters. One in `of` is quick, so that each value is paired with several values of the other
    list."""
    second = list(second)
    return [
        pytest.param(a, b, marks=() if (i + j) % of == 0 else pytest.mark.slow)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def sizes(few: int, many: int) -> list[Any]:
    """A number of inputs as parameter: a small one is quick, a large one is slow."""
    return [pytest.param(few, id="few"), pytest.param(many, id="many", marks=pytest.mark.slow)]
