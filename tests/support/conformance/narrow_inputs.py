"""The inputs on which conversions of narrow formats are compared.

16-bit sources: every pattern, with every scale if the form takes one. float32: the numbers and ties of every narrow
format with their neighbours, all float16 numbers, and strata. The strata are, for each upper half of a pattern (sign,
exponent and seven bits of the significand), lower halves that are zero, one bit, all bits, and random within equal
parts of the range.

A definition computes each magnitude once. Registers hold each magnitude with both signs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any

import ml_dtypes
import numpy as np

from tests.support.conformance import definitions as d

STRATA = 32
"""The number of lower halves for each upper half of a float32 pattern."""

_KINDS = {"f32": (np.uint32, np.float32), "f16": (np.uint16, np.float16), "bf16": (np.uint16, ml_dtypes.bfloat16)}
_NORMAL = {"f32": 2.0**-126, "bf16": 2.0**-126, "f16": 2.0**-14}


@dataclass
class Inputs:
    """Values in registers, and the magnitudes that definitions compute.

    `columns`: the operands, int64 patterns, one entry for each lane. `which`: the index into `x` for the values of all
    lanes (those of the first place, then those of the second, ...). `x`: float64 values; the second half has the first
    half's magnitudes with the other sign, except where each value has random bits of its own. `patterns`: the patterns
    of `x`, if nothing is scaled.

    `kept` caches definitions' results, because forms that differ only in modifiers share them.
    """

    source: str
    columns: tuple[Any, ...]
    which: Any
    x: Any
    patterns: Any = None
    kept: dict[Any, Any] = field(default_factory=dict)

    @property
    def lanes(self) -> int:
        """The number of executions of the instruction."""
        return len(self.columns[0])

    @property
    def sizes(self) -> Any:
        """The magnitudes, each once."""
        return self.x[: len(self.x) // 2]

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """The cached value of a key; `make` computes it at the first call."""
        if key not in self.kept:
            self.kept[key] = make()
        return self.kept[key]


def each_once(numbers: Any) -> Any:
    """What `np.unique` gives, ten times as fast for a million integers: it hashes them first."""
    ordered = np.sort(numbers, axis=None)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])]


def shown(columns: Sequence[Any], place: int, start: int, lane: int) -> str:
    """The operands of a lane, counted from `start`, and which of its values is meant (from 0)."""
    return f"value {place} of {', '.join(f'{int(c[start + lane]):#x}' for c in columns)}"


def values(source: str, patterns: Any) -> Any:
    """The float64 values of patterns."""
    bits, kind = _KINDS[source]
    with np.errstate(invalid="ignore"):
        return patterns.astype(bits).view(kind).astype(np.float64)


def _around(points: Any) -> Any:
    """float32 patterns of non-negative numbers, with two neighbours on either side."""
    with np.errstate(over="ignore"):
        middle = np.asarray(points, np.float64).astype(np.float32).view(np.uint32).astype(np.int64)
    return np.clip(np.concatenate([middle + step for step in range(-2, 3)]), 0, 0x7F800000)


@cache
def boundaries() -> Any:
    """The numbers of every narrow format, their midpoints, and the number after the largest; float64."""
    points = [n / 128 for n in range(300)]
    for name in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "ue5m3"):
        codes = [float(d.FORMATS[name].value(c)) for c in range(d.FORMATS[name].largest + 2)]
        points += [*codes, *((a + b) / 2 for a, b in pairwise(codes))]
    return each_once(points)


@cache
def special_f32() -> Any:
    """float32 patterns without sign: all boundaries with their neighbours, and all float16 numbers and NaNs."""
    with np.errstate(invalid="ignore"):
        halves = np.arange(1 << 15).astype(np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    return each_once(np.concatenate([_around(boundaries()), halves.astype(np.int64)]))


def stratified(strata: int) -> Any:
    """float32 patterns without sign: `strata` lower halves for each upper half."""
    rng = np.random.default_rng(strata)
    fixed = np.array([0, 0xFFFF, 1, 0x8000, 0x7FFF, 0x8001, *(1 << n for n in range(14, 0, -1))])[:strata]
    drawn = max(strata - len(fixed), 0)
    edges = np.linspace(0, 1 << 16, drawn + 1).astype(np.int64)
    lower = np.tile(fixed, (1 << 15, 1))
    if drawn:
        lower = np.hstack([lower, rng.integers(edges[:-1], edges[1:], (1 << 15, drawn))])
    return ((np.arange(1 << 15) << 16)[:, None] | lower).ravel()


def _magnitudes(source: str, strata: int) -> Any:
    if source != "f32":
        return np.arange(1 << 15)
    return each_once(np.concatenate([special_f32(), stratified(strata)]))


def _paired(a: Any, b: Any, source: str) -> tuple[Any, ...]:
    """The operands of which the upper place holds `a` and the lower place `b`."""
    return (a, b) if source == "f32" else (a << 16 | b,)


@lru_cache(maxsize=1)
def plain(source: str, strata: int = STRATA) -> Inputs:
    """Every pattern at both places of a pair, beside a different pattern."""
    return _with_signs(source, _magnitudes(source, strata))


@lru_cache(maxsize=1)
def to_halves(strata: int = STRATA) -> Inputs:
    """float32 patterns as in `plain`, and all ties of float16, bfloat16 and tf32 with their neighbours."""
    with np.errstate(invalid="ignore"):
        halves = values("f16", np.arange(0x7C01))
    ties = [0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x3001, 0x7FFF, 0x8000, 0x8001]
    upper = np.arange(1 << 15)[:, None] << 16 | np.array(ties)
    middles = _around((halves[1:-1] + halves[:-2]) / 2)
    return _with_signs("f32", each_once(np.concatenate([_magnitudes("f32", strata), upper.ravel(), middles])))


def _with_signs(source: str, sizes: Any) -> Inputs:
    patterns = np.concatenate([sizes, sizes | (1 << (31 if source == "f32" else 15))])
    order = np.random.default_rng(3).permutation(len(patterns))
    which = np.concatenate([np.arange(len(patterns)), order])
    return Inputs(source, _paired(patterns, patterns[order], source), which, values(source, patterns), patterns)


@lru_cache(maxsize=1)
def scaled(source: str, together: bool, strata: int = STRATA) -> Inputs:
    """Patterns and scale codes; `x` holds the exact quotients. `together`: one scale serves both values of a pair.

    16-bit sources: all patterns with all scales, each at one place. float32: the boundaries times every scale, where
    float32 holds the product; and the strata, most of them with a scale that leads into the range of the narrow
    formats. Below eight strata only every sixteenth scale and the last ones are used.
    """
    scales = np.arange(256) if strata >= 8 else np.append(np.arange(0, 256, 16), [254, 255])
    if source == "f32":
        return _scaled_f32(together, scales, strata)
    rng = np.random.default_rng([5, together])
    mixed = rng.permutation(1 << 16)
    halves = mixed[: 1 << 15], mixed[1 << 15 :]
    # Each pattern is at the upper place with half of the scales, beside a different partner for each scale.
    a = np.concatenate([np.roll(halves[k % 2], s) for k, s in enumerate(scales)])
    b = np.concatenate([halves[1 - k % 2] for k in range(len(scales))])
    high = low = np.repeat(scales, 1 << 15)
    if not together:
        moved = rng.permutation(len(b))
        b, low = b[moved], low[moved]
    columns = (a << 16 | b, high if together else high << 8 | low)
    sizes, place = _grid(source, together)
    which = np.concatenate([place(a, high), place(b, low)])
    which += np.concatenate([a >> 15, b >> 15]).astype(np.int32) * len(sizes)
    return Inputs(source, columns, which, np.concatenate([sizes, -sizes]))


def _grid(source: str, together: bool) -> tuple[Any, Callable[[Any, Any], Any]]:
    """The magnitudes of a 16-bit format's quotients by all scales, each once; and a function from patterns and scales
    to indices.

    A quotient is one of the format's significands times a power of two. Zero, infinity and NaN come last.
    """
    x = np.nan_to_num(_flushed(source, together, np.arange(1 << 15)), nan=0.0, posinf=0.0)
    significand, exponent = np.frexp(x)
    digits = 1 << (10 if source == "f16" else 7)
    row, column = exponent - exponent.min(), (significand * 2 * digits).astype(np.int64) - digits
    top = int(row.max()) + 256
    numbers = np.ldexp(1 + np.arange(digits) / digits, np.arange(top)[:, None] + exponent.min() - 1 + 127 - 255)
    sizes = np.append(numbers.ravel(), [0.0, np.inf, np.nan])
    whole = np.select([x != 0], [row * digits + column], -1).astype(np.int32)
    infinite = digits * 31 if source == "f16" else digits * 255

    def place(patterns: Any, scales: Any) -> Any:
        size = patterns & 0x7FFF
        found = whole[size] + ((255 - scales) * digits).astype(np.int32)
        found[whole[size] < 0] = len(sizes) - 3
        found[size == infinite] = len(sizes) - 2
        found[(size > infinite) | (scales == 255)] = len(sizes) - 1
        return found

    return sizes, place


def _flushed(source: str, together: bool, patterns: Any) -> Any:
    """The float64 values of patterns; subnormals become zero if one scale serves both values of a pair."""
    x = values(source, patterns)
    if together:
        x[np.abs(x) < _NORMAL[source]] *= 0.0
    return x


def _scaled_f32(together: bool, scales: Any, strata: int) -> Inputs:
    rng = np.random.default_rng([7, together])
    patterns, codes = _scaled_patterns(scales, strata, rng)
    if together:
        # Pairs are neighbours in the order of scales. The few pairs with two different scales use the first one's
        # scale.
        order = np.argsort(codes, kind="stable")
        a, b = patterns[order][::2], patterns[order][1::2]
        high = low = codes[order][::2]
    else:
        half = len(patterns) // 2
        a, b, high, low = patterns[:half], patterns[half:], codes[:half], codes[half:]
    both, scale = np.concatenate([a, b]), np.concatenate([high, low])
    with np.errstate(invalid="ignore"):
        x = np.ldexp(_flushed("f32", together, both), 127 - scale)
    x[(scale == 255) | np.isnan(x)] = np.nan
    # Patterns sort as the numbers do, and all NaNs have one pattern.
    found, which = np.unique(np.abs(x).view(np.int64), return_inverse=True)
    sizes = found.view(np.float64)
    signed = (which + np.signbit(x) * len(sizes)).astype(np.int32)
    columns = (a, b, high if together else high << 8 | low)
    return Inputs("f32", columns, signed, np.concatenate([sizes, -sizes]))


def _scaled_patterns(scales: Any, strata: int, rng: Any) -> tuple[Any, Any]:
    """An even number of patterns with both signs, in random order, and their scales."""
    numbers = scales[scales < 255]
    points = np.ldexp(boundaries()[:, None], numbers[None, :] - 127).ravel()
    kept = (points >= 2.0**-149) & (points < 2.0**128)
    # A boundary below float32's least number, or one that scaling rounds, is replaced by the float32 that it becomes.
    pairs = _around(points[kept]) << 8 | np.tile(np.tile(numbers, len(boundaries()))[kept], 5)
    some = stratified(strata)
    near = np.clip((some >> 23) - 127 + rng.integers(127 - 18, 127 + 20, some.size), 0, 255)
    drawn = np.where(rng.random(some.size) < 0.75, near, rng.integers(0, 256, some.size))
    pairs = each_once(np.concatenate([pairs, some << 8 | drawn]))
    patterns, codes = np.concatenate([pairs, pairs | 1 << 39]) >> 8, np.tile(pairs & 0xFF, 2)
    order = rng.permutation(len(patterns))
    return patterns[order], codes[order]


# stochastic rounding -------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def stochastic(to: str, count: int, strata: int = STRATA) -> tuple[Inputs, Any]:
    """`count` values and a random word for each lane; and the random bits of each value in `x`.

    In two thirds of the lanes the random word is chosen for half of its values (in pairs: for both): with their random
    bits the sum just reaches the next code, or misses it by one, or exceeds it by one.
    """
    rng = np.random.default_rng([6, count])
    sizes = _magnitudes("f32", strata)
    patterns = rng.permutation(np.concatenate([sizes, sizes | 1 << 31]))
    each = len(patterns) // count
    patterns = patterns[: each * count]
    parts = tuple(patterns.reshape(count, each))
    bits = 13 if to == "f16" else 16
    carries = [_carrying(p, to, bits, rng) for p in parts]
    words = [rng.integers(0, 1 << 32, each), *(_word(carries, to, turned) for turned in (False, True))]
    random = np.choose(np.arange(each) % 3, words)
    x = values("f32", patterns)
    inputs = Inputs("f32", (*parts, random), np.arange(len(patterns)), x, patterns)
    return inputs, np.concatenate(random_fields(random, to))


def _carrying(patterns: Any, to: str, bits: int, rng: Any) -> Any:
    """Random bits with which the sum just reaches the next code, misses it by one, or exceeds it by one."""
    fmt = d.FORMATS[to]
    with np.errstate(invalid="ignore"):
        size = np.nan_to_num(np.abs(values("f32", patterns)), nan=0.0, posinf=0.0)
    unit = np.maximum(np.frexp(size)[1] - 1, 1 - fmt.bias) - fmt.mantissa
    part = np.ldexp(size, np.minimum(-unit, 1000)) % 1.0
    missing = np.ceil((1.0 - part) * 2.0**bits).astype(np.int64)
    return (missing + rng.integers(-1, 2, len(patterns))) % (1 << bits)


def _word(wanted: list[Any], to: str, turned: bool) -> Any:
    """The random word that gives values the wanted bits: in fours the second and fourth value, or if `turned` the first
    and third."""
    if len(wanted) == 2:
        return wanted[0] << 16 | wanted[1]
    high, low = (_reversed(w) for w in wanted[::2]) if turned else wanted[1::2]
    if to == "e2m1":
        high, low = high & 0xFF00 | low >> 8, (high & 0xFF) << 8 | low & 0xFF
    return high << 16 | low


def random_fields(random: Any, to: str) -> list[Any]:
    """The random bits of each value, in the order of operands, as reported for a B200.

    In fours the random word has two 16-bit halves (for e2m1 each is made of alternate bytes). The first value uses the
    upper half with its bits in reverse order, the second value the upper half as it is. The third and fourth value use
    the lower half in the same way.
    """
    if to in ("f16", "bf16"):
        ones = 0x1FFF if to == "f16" else 0xFFFF
        return [random >> 16 & ones, random & ones]
    high, low = random >> 16, random & 0xFFFF
    if to == "e2m1":
        high, low = high & 0xFF00 | low >> 8, (high & 0xFF) << 8 | low & 0xFF
    return [_reversed(high), high, _reversed(low), low]


def _reversed(half: Any) -> Any:
    found = half * 0
    for bit in range(16):
        found |= (half >> bit & 1) << 15 - bit
    return found
