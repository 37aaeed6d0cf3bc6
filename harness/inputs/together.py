"""Inputs of which two or three make a number of the code, or each have or make one by itself.

Together they make it by a product, its upper half, a quotient, a shift, a sum, or another step. By itself each has a
number in some part, lies beside one, or becomes one in a step with another number of the code.

`ptxdiff.inputs.constants` solves such a step for one input. Here the other operand is an input too. Both may be
integers, of one width or two, or floats, or one of each. Steps of integers are solved for unsigned and for signed
numbers, whatever the formats say, because asm may take them either way. None of them with a value of 0 or 1, which
every set of edges has.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.constants import Codes, Number, Rng, near_numbers, numbers_as_bits
from ptxdiff.inputs.edges import cut, edge_units
from ptxdiff.model.arguments import values_of
from ptxdiff.references.formats import Format

_RELATED = 8
"""Numbers that two integers of one width make, those with most bits first."""
_OF_TWO_FORMATS = 6
"""The same for inputs of two formats, and for floats."""
_SIMPLE = (2, 3, 5, 7, 8, 10, 16, 77, 100, 1001)
_OF_A_STEP, _SHIFTED = 6, 32
"""Values of one input with which a step is solved for the other, and the least shift that is not tried."""
_LARGEST_DIVISOR = 1 << 16
_PARTS = 30
"""Units of one input that have a number of the code in some part, in all pairs with those of another."""
_OF_MANY = {3: 8, 4: 5}
"""By the number of inputs, how many numbers of the code stand in all of them, in every combination."""
_NEAR, _SOLVED, _BOTH_SOLVED = 64, 160, 64
"""Units of one input beside the numbers, and those that one step turns into a number, in all pairs with those of
another; of pairs of which both are solved, so many of each. Of three and more inputs fewer, so that all pairs of inputs
together are no more than those of two."""
_STEPPED = 12
"""Numbers of the code that are combined with each other for that, those with most bits first."""
_POOL, _KEPT = 64, 2
"""Floats with which a step is tried, and how many of those that give the number are kept."""

Pair = tuple[int, int]
Floats = NDArray[np.float64]


def made_together(formats: Mapping[str, Format], numbers: Sequence[Number], rng: Rng) -> list[Codes]:
    """Storage units of every input, of which two make a number of the code in one step.

    Steps of integers: a product, its halves, a quotient, a remainder, a sum, a difference, shifts and a rotation by the
    other, and, or, xor. Steps of floats, and of a float and an integer that is converted: a sum, a difference, a
    product, a quotient. Of three inputs of one format a product and a sum, and of integers also sums and bits. Beside
    them, products that just overflow and just do not. Of packed formats none. Then, of all formats, inputs that each
    have a number of the code (`_each_a_number`), and two that each make one (`_each_in_a_step`).
    """
    rows: dict[str, list[Codes]] = {n: [np.zeros(0, dtype=np.int64)] for n in formats}
    for one, two in itertools.permutations(formats, 2):
        pairs = list(pairs_of(formats[one], formats[two], numbers, rng))
        if not pairs:
            continue
        columns = [
            np.array([_signed64(c & _mask(formats[n].unit_bits)) for c in column], np.int64)
            for n, column in zip((one, two), zip(*pairs, strict=True), strict=True)
        ]
        rows[one].append(columns[0])
        rows[two].append(columns[1])
        for other in [n for n in formats if n not in (one, two)]:
            rows[other].append(rng.choice(edge_units(formats[other]), len(pairs)))
    for names in itertools.combinations(formats, 3):
        for name, column in zip(names, _of_three([formats[n] for n in names], numbers, rng), strict=True):
            rows[name].append(column)
        for other in [n for n in formats if n not in names]:
            rows[other].append(rng.choice(edge_units(formats[other]), len(rows[names[0]][-1])))
    for given in (*_each_a_number(formats, numbers), *_each_in_a_step(formats, numbers)):
        size = len(next(iter(given.values())))
        for name, fmt in formats.items():
            rows[name].append(given[name] if name in given else rng.choice(edge_units(fmt), size))
    return [np.concatenate(rows[n]) for n in formats]


def _each_a_number(formats: Mapping[str, Format], numbers: Sequence[Number]) -> Iterator[dict[str, Codes]]:
    """Units of several inputs, each with a number of the code: conditions on each, of which all must hold.

    Two inputs have the number or its negation as their value, or the number in a part: in the upper half, or from a
    bit on that stands in the code as the amount of a shift. Three and four have it as their value.
    """
    plain = {n: numbers_as_bits(f, numbers) for n, f in formats.items()}
    parts = {n: _in_parts(plain[n], numbers, f.unit_bits) for n, f in formats.items()}
    for count in (2, *_OF_MANY):
        for names in itertools.combinations(formats, count):
            units = [parts[n] if count == 2 else plain[n][: _OF_MANY[count]] for n in names]
            grids = np.meshgrid(*(np.array([_signed64(u) for u in us], np.int64) for us in units), indexing="ij")
            if grids[0].size:
                yield {n: g.reshape(-1) for n, g in zip(names, grids, strict=True)}


def _each_in_a_step(formats: Mapping[str, Format], numbers: Sequence[Number]) -> Iterator[dict[str, Codes]]:
    """Units of two inputs for conditions on each, of which both must hold: in all pairs, what lies beside a number of
    the code, and what a step with another number turns into one."""
    near = {n: _beside(f, numbers) for n, f in formats.items()}
    solved = {n: _solved(f, numbers, near[n]) for n, f in formats.items()}
    part = math.sqrt(max(math.comb(len([n for n in formats if near[n]]), 2), 1))
    near = {n: units[: int(_NEAR / part)] for n, units in near.items()}
    solved = {n: units[: int(_SOLVED / part)] for n, units in solved.items()}
    for one, two in itertools.combinations(formats, 2):
        both = [solved[n][: int(_BOTH_SOLVED / part)] for n in (one, two)]
        for firsts, seconds in ((near[one], near[two]), (near[one], solved[two]), (solved[one], near[two]), both):
            if firsts and seconds:
                grids = np.meshgrid(*(np.array(units, np.int64) for units in (firsts, seconds)), indexing="ij")
                yield {n: g.reshape(-1) for n, g in zip((one, two), grids, strict=True)}


def _beside(fmt: Format, numbers: Sequence[Number]) -> list[int]:
    """Units beside the numbers: first all numbers, then the next ones, negations, and so on. None of a byte or less,
    whose edges are all codes."""
    if fmt.unit_bits <= 8:
        return []
    ways = zip(*(near_numbers(n, fmt.unit_bits) for n in numbers_as_bits(fmt, numbers)), strict=True)
    return _distinct(fmt, itertools.chain.from_iterable(ways))[:_NEAR]


def _solved(fmt: Format, numbers: Sequence[Number], known: Sequence[int]) -> list[int]:
    """Units, none of them among the known ones, that one step with a number turns into another number.

    Steps of bits: a sum, a difference, bitwise ones, a product, a quotient, and shifts by a number, with the bits that
    a mask or a shift drops cleared or set. Steps of floats: a sum, a difference, a product and a quotient.
    """
    width = fmt.unit_bits
    if width <= 8:
        return []
    plain = numbers_as_bits(fmt, numbers)[:_STEPPED]
    pairs = list(itertools.permutations(plain, 2))
    steps: list[list[int]] = [
        [a - b for a, b in pairs],
        [a ^ b for a, b in itertools.combinations(plain, 2)],
        [a + b for a, b in itertools.combinations(plain, 2)],
        [b * pow(a, -1, 1 << width) for a, b in pairs if a % 2],
        [a | ~b for a, b in pairs],
        [a * b for a, b in itertools.combinations(plain, 2)],
    ]
    for s in [n for n in numbers if isinstance(n, int) and 0 < n < width][:_OF_A_STEP]:
        steps.append([v for n in plain for v in (n << s, n >> s, n << s | (1 << s) - 1)])
    made = [v for together in itertools.zip_longest(*steps) for v in together if v is not None]
    if _is_float(fmt):
        made = [*_floats_in_a_step(fmt, _targets(fmt, numbers)), *made]
    distinct = set(known)
    return [c for c in _distinct(fmt, made) if c not in distinct][:_SOLVED]


def _floats_in_a_step(fmt: Format, values: Sequence[float]) -> list[int]:
    """Codes of floats that one step with a value turns into another one, the first values with each other first."""
    order = sorted(itertools.permutations(range(len(values)), 2), key=lambda pair: (max(pair), pair))
    if not order:
        return []
    a, b = (np.array([values[pair[k]] for pair in order]) for k in (0, 1))
    with np.errstate(all="ignore"):
        sums, others, quotients = a + b, a - b, b / a
        # Of the two codes around a quotient, one gives the number.
        codes = [_near(fmt, v, k) for v, k in ((others, 0), (sums, 0), (quotients, 0), (quotients, 1), (a * b, 0))]
    return [int(c) for c in np.stack(codes, axis=1).reshape(-1)]


def _distinct(fmt: Format, codes: Iterable[int]) -> list[int]:
    return [_signed64(c) for c in dict.fromkeys(c & _mask(fmt.unit_bits) for c in codes)]


def _in_parts(plain: Sequence[int], numbers: Sequence[Number], width: int) -> list[int]:
    """The numbers as they are, negated and moved upwards, each of the first ones in all these ways.

    The sign of a number that stands in the code is no part of it.
    """
    amounts = [n for n in numbers if isinstance(n, int) and 1 < n < width]
    places = [0, *dict.fromkeys([width // 2, *amounts])][:4]
    moved = [[n << place for place in places if n << place < 1 << width] for n in plain]
    made = [m for n, ways in zip(plain, moved, strict=True) for m in (ways[0], -n & (1 << width) - 1, *ways[1:])]
    return list(dict.fromkeys(made))[:_PARTS]


def pairs_of(one: Format, two: Format, numbers: Sequence[Number], rng: Rng) -> Iterator[Pair]:
    """Units of two inputs, in this order, that make a number."""
    if _is_float(one) and _is_float(two):
        if one.precision >= two.precision:
            yield from _of_floats(one, two, numbers, rng)
    elif _is_float(one) and _is_integer(two):
        yield from _of_float_and_integer(one, two, numbers, rng)
    elif _is_integer(one) and _is_integer(two) and one.unit_bits <= 8:
        most = _mask(max(one.unit_bits, two.unit_bits))
        whole = [n for n in numbers if isinstance(n, int) and 0 < n <= most**2][: 4 * _RELATED]
        yield from ((u, n // u) for n in whole for u in divisors(n) if n // u <= most)
    elif _is_integer(one) and _is_integer(two) and one.unit_bits >= two.unit_bits:
        width = one.unit_bits
        plain = [n for n in numbers_as_bits(one, numbers) if n > 1]
        if width > two.unit_bits:
            for n in plain[:_OF_TWO_FORMATS]:
                yield from _made_with_narrow(n, width, two, rng)
            return
        for number in (*plain[:_RELATED], None):
            yield from _made_of(number, width, rng)
        for n in plain[:_RELATED]:
            yield from _made_of_pieces(n, width, numbers, rng)
        wide = [n for n in numbers if isinstance(n, int) and 1 << width <= n < 1 << 2 * width]
        for n in wide[:_OF_TWO_FORMATS]:
            yield from ((n // u, u) for u in divisors(n) if n >> width < u)
        for n in [*plain[:_OF_TWO_FORMATS], *wide[:_OF_TWO_FORMATS]]:
            for signed in dict.fromkeys((_as_signed(n, width), -_as_signed(n, width))):
                yield from _made_of_signed(signed, width, rng)


def _of_three(formats: Sequence[Format], numbers: Sequence[Number], rng: Rng) -> list[Codes]:
    """Units of three inputs that make a number together; none of them unless all have one format."""
    fmt = formats[0]
    if len(set(formats)) > 1 or not (_is_float(fmt) or _is_integer(fmt)):
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    return (_of_three_floats if _is_float(fmt) else _of_three_integers)(fmt, numbers, rng)


def _is_float(fmt: Format) -> bool:
    return fmt.is_float and fmt.code_bits > 8 and fmt.codes_per_unit == 1


def _is_integer(fmt: Format) -> bool:
    return not fmt.is_float and fmt.codes_per_unit == 1


# ---- Integers --------------------------------------------------------------------------------------------------------


def _made_of(n: int | None, width: int, rng: Rng) -> Iterator[Pair]:
    """Integers of `width` bits that make n in one step; without n, products beside an overflow."""
    whole, half = 1 << width, width // 2
    random = [int(r) % whole for r in rng.integers(0, 1 << 63, _OF_A_STEP)]
    if n is None:
        for u in (*_SIMPLE, *(1 << k for k in range(2, width - 1, 3)), *random):
            for limit in (whole, whole >> 1):  # of unsigned and of signed numbers
                yield from ((u, (limit - 1) // max(u, 1)), (u, -(-limit // max(u, 1))))
        return
    for u in random:
        yield u | 1, n * pow(u | 1, -1, whole)  # the lower half of the product
        yield n | u, n | ~u  # and
        yield n & u, n & ~u | n & random[0]  # or
    for u in (whole - 2, whole // 2 + 1, whole - 1 - (random[0] >> 2), n + 1, 3 * n, math.isqrt(n << width)):
        if n < u < whole:
            yield u, -(-(n << width) // u)  # its upper half
            yield n + u if n + u < whole else n, u  # the remainder
    for u in (*_SIMPLE, random[0] >> half, random[1] >> half):
        if n * u < whole:
            yield n * u + min(u - 1, 2), u  # the quotient
    for multiple in (whole // n * n, (whole >> 1) // n * n):
        yield from ((multiple - 1, n), (multiple, n))  # beside the largest multiples
    yield from ((n // u, u) for u in divisors(n))  # a product, not overflowed
    for s in range(2, min(width, _SHIFTED)):
        if n % (1 << s) == 0:
            yield n >> s | random[s % _OF_A_STEP] << width - s, s  # shifted to the left
        if n << s < whole:
            yield n << s | random[s % _OF_A_STEP] >> width - s, s  # to the right
        yield n >> s | n << width - s, s  # rotated


def _made_of_pieces(n: int, width: int, numbers: Sequence[Number], rng: Rng) -> Iterator[Pair]:
    """Integers of `width` bits of which n is put together: from a half of each, by a funnel shift, or by a permutation
    of bytes (of 32 bits).

    The amounts of the shifts and the selectors of the permutations are numbers of the code; other bits are random.
    """
    whole, some = 1 << width, [int(r) % (1 << width) for r in rng.integers(0, 1 << 63, 2)]
    half = width // 2
    low, high = ((bits, bits << half) for bits in (n % (1 << half), n >> half))
    beside = ((some[0] >> half << half, some[0] % (1 << half)), (some[1] >> half << half, some[1] % (1 << half)))
    for i, j in itertools.product(range(2), repeat=2):  # in the lower or the upper half of each
        yield low[i] | beside[0][i], high[j] | beside[1][j]
    integers = [m for m in dict.fromkeys(numbers) if isinstance(m, int)]
    for s in [m for m in integers if 0 < m < width][:_OF_A_STEP]:
        yield (n << width - s | some[0] % (1 << width - s)) % whole, n >> s | some[1] >> s << width - s & whole - 1
        yield (n << s | some[0] % (1 << s)) % whole, n >> width - s | some[1] << s & whole - 1
    for selector in [m for m in integers if width == 32 and m < 1 << 16 and not m & 0x8888][:_OF_A_STEP]:
        both = some[0] | some[1] << 32
        for place in range(4):
            at = 8 * (selector >> 4 * place & 7)
            both = both & ~(255 << at) | (n >> 8 * place & 255) << at
        yield both & 0xFFFFFFFF, both >> 32


def _made_of_signed(n: int, width: int, rng: Rng) -> Iterator[Pair]:
    """Signed integers of `width` bits that make n, which may have twice as many bits, in one step without overflow."""
    half, size, sign = 1 << width - 1, abs(n), -1 if n < 0 else 1
    random = [int(r) % half for r in rng.integers(2, 1 << 62, 2)]
    made = [p for u in divisors(size) for p in ((u, sign * (size // u)), (-u, -sign * (size // u)))]
    if size < half:
        for u in (half - 1 - (random[0] >> 2), math.isqrt(size << width), size + 1 + (random[1] >> 3)):
            # The product of u and its partner is the smallest that is not below n * 2^width.
            made += [(u, -(-(n << width) // u)), (-u, n * (1 << width) // -u)] if u > 2 else []
        for u in (3, 10, random[0] >> width // 2):
            made += [(v, w) for w in (u, -u) for v in (n * w + (min(u - 1, 2) if n * w > 0 else -min(u - 1, 2)),)]
        for u in (size + 1 + (random[0] >> 8), 3 * size):
            made += [(n + sign * u * ((half - 1 - size) // u), w) for w in (u, -u)]  # the remainder
        made += [(n // 3, n - n // 3), (n // 2 + 2, n - n // 2 - 2)]  # a sum of the same sign
    yield from (pair for pair in made if all(-half <= v < half for v in pair))


def _made_with_narrow(n: int, width: int, two: Format, rng: Rng) -> Iterator[Pair]:
    """Integers of `width` bits that make n, or its negative, in one step with one of a narrower format, which is
    extended as that is signed."""
    whole, narrow = 1 << width, 1 << two.unit_bits
    half = whole >> 1
    random = [int(r) for r in rng.integers(3, min(narrow, 1 << 62), 3)]
    fitting = max(3, min(narrow - 1, (whole - 1) // n))  # the largest by which a quotient can be n
    values = [random[0] | 1, fitting, (narrow >> 1) + (random[1] >> 3) | 1, narrow - 3 - (random[2] >> 3) | 1]
    values += [u for u in divisors(n) if u < narrow][-1:]
    for code in values:
        v = code - narrow if two.has_sign and code >= narrow >> 1 else code
        for target in (n, -n):
            yield from ((target - v, code), (target + v, code), (v - target, code), (target ^ v, code))
            if v % 2:
                yield target * pow(v, -1, whole), code  # the lower half of a product
            if n % v == 0:
                yield target // v, code
            low, high = (0, whole) if target > 0 < v else (-half, half)
            upper = -(-(target << width) // v) if v > 0 else (target << width) // v
            rest = min(abs(v) - 1, 2)
            dividend = target * v + (rest if target * v > 0 else -rest)
            multiple = (high - 1 - n) // abs(v) * abs(v)
            remaining = target + (multiple if target > 0 else -multiple)
            solved = (upper, dividend, remaining) if n < abs(v) else (upper, dividend)
            yield from ((x, code) for x in solved if low <= x < high)
    lowest = (n & -n).bit_length() - 1
    for s in dict.fromkeys((3, lowest)):
        if 1 < s <= lowest:
            yield n >> s, s
        if s > 1:
            yield from (((n << s, s),) if n << s < whole else ())
            yield n >> s | n << width - s, s  # rotated
    if n < narrow:
        yield from ((n | random[0], n | ~random[0] & narrow - 1), (n & random[0], n & ~random[0]))  # and, or


def _of_three_integers(fmt: Format, numbers: Sequence[Number], rng: Rng) -> list[Codes]:
    """Codes of three integers of one format: a product and the third, sums of all, or their bits make a number."""
    rows, mask = [], _mask(fmt.unit_bits)
    for n in [n for n in numbers_as_bits(fmt, numbers) if n > 1][:_OF_TWO_FORMATS]:
        a, b, c = (int(r) & mask | 2 for r in rng.integers(0, 1 << 63, 3))
        for third in (n - a * b, a * b - n, n + a * b, n + a + b, a + b - n, n - a - b):
            rows += [(a, b, third), (third, a, b), (b, third, a)]
        rows += [(a, b, n ^ a ^ b), (n ^ a & ~b, n ^ b & ~a, n ^ c & ~(a | b))]  # odd ones, and the majority
        rows += [(n | a, n | b, n | ~(a & b)), (n & a, n & b, n & ~(a & b))]  # and, or
    for n in [n for n in numbers if isinstance(n, int) and 3 < n <= mask**3][:_OF_TWO_FORMATS]:
        rows += [(n, n >> fmt.unit_bits, n >> 2 * fmt.unit_bits)] if n > mask else []  # one above the other
        rows += [(u, v, n // u // v) for u in divisors(n) for v in divisors(n // u)[-2:] if n // u // v <= mask]
        rows += [(n // 3, n - n // 3 * 2, n // 3)] if n <= 3 * mask else []
    return [np.array([_signed64(row[k] & mask) for row in rows], dtype=np.int64) for k in range(3)]


def divisors(n: int) -> list[int]:
    """Divisors of n, in ascending order, not 1 or 2: a few of the smallest, and of the largest up to a bound."""
    most = min(math.isqrt(n), _LARGEST_DIVISOR)
    if most < 3:
        return []
    factors = np.arange(3, most + 1, dtype=np.uint64)
    rest = np.zeros_like(factors)
    for shift in range(n.bit_length() // 32 * 32, -1, -32):  # n may have more than 64 bits
        rest = (rest << np.uint64(32) | np.uint64(n >> shift & 0xFFFFFFFF)) % factors
    found = [int(u) for u in factors[rest == 0]]
    return list(dict.fromkeys([*found[:_OF_A_STEP], *found[-3:]]))


# ---- Floats ----------------------------------------------------------------------------------------------------------


def _targets(fmt: Format, numbers: Sequence[Number]) -> list[float]:
    """Finite values of a float format, not zero, that stand in the code: those written as floats, then as bits.

    The low bits that a format such as tf32 ignores are no number.
    """
    written = np.array([n for n in numbers if isinstance(n, float) and math.isfinite(n)], dtype=np.float64)
    codes = list(dict.fromkeys([*_nearest(fmt, written).tolist(), *numbers_as_bits(fmt, numbers)]))
    finite = [n for n in codes if 0 < n & fmt.magnitude_mask <= fmt.max_finite][:_OF_TWO_FORMATS]
    units = np.array([_signed64(n & _mask(fmt.unit_bits)) for n in finite], dtype=np.int64)
    return [float(value) for value in _value(fmt, units) if value]


def _of_floats(one: Format, two: Format, numbers: Sequence[Number], rng: Rng) -> Iterator[Pair]:
    """Codes of two floats, of which the second has no more digits, that make a number of the first one's format."""
    for n in _targets(one, numbers):
        scale = float(np.sqrt(abs(n)))
        near = _some(two, abs(n), rng)  # of the number's size: for sums, beside which nothing is lost
        even = np.concatenate([_some(two, 1.0, rng), _some(two, scale, rng)])
        with np.errstate(all="ignore"):
            steps: list[tuple[Floats, Floats, Callable[[Floats, Floats], Floats]]] = [
                (near, n - near, lambda x, y: x + y), (near, n + near, lambda x, y: x - y),
                (near, near - n, lambda x, y: y - x), (even, n / even, lambda x, y: x * y),
                (even, n * even, lambda x, y: x / y), (even, even / n, lambda x, y: y / x),
                *((exact, n / exact, lambda x, y: x * y) for exact in [_exact_divisors(two, n)] if exact.size),
            ]  # fmt: skip
            for second, first, step in steps:
                firsts = np.concatenate([_near(one, first, k) for k in (0, 1)])
                seconds = _near(two, np.tile(second, 2), 0)
                x, y = _value(one, firsts), _value(two, seconds)
                made = _nearest(one, step(x, y)) == _nearest(one, np.array([n]))
                kept = np.flatnonzero(made)[:_KEPT]
                yield from zip(firsts[kept].tolist(), seconds[kept].tolist(), strict=True)


def _of_three_floats(fmt: Format, numbers: Sequence[Number], rng: Rng) -> list[Codes]:
    """Codes of three floats of one format: the product of the first two, and the third, add up to a number."""
    rows = [np.zeros((3, 0), dtype=np.int64)]
    for n in _targets(fmt, numbers):
        a, b = _some(fmt, 1.0, rng), _some(fmt, abs(n), rng)
        with np.errstate(all="ignore"):
            c = _near(fmt, n - a * b, 0)
            made = _nearest(fmt, a * b + _value(fmt, c)) == _nearest(fmt, np.array([n]))
        kept = np.flatnonzero(made)[:_KEPT]
        rows.append(np.stack([_near(fmt, v, 0) for v in (a, b)] + [c])[:, kept])
    return list(np.concatenate(rows, axis=1))


def _of_float_and_integer(one: Format, two: Format, numbers: Sequence[Number], rng: Rng) -> Iterator[Pair]:
    """Codes of a float and of an integer, converted or as steps of the exponent, that make a number of the float's
    format."""
    top = 1 << min(two.unit_bits - two.has_sign, 12)
    values = [int(v) for v in (*rng.integers(3, min(top, 48), 2), *rng.integers(3, top, 2))]
    values += [-v for v in values[1:3]] if two.has_sign else []
    others = np.array(values, dtype=np.float64)
    for n in _targets(one, numbers):
        with np.errstate(all="ignore"):
            steps: list[tuple[Floats, Callable[[Floats], Floats]]] = [
                (n - others, lambda x: x + others), (n + others, lambda x: x - others),
                (others - n, lambda x: others - x), (n / others, lambda x: x * others),
                (n * others, lambda x: x / others), (others / n, lambda x: others / x),
            ]  # fmt: skip
            for solved, step in steps:
                below, above = _near(one, solved, 0), _near(one, solved, 1)
                codes = np.where(_nearest(one, step(_value(one, below))) == _nearest(one, np.array([n])), below, above)
                yield from zip(codes.tolist(), values, strict=True)
        code = int(_nearest(one, np.array([n]))[0])
        shift = one.mantissa_bits + one.ignored_bits
        for v in (values[0] % 8 + 2, *([-(values[1] % 8) - 2] if two.has_sign else [])):
            yield code - (v << shift), v


def _some(fmt: Format, size: float, rng: Rng) -> Floats:
    """Values of a format with all of its digits and of either sign, at most three binades from a size."""
    signs = rng.choice([-1.0, 1.0], _POOL) if fmt.has_sign else 1.0
    with np.errstate(over="ignore"):
        return _value(fmt, _near(fmt, size * np.exp2(rng.uniform(-2.5, 2.5, _POOL)) * signs, 0))


def _exact_divisors(fmt: Format, n: float) -> Floats:
    """Values by which a number can be divided without rounding: divisors of its significand."""
    whole = abs(int(math.frexp(n)[0] * (1 << 53)))
    whole //= whole & -whole
    exact = [u for u in divisors(whole) if max(u, whole // u).bit_length() <= fmt.precision]
    return np.array([float(sign * u) for u in exact for sign in ((1, -1) if fmt.has_sign else (1,))])


def _value(fmt: Format, codes: Codes) -> Floats:
    values: Floats = values_of(fmt, codes.astype(fmt.numpy_dtype())).astype(np.float64)
    return values


def _near(fmt: Format, values: Floats, ulps: int) -> Codes:
    """Codes of values, rounded towards zero, and `ulps` farther from it; a format without a sign gets their sizes."""
    sign = np.signbit(values).astype(np.int64) << fmt.sign_shift if fmt.has_sign else 0
    size = np.minimum(cut(fmt, values) + (ulps << fmt.ignored_bits), fmt.max_finite)
    return size | sign


def _nearest(fmt: Format, values: Floats) -> Codes:
    """Codes of values, rounded to nearest but for ties, which go up."""
    low, high = _near(fmt, values, 0), _near(fmt, values, 1)
    with np.errstate(all="ignore"):
        below = np.abs(values - _value(fmt, low)) < np.abs(_value(fmt, high) - values)
    return np.where(below, low, high)


def _as_signed(n: int, width: int) -> int:
    return n - (1 << width) if 1 << width - 1 <= n < 1 << width else n


def _signed64(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code


def _mask(bits: int) -> int:
    return (1 << bits) - 1
