"""Inputs that arithmetic of the code turns into a number of the code: one step, or some pairs of steps, solved.

Code compares seldom with its input itself: it multiplies, shifts, permutes or scales it first, by numbers that stand in
the code too. The steps are not read from the code: each kind of step is solved with the numbers of most bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_units
from ptxdiff.inputs.places import cut
from ptxdiff.model.codes import values_of
from ptxdiff.references.formats import Format

Codes = NDArray[np.int64]

_PAIRED, _THREE = 12, 6
"""Numbers that are used in steps with one other number, and with two."""
_SHIFTS = 8
_RELATED = 8
"""Numbers for which two inputs with such a difference, sum or quotient are made."""
_BESIDE = 12
"""Units of one input with which each such relation is solved for the other."""
_ULPS = range(-2, 3)
"""Beside a quotient of floats: the product of each of these may be the number."""


def integers_solved(plain: Sequence[int], shifts: Sequence[int], width: int) -> Iterator[int]:
    """Integers of `width` bits that a step turns into one of `plain`; those with most bits come first there.

    Steps: bytes or bits reversed, rotations, xor with the input shifted, a square, a product, its upper half, a product
    and a sum, and two halves put together. shifts: amounts that stand in the code.
    """
    half = width // 2
    for n in plain:
        yield int.from_bytes(n.to_bytes(width // 8, "little"), "big")
        yield int(f"{n:0{width}b}"[::-1], 2)
        yield from (math.isqrt(n), -math.isqrt(n))
        for s in shifts[:_SHIFTS]:
            yield from (n << s | n >> width - s, n >> s | n << width - s)
            yield from (_unmixed(n, -s, width), _unmixed(n, s, width))
    for a, b in itertools.permutations(plain[:_PAIRED], 2):
        if a % 2:
            yield b * pow(a, -1, 1 << width)
        if a:
            yield from (b // a, -(-b // a), -(-(b << width) // a))
    narrow = [n for n in plain if n >> half == 0][:_PAIRED]
    yield from (a << half | b for a, b in itertools.product(narrow, repeat=2))
    for a, b, c in itertools.product(plain[:_THREE], repeat=3):
        if a % 2:
            yield from ((b - c) * pow(a, -1, 1 << width), (b ^ c) * pow(a, -1, 1 << width))


def _unmixed(n: int, shift: int, width: int) -> int:
    """The x of `width` bits whose xor with itself, shifted to the left or, if negative, to the right, is n."""
    mask, found = (1 << width) - 1, n
    for _ in range(width):  # each round makes as many more bits right as the shift has
        found = n ^ (found << shift & mask if shift > 0 else found >> -shift)
    return found


def floats_solved(fmt: Format, numbers: Sequence[int | float]) -> list[int]:
    """Codes of one number of a float format that a step turns into a number of the code, with the next ones.

    Steps: a sum, a product, both, a square, a root, powers and logarithms of two and e; and conversions to float16.
    """
    values = np.array(_values(numbers))
    found = [np.array([n for n in numbers if isinstance(n, int) and 0 < n < 1 << 16], np.uint16).view(np.float16)]
    with np.errstate(all="ignore"):
        found += [f(values[: 2 * _PAIRED]) for f in (np.sqrt, np.square, np.exp2, np.log2, np.exp, np.log)]
        signed = np.concatenate([values[:_PAIRED], -values[:_PAIRED]])
        a, b = (g.reshape(-1) for g in np.meshgrid(signed, signed))
        found += [a + b, a * b, b / a]
        some = np.concatenate([values[:_THREE], -values[:_THREE]])
        a, b, c = (g.reshape(-1) for g in np.meshgrid(values[:_THREE], some, some))
        found += [(b - c) / a]
    kept = np.concatenate([f.astype(np.float64) for f in found])
    codes = _cut(fmt, np.unique(kept[np.isfinite(kept)]))
    sizes, sign = codes & fmt.magnitude_mask, codes & ~fmt.magnitude_mask
    beside = [np.clip(sizes + (k << fmt.ignored_bits), 0, fmt.max_finite) | sign for k in _ULPS]
    return [int(c) for c in np.unique(np.concatenate(beside))]


def _values(numbers: Sequence[int | float]) -> list[float]:
    """The numbers as values, those written as floats first."""
    floats = [n for n in numbers if isinstance(n, float) and math.isfinite(n)]
    return list(dict.fromkeys([*floats, *(float(n) for n in numbers if isinstance(n, int) and n < 1 << 24)]))


def _cut(fmt: Format, values: NDArray[np.float64]) -> Codes:
    """Codes of values, rounded towards zero; a format without a sign gets their sizes."""
    sign = np.signbit(values).astype(np.int64) << fmt.sign_shift if fmt.has_sign else 0
    return cut(fmt.single, values) | sign


def relations(
    fmt: Format, plain: Sequence[int], numbers: Sequence[int | float], rng: np.random.Generator
) -> tuple[Codes, Codes]:
    """Units of two inputs of one format: a number of the code is their difference, sum, xor, quotient or product.

    plain: the numbers as units. Floats are related by their values, and by their bits.
    """
    mask = (1 << fmt.unit_bits) - 1
    some = [
        *rng.choice(edge_units(fmt), _BESIDE).tolist(),
        *rng.integers(0, 1 << min(fmt.unit_bits, 63), _BESIDE).tolist(),
    ]
    pairs = [(u & mask, v & mask) for n in plain[:_RELATED] for u in some for v in (u - n, u + n, n - u, u ^ n)]
    rows = [
        np.array([c - (1 << 64) if c >> 63 else c for c in row], dtype=np.int64) for row in zip(*pairs, strict=True)
    ]
    if pairs and fmt.is_float and fmt.code_bits > 8 and fmt.codes_per_unit == 1:
        near = _cut(fmt, rng.uniform(-4, 4, _BESIDE))
        number, units = (g.reshape(-1) for g in np.meshgrid(_values(numbers)[:_RELATED], near))
        value = values_of(fmt, units.astype(fmt.numpy_dtype())).astype(np.float64)
        with np.errstate(all="ignore"):
            others = [value - number, value + number, number - value, value * number, number / value]
        rows = [np.concatenate([rows[0], *[units] * 5]), np.concatenate([rows[1], *(_cut(fmt, v) for v in others)])]
    return (rows[0], rows[1]) if rows else (np.zeros(0, np.int64), np.zeros(0, np.int64))
