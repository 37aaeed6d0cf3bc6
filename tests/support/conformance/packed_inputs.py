"""The inputs for float32 arithmetic on pairs and on mixed sources, and for minima and maxima of three.

A 16-bit source has every pattern. The addend or factor for each is drawn: a random pattern, an edge, a number near
minus the other term, near half a unit in its last place, or one with which the result is subnormal, 1, or an overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.conformance import float32 as f

EDGES = np.array(
    [
        *(0, 1, 2, 0x400000, 0x7FFFFE, 0x7FFFFF, 0x800000, 0x800001, 0x0C000000, 0x33000000, 0x337FFFFF, 0x33800000),
        *(0x33800001, 0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x40000000, 0x477FE000, 0x47800000, 0x73000000),
        *(0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF),
    ]
)
"""float32 patterns without sign."""
EDGES_16 = {
    "f16": np.array([0, 1, 0x3FF, 0x400, 0x3C00, 0x3C01, 0x7BFF, 0x7C00, 0x7C01, 0x7E00, 0x7FFF]),
    "bf16": np.array([0, 1, 0x7F, 0x80, 0x3F80, 0x3F81, 0x7F7F, 0x7F80, 0x7F81, 0x7FC0, 0x7FFF]),
}
SIGN = 1 << 31
_KINDS = 6


def _pattern(x: Any) -> Any:
    """The float32 patterns of float64 values, rounded to nearest."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(np.float32).view(np.uint32).astype(np.int64)


def beside(x: Any, rng: np.random.Generator) -> Any:
    """A float32 pattern to add to each float64 value."""
    count = len(x)
    signs = rng.integers(0, 2, count) << 31
    fraction = rng.integers(0, 1 << 23, count) & rng.choice([0, 0x7FFFFF, 0x7FF000, 0x400000, 0x7FFFFE], count)
    finite = np.where(np.isfinite(x) & (x != 0), x, 1.0)
    exponent = np.frexp(finite)[1] + 126 + rng.choice([-26, -25, -24, -23, -2, -1, 0, 1, 2, 23, 24, 25, 26], count)
    drawn = [
        rng.integers(0, 1 << 32, count),
        np.resize(rng.permutation(np.concatenate([EDGES, EDGES | SIGN])), count),
        np.clip(_pattern(-x) + rng.integers(-2, 3, count), 0, (1 << 32) - 1),
        signs | np.clip(exponent, 0, 254) << 23 | fraction,
        # The result is near 1, near 0, or near the largest number.
        _pattern(rng.choice([1.0, 2.0**-126, 2.0**-149, 3.4e38], count) - finite) + rng.integers(0, 3, count),
        signs | rng.integers(0, 3, count) << 23 | fraction,
    ]
    return np.choose(rng.integers(0, _KINDS, count), drawn) & 0xFFFFFFFF


def times(x: Any, rng: np.random.Generator) -> Any:
    """A float32 factor for each float64 value; many products lie near an end of the range."""
    count = len(x)
    finite = np.where(np.isfinite(x) & (x != 0), x, 1.0)
    wanted = rng.choice([-150, -149, -127, -126, -125, -24, 0, 126, 127, 128], count)
    field = np.clip(wanted - np.frexp(finite)[1] + 1 + 127, 0, 254)
    fraction = rng.integers(0, 1 << 23, count) & rng.choice([0, 0x7FFFFF, 0x7FF000, 0x7FFFFE], count)
    near = rng.integers(0, 2, count) << 31 | field << 23 | fraction
    drawn = [
        rng.integers(0, 1 << 32, count),
        np.resize(rng.permutation(np.concatenate([EDGES, EDGES | SIGN])), count),
        _pattern(rng.choice([2.0**-126, 1.0, 2.0**128], count) / finite) + rng.integers(-2, 3, count),
        near,
        near,
        near,
    ]
    return np.choose(rng.integers(0, _KINDS, count), drawn) & 0xFFFFFFFF


def rows(opcode: str, kind: str, count: int) -> list[Any]:
    """About `count` patterns for each source of one value. `kind`: "f32" (pairs), "f16" or "bf16" (mixed)."""
    rng = np.random.default_rng([len(opcode), ord(opcode[0]), len(kind), ord(kind[0])])
    if kind == "f32":
        edges = np.concatenate([EDGES, EDGES | SIGN])
        a, other = (g.ravel() for g in np.meshgrid(edges, edges))
        a = np.concatenate([a, rng.integers(0, 1 << 32, count)])
        if opcode in ("add", "sub"):
            b = beside(f.values(a, kind), rng)
            b[: len(other)] = other
            return [a, b ^ SIGN if opcode == "sub" else b]
        b = times(f.values(a, kind), rng)
        b[: len(other)] = other
    else:
        each = np.arange(1 << 16)
        a = np.tile(each, max(count >> 16, 1))
        if opcode != "fma":
            b = beside(f.values(a, kind), rng)
            return [a, b ^ SIGN if opcode == "sub" else b]
        b = rng.permutation(a)
        few = np.concatenate([EDGES_16[kind], EDGES_16[kind] | 1 << 15])
        b[: 1 << 16] = np.resize(few, 1 << 16)
    if opcode == "mul":
        return [a, b]
    with np.errstate(invalid="ignore"):
        product = f.values(a, kind) * f.values(b, kind)
    return [a, b, beside(product, rng)]


def threes(count: int) -> list[Any]:
    """Three columns of float32 patterns: all triples of edges, and random triples, in some of which numbers are equal
    or differ only in sign."""
    rng = np.random.default_rng(count)
    edges = np.concatenate([EDGES, EDGES | SIGN])
    columns = [g.ravel() for g in np.meshgrid(edges, edges, edges)]
    x = rng.integers(0, 1 << 32, (3, count))
    near = rng.random((2, count)) < 0.5
    for i in (1, 2):
        x[i] = np.where(near[i - 1], np.clip(x[0] + rng.integers(-1, 2, count), 0, SIGN * 2 - 1), x[i])
        x[i] ^= rng.integers(0, 2, count) << 31
    return [np.concatenate([c, d]) for c, d in zip(columns, x, strict=True)]
