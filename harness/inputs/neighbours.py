"""Inputs that are equal in neighbouring places: code that takes several elements at once may be wrong just there.

In every other set neighbours differ almost everywhere, and a broadcast operand is one of the inputs only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_units
from ptxdiff.references.formats import Format

Codes = NDArray[np.int64]
Rng = np.random.Generator
Inside = Callable[[Mapping[str, NDArray[np.generic]]], NDArray[np.bool_]]

GROUP = 16
"""The largest pack."""
_ALIKE, _MIXED = 48, 80
"""Groups of one value, and groups of two values in some order."""
_TRIES = 16


def neighbour_inputs(formats: Mapping[str, Format], rng: Rng, inside: Inside | None) -> list[Codes]:
    """Storage units of every input in groups of `GROUP` neighbours: all equal, or one of two values in each place.

    inside: which rows lie in the case's domain; None where it has none. In half of the groups of two values the inputs
    then choose apart: one may be equal in two places and another not. Each place differs alone in some group.
    """
    count = 2 * (_ALIKE + _MIXED)
    rows = _rows(formats, count, rng, inside) if formats else []
    if not rows or len(rows[0]) < 2:
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    one, two = ([np.resize(c[k::2], count // 2) for c in rows] for k in (0, 1))
    orders = _orders(rng)
    made = []
    for a, b in zip(one, two, strict=True):
        mixed = np.where(orders, a[_ALIKE:, None], b[_ALIKE:, None])
        if inside is None:
            orders = np.concatenate([orders[: _MIXED // 2], rng.permutation(orders[_MIXED // 2 :])])
        alike = np.repeat(a[:_ALIKE, None], GROUP, axis=1)
        made.append(np.concatenate([alike, mixed]).reshape(-1))
    return made


def _orders(rng: Rng) -> NDArray[np.bool_]:
    """For each group of two values, in which places the first one stands."""
    places = np.arange(GROUP)
    single = [places == k for k in range(GROUP)]
    spans = [(places // width) % 2 == k for width in (1, 2, 4, 8) for k in (0, 1)]
    drawn = list(rng.random((_MIXED - len(single) - len(spans), GROUP)) < 0.5)
    return np.array(rng.permutation(np.array([*single, *spans, *drawn])))


def _rows(formats: Mapping[str, Format], count: int, rng: Rng, inside: Inside | None) -> list[Codes]:
    """Up to `count` distinct rows in the domain: edges, and for every second one random bits."""
    found: list[list[Codes]] = []
    left = count
    for _ in range(_TRIES):
        columns = [_some(f, count, rng) for f in formats.values()]
        units = {n: c.astype(f.numpy_dtype()) for (n, f), c in zip(formats.items(), columns, strict=True)}
        kept = np.arange(count) if inside is None else np.flatnonzero(inside(units))[:left]
        found.append([c[kept] for c in columns])
        left -= len(kept)
        if left <= 0:
            break
    return [np.concatenate(parts) for parts in zip(*found, strict=True)]


def _some(fmt: Format, count: int, rng: Rng) -> Codes:
    drawn = rng.integers(0, 1 << min(fmt.unit_bits, 63), count, dtype=np.int64)
    return np.where(rng.random(count) < 0.5, drawn, rng.choice(edge_units(fmt), count))
