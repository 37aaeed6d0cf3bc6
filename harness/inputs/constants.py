"""Inputs where code has special cases: the numbers that stand in it, and bit patterns that repeat.

A comparison with a constant, a magic number or a table goes wrong beside that constant, or where arithmetic with it
overflows or gives another constant of the code. No set that is made from formats and the reference knows these places.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import cut, edge_codes, edge_units
from ptxdiff.inputs.patterns import special_units
from ptxdiff.model.arguments import values_of
from ptxdiff.references.formats import U16, Format

_SOLVED_PAIRED, _SOLVED_THREE = 12, 6
"""Numbers that are used in steps with one other number, and with two."""
_IN_ANY_ORDER = 4
"""Numbers of which four parts of an integer are put together in every order."""
_IN_ORDER = {4: 9, 8: 10}
"""By the count of parts, the numbers that are put together as they stand in the code."""
_TABLES = 4
"""Numbers of eight bits that are tried as the table of a `lop3`; the last ones, where it stands behind the words."""
_SHIFTS = 8
_RELATED = 8
"""Numbers for which two inputs with such a difference, sum or quotient are made."""
_BESIDE = 12
"""Units of one input with which each such relation is solved for the other."""
_SIMPLE = (2, 3, 5, 7, 8, 10, 16, 77, 100, 1001)
"""Values that a number relates to others by a product, a quotient or a shift."""
_ULPS = range(-2, 3)
"""Beside a quotient of floats: the product of each of these may be the number."""


def integers_solved(plain: Sequence[int], shifts: Sequence[int], width: int) -> Iterator[int]:
    """Integers of `width` bits that a step turns into one of `plain`; those with most bits come first there.

    Steps: bytes or bits reversed, bytes exchanged, rotations, xor with the input shifted, a square, a product, its
    upper half, a remainder, a product and a sum, and two halves put together. shifts: amounts that stand in the code.
    """
    half, alternate = width // 2, int.from_bytes(b"\x00\xff" * (width // 16), "big")
    for n in plain:
        yield int.from_bytes(n.to_bytes(width // 8, "little"), "big")
        yield int(f"{n:0{width}b}"[::-1], 2)
        yield (n & alternate) << 8 | n >> 8 & alternate  # bytes exchanged in each half word
        if n > 1:
            yield (1 << width) // n * n - 1  # below the largest multiple, where a reciprocal of n errs first
        yield from (math.isqrt(n), -math.isqrt(n))
        for s in shifts[:_SHIFTS]:
            yield from (n << s | n >> width - s, n >> s | n << width - s)
            yield from (_unmixed(n, -s, width), _unmixed(n, s, width))
    for a, b in itertools.permutations(plain[:_SOLVED_PAIRED], 2):
        if a % 2:
            yield b * pow(a, -1, 1 << width)
        if a:
            yield from (b // a, -(-b // a), -(-(b << width) // a))
        if a > b:
            yield from (b + a, b + ((1 << width) - 1 - b) // a * a)
    narrow = [n for n in plain if n >> half == 0][:_SOLVED_PAIRED]
    yield from (a << half | b for a, b in itertools.product(narrow, repeat=2))
    for a, b, c in itertools.product(plain[:_SOLVED_THREE], repeat=3):
        if a % 2:
            yield from ((b - c) * pow(a, -1, 1 << width), (b ^ c) * pow(a, -1, 1 << width))


def integers_of_several(numbers: Sequence[int], width: int) -> Iterator[int]:
    """Integers of `width` bits that meet several numbers of the code at once; the numbers in the order of the code.

    Those whose parts of 4, 8 or 16 bits are numbers, as where code compares them one by one; those whose product with a
    number, also with one added, or whose square is a number of twice as many bits; and those of which a `lop3` with two
    numbers makes a third, or no bit, or all.
    """
    for bits in (4, 8, 16):
        if width // bits in (4, 8):
            yield from _of_parts(numbers, bits, width // bits)
    yield from _of_wide_products(numbers, width)
    yield from _of_three_words(numbers, width)


def _of_parts(numbers: Sequence[int], bits: int, count: int) -> Iterator[int]:
    """Integers of `count` parts: some in every order and repeatedly, more as they stand in the code, in both
    directions, also with one part zero. The amounts and masks by which code takes parts out come last."""
    fitting = [n for n in dict.fromkeys(numbers) if 0 < n < 1 << bits]
    fitting.sort(key=lambda n: n == (1 << bits) - 1 or n % bits == 0)
    rows = list(itertools.product(fitting[:_IN_ANY_ORDER], repeat=4)) if count == 4 else []
    rows += itertools.combinations(fitting[: _IN_ORDER[count]], count)
    for row in itertools.combinations(fitting[: _IN_ORDER[count] - 2], count - 1):
        rows += [(*row[:at], 0, *row[at:]) for at in range(count)]
    for row in dict.fromkeys(rows):
        yield sum(part << bits * at for at, part in enumerate(row))
        yield sum(part << bits * at for at, part in enumerate(reversed(row)))


def _of_wide_products(numbers: Sequence[int], width: int) -> Iterator[int]:
    """Integers whose product of twice as many bits is a number, or lies beside it; of either sign."""
    wide = [n for n in numbers if 1 << width <= n < 1 << 2 * width][:_SOLVED_THREE]
    factors = [n for n in numbers if 1 < n < 1 << width][:_SOLVED_PAIRED]
    for n in wide:
        yield math.isqrt(n)
        for a in factors:
            for signed in (n, -n, n - (1 << 2 * width)):
                yield from (x for x in (signed // a, -(-signed // a)) if abs(x) < 1 << width)
                yield from (
                    (signed - c) // a for c in factors if (signed - c) % a == 0 and abs(signed - c) < a << width
                )


def _of_three_words(numbers: Sequence[int], width: int) -> Iterator[int]:
    """Integers of which `lop3` with two numbers makes a third, no bit or all bits, in each of its operands.

    Its table is a number of eight bits. Bits that do not matter are zero, and one.
    """
    mask = (1 << width) - 1
    words = list(dict.fromkeys(n & mask for n in sorted(numbers, key=lambda n: -n.bit_length())))[:_SOLVED_THREE]
    tables = [n for n in dict.fromkeys(numbers) if 0 < n < 255][-_TABLES:]
    for table, (a, b) in itertools.product(tables, itertools.permutations(words, 2)):
        for place in range(3):
            off, on = (_lop3(table, [*(a, b)[:place], bits, *(a, b)[place:]], mask) for bits in (0, mask))
            matters = off ^ on
            for made in (0, mask, *words):
                if matters and not (made ^ off) & ~matters:
                    yield from (made ^ off, made ^ off | mask & ~matters)


def _lop3(table: int, words: Sequence[int], mask: int) -> int:
    """The bitwise function of three words whose value for the bits (p, q, r) is bit 4p + 2q + r of a table."""
    a, b, c = words
    made = 0
    for row in range(8):
        if table >> row & 1:
            made |= (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
    return made & mask


def _unmixed(n: int, shift: int, width: int) -> int:
    """The x of `width` bits whose xor with itself, shifted to the left or, if negative, to the right, is n."""
    mask, unmixed = (1 << width) - 1, n
    for _ in range(width):  # each round makes as many more bits right as the shift has
        unmixed = n ^ (unmixed << shift & mask if shift > 0 else unmixed >> -shift)
    return unmixed


def floats_solved(fmt: Format, numbers: Sequence[int | float]) -> list[int]:
    """Codes of one number of a float format that a step turns into a number of the code, with the next ones.

    Steps: a sum, a product, both, a square, a root, powers and logarithms of two and e; and conversions to float16.
    """
    values = np.array(_values(numbers))
    solutions = [np.array([n for n in numbers if isinstance(n, int) and 0 < n < 1 << 16], np.uint16).view(np.float16)]
    with np.errstate(all="ignore"):
        solutions += [f(values[: 2 * _SOLVED_PAIRED]) for f in (np.sqrt, np.square, np.exp2, np.log2, np.exp, np.log)]
        signed = np.concatenate([values[:_SOLVED_PAIRED], -values[:_SOLVED_PAIRED]])
        a, b = (g.reshape(-1) for g in np.meshgrid(signed, signed))
        solutions += [a + b, a * b, b / a]
        some = np.concatenate([values[:_SOLVED_THREE], -values[:_SOLVED_THREE]])
        a, b, c = (g.reshape(-1) for g in np.meshgrid(values[:_SOLVED_THREE], some, some))
        solutions += [(b - c) / a]
    kept = np.concatenate([f.astype(np.float64) for f in solutions])
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


def simple_relations(fmt: Format, plain: Sequence[int], numbers: Sequence[int | float]) -> tuple[Codes, Codes]:
    """The same for small values, whose products and quotients are exact: a number of the code is their product, its
    upper half or their quotient, one is the other times a number, shifted by it, its double or its square."""
    width, mask = fmt.unit_bits, (1 << fmt.unit_bits) - 1
    pairs = [(u, v) for u in _SIMPLE for v in (u * u, 2 * u, u >> 1)]
    for n in (n for at, n in enumerate(plain) if n and (at < _RELATED or n < 1 << 8)):
        pairs += [(u, v) for u in _SIMPLE for v in (n // u, u * n, *(u * n + b for b in plain[:_SOLVED_THREE]))]
        pairs += [(u, v) for u in _SIMPLE if n < width for v in (u << n, u >> n)]
        pairs += [(u, -(-(n << width) // u)) for u in (1 << width // 2, mask // 3, mask // 2)]
    rows = [np.array([_signed(c & mask) for c in row], np.int64) for row in zip(*pairs, strict=True)]
    if not (fmt.is_float and fmt.code_bits > 8 and fmt.codes_per_unit == 1):
        return rows[0], rows[1]
    near = np.array([1.0, 2, 0.5, 4, 0.25, 1.5, 3, -1, -2, -0.5, -1.5])
    number, value = (g.reshape(-1) for g in np.meshgrid([1.0, *_values(numbers)[:_RELATED]], near))
    half = number / 2 + value
    with np.errstate(all="ignore"):
        others = [value - number, value + number, number - value, value * number, number / value, value * value]
    firsts, seconds = [*[value] * len(others), half], [*others, number - half]
    one, other = (np.concatenate([_cut(fmt, v) for v in values]) for values in (firsts, seconds))
    return np.concatenate([rows[0], one]), np.concatenate([rows[1], other])


def _signed(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code


Codes = NDArray[np.int64]
Rng = np.random.Generator
Number = int | float

_NUMBERS = 48
"""Numbers of the code that are used, those with most bits first."""
_PAIRED = 12
"""Of these, the ones that are also combined with each other."""
_WITH_SPECIALS = 8
"""Units of one input that stand beside every special value of another."""
_TOGETHER = 24
"""Units of two inputs that stand beside each other in all pairs."""


def constant_inputs(formats: Mapping[str, Format], numbers: Sequence[Number], rng: Rng) -> list[Codes]:
    """Storage units of every input: what `units_beside` gives for each input in turn, with edges in the others.

    Two inputs also have each other's numbers, in all pairs of a few; each a few of them beside special values; and, if
    they have one format, values whose difference, sum, product, ... is a number.
    """
    rows: dict[str, list[Codes]] = {n: [np.zeros(0, dtype=np.int64)] for n in formats}
    beside = {n: units_beside(f, numbers) for n, f in formats.items()}
    for name, units in beside.items():
        for other, fmt in formats.items() if len(units) else ():
            rows[other].append(units if other == name else rng.choice(edge_units(fmt), len(units)))
    first = {n: _units(f, numbers_as_bits(f, numbers))[:_TOGETHER] for n, f in formats.items()}
    for one, two in itertools.combinations(formats, 2):
        pair = [g.reshape(-1) for g in np.meshgrid(first[one], first[two], indexing="ij")]
        for other, fmt in formats.items():
            column = pair[0] if other == one else pair[1] if other == two else None
            rows[other].append(rng.choice(edge_units(fmt), len(pair[0])) if column is None else column)
        for given in _together(formats, one, two, numbers, rng):
            for other, fmt in formats.items():
                size = len(next(iter(given.values())))
                rows[other].append(given[other] if other in given else rng.choice(edge_units(fmt), size))
    return [np.concatenate(rows[n]) for n in formats]


def _together(
    formats: Mapping[str, Format], one: str, two: str, numbers: Sequence[Number], rng: Rng
) -> Iterator[dict[str, Codes]]:
    """Units of two inputs: each of a few numbers beside each special value, and numbers that both make together."""
    for left, right in ((one, two), (two, one)):
        units = _units(formats[left], numbers_as_bits(formats[left], numbers))[:_WITH_SPECIALS]
        if formats[left].unit_bits > 8 and len(units):
            pair = np.meshgrid(units, special_units(formats[right]), indexing="ij")
            yield {left: pair[0].reshape(-1), right: pair[1].reshape(-1)}
    if formats[one] == formats[two] and formats[one].unit_bits > 8:
        made = relations(formats[one], numbers_as_bits(formats[one], numbers), numbers, rng)
        if len(made[0]):
            yield {one: made[0], two: made[1]}


def units_beside(fmt: Format, numbers: Sequence[Number], repeated: bool = True) -> Codes:
    """Units of one input: each number, the next ones, its negation and complement, shifted, repeated, and paired.

    Paired: sums, differences, products and bitwise combinations of the numbers with most bits. Then what a step or two
    of arithmetic turns into a number, and integers that meet several numbers at once. Beside them every byte repeated
    over the unit, every byte alone in each place, and 16-bit edges repeated. None for formats of a byte, whose edges
    are all of their codes.
    repeated: whether to add those that do not depend on the numbers.
    """
    if fmt.unit_bits <= 8:
        return np.zeros(0, dtype=np.int64)
    plain = numbers_as_bits(fmt, numbers)
    codes = [v for n in plain for v in near_numbers(n, fmt.unit_bits)]
    shifts = sorted({n for n in numbers if isinstance(n, int) and 1 < n < fmt.unit_bits})
    codes += [v for n in plain[:_PAIRED] for s in shifts for v in (n << s, n >> s)]
    for a, b in itertools.combinations(plain[:_PAIRED], 2):
        codes += [a + b, a - b, b - a, a * b, a & b, a | b, a ^ b]
    codes += integers_solved(plain, shifts, fmt.unit_bits)
    codes += integers_of_several([n for n in numbers if isinstance(n, int)], fmt.unit_bits)
    if fmt.is_float and fmt.codes_per_unit == 1:
        codes += floats_solved(fmt, numbers)
    return _units(fmt, [*codes, *(repeated_words(fmt.unit_bits) if repeated else ())])


def numbers_as_bits(fmt: Format, numbers: Sequence[Number]) -> list[int]:
    """The numbers as bits of a unit: as they are, in parts of its width, and as values (of integers, whole ones)."""
    width = fmt.unit_bits
    whole = sorted({n for n in numbers if isinstance(n, int)}, key=lambda n: (-n.bit_length(), n))[:_NUMBERS]
    patterns = [part & (1 << width) - 1 for n in whole for part in (n, *((n >> width,) if n >> width > 0 else ()))]
    if fmt.is_float and fmt.code_bits > 8:
        values = np.array([float(n) for n in numbers][:_NUMBERS], dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            values = np.concatenate([values, 1 / values])
        sign = 1 << fmt.sign_shift if fmt.has_sign else 0
        codes = [int(c) | (sign if v < 0 else 0) for c, v in zip(cut(fmt.single, values), values, strict=True)]
        slots = range(0, width, fmt.slot_bits)
        patterns += [sum(c << s for s in slots) for c in codes]
        fraction = fmt.mantissa_bits + fmt.ignored_bits
        patterns += [n << fraction for n in whole if 0 < n < 1 << fmt.exponent_bits]
    elif not fmt.is_float:
        floats = [n for n in numbers if isinstance(n, float) and abs(n) < 1 << width and n.is_integer()]
        patterns += [int(n) & (1 << width) - 1 for n in floats[:_NUMBERS]]
    return list(dict.fromkeys(patterns))


def near_numbers(n: int, width: int) -> list[int]:
    """A number of `width` bits, the next ones, its negation and complement, doubled, halved, and its halves moved."""
    half = width // 2
    low = n & (1 << half) - 1
    return [n, n + 1, n - 1, -n, ~n, n ^ 1 << width - 1, 2 * n, n >> 1, n << half, n >> half, low << half | low]


def repeated_words(width: int) -> list[int]:
    """Every byte repeated, every byte alone in each place, and edges of 16 bits repeated."""
    size = width // 8
    patterns = [int.from_bytes(bytes([b]) * size, "little") for b in range(256)]
    patterns += [b << 8 * k for k in range(size) for b in range(256)]
    pairs = sum(1 << 16 * k for k in range(width // 16))
    return patterns + [c * pairs for c in edge_codes(U16)]


def _units(fmt: Format, codes: Sequence[int]) -> Codes:
    kept = dict.fromkeys(c & (1 << fmt.unit_bits) - 1 for c in codes)
    return np.array([c - (1 << 64) if c >> 63 else c for c in kept], dtype=np.int64)
