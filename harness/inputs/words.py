"""Inputs of packs: the unit of input is what one invocation of the asm reads, the elements of a pack in all inputs.

Code that takes several elements at once may be wrong only where the others have certain values: where a word is zero,
where one lane is zero, where NaN stands beside infinity. No set of elements shows it, even if it has all of them. A set
here is a list of tuples, each as long as the pack, made by construction from the formats, the thresholds of the
reference, and the numbers in the asm. Nothing depends on the name of the case.

Lanes are the codes of a tuple, those of all inputs together: a pack of 4 with two inputs has eight, twice as many if a
storage unit holds two codes. Words are the registers that hold them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.constants import near_numbers, numbers_as_bits, relations, simple_relations, units_beside
from ptxdiff.inputs.edges import edge_codes
from ptxdiff.inputs.together import divisors, pairs_of
from ptxdiff.references.formats import F32, U16, U32, U64, Format, encode

Codes = NDArray[np.int64]
Number = int | float
Inside = Callable[[Mapping[str, NDArray[np.generic]]], NDArray[np.bool_]]

REGISTER = 32
"""Bits of a register, which is a word."""
_ONE_LANE, _TWO_VALUES, _TWO_LANES, _PRODUCT, _ORTHOGONAL, _TWO_WORDS = (1 << k for k in (14, 12, 12, 12, 12, 11))
"""Elements of the parts of a set at quick effort. Parts with more have fewer edges; full effort has 16 times as many.
"""
_TWO_NUMBERS = 1 << 13
"""Elements of the tuples in which two numbers of the code, or one and another value, stand together."""
_RELATIONS, _LEAST_RELATED = 1 << 13, 96
"""Elements of the tuples in which a number relates two lanes, and the least tuples of every two."""
_MADE = 3
"""Numbers, those with most bits first, that two words make in one step."""
_ORDINARY = 64
"""Ordinary codes of a format; a lane without a special value has one of them."""
_PRIMES = (5, 7, 11, 13, 17, 31, 61, 127)
"""Numbers of edges in an orthogonal array, which has every pair of them in every two lanes."""
_NUMBERS = 24
"""Numbers of the code, those with most bits first, that stand in every lane, in every word, and as masks."""
_SEED = 20_27
"""Of the ordinary codes: the same for every case, so that no verdict depends on a name."""


@dataclass(frozen=True)
class _Lanes:
    """The lanes of a tuple: the format of each, and of what input and unit it is a part."""

    formats: tuple[Format, ...]
    pack: int

    @functools.cached_property
    def single(self) -> tuple[Format, ...]:
        """The format of each lane: those of the first input's first element come first."""
        return tuple(f.single for f in self.formats for _ in range(self.pack * f.codes_per_unit))

    def units(self, codes: Codes) -> Codes:
        """Storage units [tuple, input and element] of codes [tuple, lane]."""
        parts, first = [], 0
        for fmt in self.formats:
            per = fmt.codes_per_unit
            own = codes[:, first : first + self.pack * per].reshape(len(codes), self.pack, per)
            shifts = np.arange(per, dtype=np.int64) * fmt.slot_bits
            parts.append(np.bitwise_or.reduce((own & _mask(fmt.single.code_bits)) << shifts, axis=2))
            first += self.pack * per
        return np.concatenate(parts, axis=1)

    @functools.cached_property
    def words(self) -> tuple[tuple[int, int, int], ...]:
        """For each register of a pack of narrow elements: its first unit, its units, and the bits of each."""
        registers = []
        for k, fmt in enumerate(self.formats):
            if fmt.unit_bits < REGISTER:
                each = min(self.pack, REGISTER // fmt.unit_bits)
                registers += [(k * self.pack + at, each, fmt.unit_bits) for at in range(0, self.pack, each)]
        return tuple(registers)

    @functools.cached_property
    def pairs_of_words(self) -> tuple[tuple[int, int, int], ...]:
        """The same for two registers next to each other, which asm may join in one of 64 bits."""
        register_pairs = []
        for k, fmt in enumerate(self.formats):
            each = 2 * REGISTER // fmt.unit_bits
            if 1 < each <= self.pack:
                register_pairs += [(k * self.pack + at, each, fmt.unit_bits) for at in range(0, self.pack, each)]
        return tuple(register_pairs)


def word_inputs(
    formats: Mapping[str, Format], pack: int, effort: str, thresholds: Sequence[Codes], inside: Inside | None
) -> list[Codes]:
    """Storage units of every input, in tuples of `pack` elements; none where an invocation reads a single code.

    In tuples: all lanes equal, for every edge, and every threshold of the reference in all elements; every edge in each
    lane with zero, one and ordinary values in all others; two values in every pattern of lanes (in few lanes) or in
    runs; every pair of a few values in every two lanes; an orthogonal array of edges; lanes that are related; and words
    that are edges of 16, 32 or 64 bits.

    thresholds: for each input, units of rows at both sides of the reference's thresholds. inside: which rows of units
    lie in the case's domain; None if it has none. In tuples, elements outside are replaced by others inside.
    """
    lanes = _Lanes(tuple(formats.values()), pack)
    if not _has_tuples(lanes):
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    repeated = np.concatenate([np.repeat(t[:, None], pack, axis=1) for t in thresholds], axis=1)
    return _columns(formats, pack, np.concatenate([_of_formats(lanes, effort), repeated]), inside)


def constant_words(
    formats: Mapping[str, Format], pack: int, numbers: Sequence[Number], inside: Inside | None
) -> list[Codes]:
    """Storage units of every input, in tuples of `pack` elements, made of the numbers in the asm.

    Each number in each lane, in each word, with zeros and ordinary values in all others, and in all of them; words that
    a number masks, or that a step of arithmetic turns into a number (`ptxdiff.inputs.constants.units_beside`); two
    numbers in every two words.
    """
    lanes = _Lanes(tuple(formats.values()), pack)
    if not _has_tuples(lanes) or not numbers:
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    made = np.concatenate([lanes.units(_numbers_in_lanes(lanes, numbers)), *_numbers_in_words(lanes, numbers)])
    return _columns(formats, pack, made, inside)


def constant_pairs(
    formats: Mapping[str, Format], pack: int, numbers: Sequence[Number], inside: Inside | None
) -> list[Codes]:
    """Storage units of every input, in tuples of `pack` elements: two numbers of the asm, or a number and a value with
    rules of its own, in every two lanes, and in patterns of lanes."""
    lanes = _Lanes(tuple(formats.values()), pack)
    if not _has_tuples(lanes) or not numbers:
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    return _columns(formats, pack, lanes.units(_numbers_beside(lanes, numbers)), inside)


def constant_relations(
    formats: Mapping[str, Format], pack: int, numbers: Sequence[Number], inside: Inside | None
) -> list[Codes]:
    """Storage units of every input, in tuples of `pack` elements: two lanes, two words or all lanes of an input in
    turn that a number of the asm relates, as where one is the other and the number, or both make the number."""
    lanes = _Lanes(tuple(formats.values()), pack)
    if not _has_tuples(lanes) or not numbers:
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    codes = np.concatenate([_related_lanes(lanes, numbers), _chains(lanes, numbers)])
    made = np.concatenate([lanes.units(codes), *_related_words(lanes, numbers)])
    return _columns(formats, pack, made, inside)


def _has_tuples(lanes: _Lanes) -> bool:
    return len(lanes.single) > len(lanes.formats)


def _columns(formats: Mapping[str, Format], pack: int, units: Codes, inside: Inside | None) -> list[Codes]:
    """The units of each input, without tuples that occur twice. units: [tuple, input and element]."""
    for k, fmt in enumerate(formats.values()):
        units[:, k * pack : (k + 1) * pack] &= _mask(fmt.unit_bits)
    units = _distinct(units)
    columns = [units[:, k * pack : (k + 1) * pack].reshape(-1) for k in range(len(formats))]
    return columns if inside is None else _kept_inside(formats, pack, columns, inside)


def _kept_inside(formats: Mapping[str, Format], pack: int, columns: list[Codes], inside: Inside) -> list[Codes]:
    """The tuples, with elements outside the domain replaced by elements inside, each in turn."""
    units = {n: c.astype(f.numpy_dtype()) for (n, f), c in zip(formats.items(), columns, strict=True)}
    kept = inside(units)
    chosen = np.flatnonzero(kept)
    if not len(chosen):
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    rows = _distinct(np.stack([c[chosen] for c in columns], axis=1))
    # One replacement for a whole tuple in every second one, so that lanes stay equal; else one for each element.
    numbers = np.arange(len(kept))
    tuple_number = numbers // pack
    turn = np.where(tuple_number % 2 == 0, tuple_number // 2, numbers) % len(rows)
    made = np.stack([np.where(kept, c, rows[turn, k]) for k, c in enumerate(columns)], axis=1)
    whole = _distinct(made.reshape(-1, pack * len(columns))).reshape(-1, len(columns))
    return [np.ascontiguousarray(whole[:, k]) for k in range(len(columns))]


def _distinct(rows: Codes) -> Codes:
    """The rows without repeats, in the order in which they first occur."""
    weights = np.random.default_rng(_SEED).integers(1, 1 << 62, rows.shape[1], dtype=np.int64) | 1
    mixed = rows * np.int64(-7046029254386353131)
    mixed ^= (mixed >> 29) & ((1 << 35) - 1)
    with np.errstate(over="ignore"):
        hashes = (mixed * weights).sum(axis=1)
    first = np.unique(hashes, return_index=True)[1]
    return np.ascontiguousarray(rows[np.sort(first)])


# ---- From the formats ------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def _of_formats(lanes: _Lanes, effort: str) -> Codes:
    times = 1 if effort == "quick" else 16
    parts = [
        (_one_lane, _ONE_LANE), (_two_values, _TWO_VALUES), (_two_lanes, _TWO_LANES), (_product, _PRODUCT),
        (_orthogonal, _ORTHOGONAL),
    ]  # fmt: skip
    made = [part(lanes, times * most // lanes.pack) for part, most in parts]
    codes = np.concatenate([_all_equal(lanes), *made, _related(lanes)])
    units = np.concatenate([lanes.units(codes), *_edge_words(lanes)])
    units.flags.writeable = False
    return units


@functools.cache
def _edges(fmt: Format) -> Codes:
    return np.array([_signed64(c) for c in edge_codes(fmt)], dtype=np.int64)


@functools.cache
def _few(fmt: Format) -> Codes:
    """The values with rules of their own, the most important first: zero, one, all bits, the top bit, ..."""
    top = 1 << (fmt.code_bits - 1)
    codes = [0, (1 << fmt.code_bits) - 1, top, 1, top - 1, _one(fmt)]
    if fmt.is_float:
        sign = top if fmt.has_sign else 0
        infinity = fmt.max_finite if fmt.infinity_code is None else fmt.infinity_code
        nan = 0 if fmt.canonical_nan is None else fmt.canonical_nan
        floats = [0, infinity, nan, sign, _one(fmt), infinity | sign]
        # Of narrow formats all bits come first, which is what masks select.
        codes = [*(floats if fmt.code_bits > 8 else ()), *codes, *floats, fmt.min_normal, fmt.max_finite]
    else:
        half = fmt.code_bits // 2
        codes += [2, codes[1] - 1, top + 1, (1 << half) - 1, codes[1] ^ ((1 << half) - 1)]
    return np.array([_signed64(c) for c in dict.fromkeys(c & _bits(fmt) for c in codes)], dtype=np.int64)


@functools.cache
def _ordinary(fmt: Format) -> Codes:
    """Codes without a rule of their own: of wide floats numbers near one, else random bits that are no few value."""
    rng = np.random.default_rng(_SEED)
    codes: Codes = rng.integers(0, 1 << min(fmt.code_bits, 63), 16 * _ORDINARY, dtype=np.int64)
    if fmt.is_float and fmt.code_bits > 8:
        shift = fmt.mantissa_bits + fmt.ignored_bits
        exponents = rng.integers(fmt.bias - 3, fmt.bias + 4, len(codes)) << shift
        codes = codes & ~(((1 << fmt.exponent_bits) - 1) << shift) | exponents
    kept = codes[~np.isin(codes, _few(fmt))]
    return (kept if len(kept) else codes)[:_ORDINARY]


def _one(fmt: Format) -> int:
    return encode(fmt, 1.0) if fmt.is_float else 1


def _backgrounds(lanes: _Lanes, count: int, seed: int) -> tuple[Codes, Codes, Codes]:
    """Rows of zeros, of ones, and of ordinary codes, in which neighbouring lanes differ."""
    ones = np.array([_one(f) for f in lanes.single], dtype=np.int64)
    rng = np.random.default_rng([_SEED, seed])
    places = rng.permuted(np.tile(np.arange(_ORDINARY), (max(count, 1), 1)), axis=1)[:count]
    ordinary = np.stack(
        [np.resize(_ordinary(f), _ORDINARY)[places[:, k % _ORDINARY]] for k, f in enumerate(lanes.single)], axis=1
    )
    shape = (count, len(lanes.single))
    return np.zeros(shape, dtype=np.int64), np.broadcast_to(ones, shape), ordinary


def _cut(values: Codes, count: int) -> Codes:
    """At most `count` of some values: the first half of them, and of the others some at equal distances."""
    if len(values) <= count:
        return values
    first = max(1, count // 2)
    rest = np.linspace(first, len(values) - 1, max(1, count - first)).astype(np.int64)
    return np.concatenate([values[:first], values[np.unique(rest)]])


def _same_formats(lanes: _Lanes) -> list[list[int]]:
    """The lanes of each input, and of all inputs together if their codes have equal widths."""
    groups, first = [], 0
    for fmt in lanes.formats:
        size = lanes.pack * fmt.codes_per_unit
        groups.append(list(range(first, first + size)))
        first += size
    if len(groups) > 1 and len({f.code_bits for f in lanes.single}) == 1:
        groups.append(list(range(first)))
    return groups


def _all_equal(lanes: _Lanes) -> Codes:
    """Each edge in all lanes of an input, with the other inputs zero, one and ordinary; and in all lanes."""
    made = []
    for group in _same_formats(lanes):
        values = _edges(lanes.single[group[0]])
        for rows in _backgrounds(lanes, len(values), 1):
            changed = rows.copy()
            changed[:, group] = values[:, None]
            made.append(changed)
            if len(group) == len(lanes.single):
                break
    return np.concatenate(made)


def _one_lane(lanes: _Lanes, most: int) -> Codes:
    """Each edge in each lane, with all other lanes zero, one and ordinary."""
    made = []
    for lane, fmt in enumerate(lanes.single):
        important = np.concatenate([_few(fmt), _edges(fmt)])
        values = _cut(important, max(len(_few(fmt)), most // (3 * len(lanes.single))))
        for rows in _backgrounds(lanes, len(values), 2 + lane):
            changed = rows.copy()
            changed[:, lane] = values
            made.append(changed)
    return np.concatenate(made)


def _patterns(count: int) -> NDArray[np.bool_]:
    """In which lanes the first of two values stands: every pattern of up to 4 lanes, and up to exchange.

    Of more lanes: one lane, runs anywhere, and every second run of 1, 2, 4, ... lanes.
    """
    places = np.arange(count)
    if count <= 4:
        masks = [[bool(n >> k & 1) for k in range(count)] for n in range(1, 1 << count)]
        return np.array(masks[: (1 << count) // 2], dtype=bool)
    patterns = [places == k for k in range(count)]
    patterns += [places < k for k in range(2, count - 1)]
    patterns += [(places // w) % 2 == 0 for w in (1, 2, 4, 8) if w < count]
    if count <= 8:
        patterns += [(places >= i) & (places < j) for i in range(1, count) for j in range(i + 2, count)]
    return np.unique(np.array(patterns, dtype=bool), axis=0)


def _two_values(lanes: _Lanes, most: int) -> Codes:
    """Two values in patterns of lanes: of each input, with the others ordinary, and of all inputs together."""
    made = []
    for group in _same_formats(lanes):
        fmt = lanes.single[group[0]]
        masks = _patterns(len(group))
        size = 6
        while size < 12 and (size + 1) * size * len(masks) * len(lanes.formats) <= most:
            size += 1
        values = np.concatenate([_few(fmt)[: size - 2], _ordinary(fmt)[:2]])
        pairs = np.array([(a, b) for a in values for b in values if a != b], dtype=np.int64)
        rows = np.where(masks[:, None, :], pairs[None, :, :1], pairs[None, :, 1:]).reshape(-1, len(group))
        changed = _backgrounds(lanes, len(rows), 100)[2].copy()
        changed[:, group] = rows
        made.append(changed)
    return np.concatenate(made)


def _two_lanes(lanes: _Lanes, most: int) -> Codes:
    """Every pair of a few values in every two lanes, with all others zero, and ordinary."""
    two = list(itertools.combinations(range(len(lanes.single)), 2))
    size = 3
    while size < 12 and 2 * (size + 1) ** 2 * len(two) <= most:
        size += 1
    made = []
    for number, (i, j) in enumerate(two):
        one, other = np.meshgrid(_few(lanes.single[i])[:size], _few(lanes.single[j])[:size], indexing="ij")
        for rows in _backgrounds(lanes, one.size, 200 + number)[::2]:
            changed = rows.copy()
            changed[:, i], changed[:, j] = one.reshape(-1), other.reshape(-1)
            made.append(changed)
    return np.concatenate(made)


def _product(lanes: _Lanes, most: int) -> Codes:
    """Every combination of as many of the few values in all lanes as there is room for; none of many lanes."""
    count, size = len(lanes.single), 2
    while (size + 1) ** count <= most:
        size += 1
    if size**count > most:
        return np.zeros((0, count), dtype=np.int64)
    grids = np.meshgrid(*(np.unique(_few(f)[:size]) for f in lanes.single), indexing="ij")
    return np.stack([g.reshape(-1) for g in grids], axis=1)


def _orthogonal(lanes: _Lanes, most: int) -> Codes:
    """Every pair of edges in every two lanes, by an orthogonal array: the number of edges is a prime q, its rows q^2.

    Lane k has the edge number x + k y modulo q, for every x and y (Bush, 1952). All lanes are then equal where y is 0.
    """
    count = len(lanes.single)
    fit = [q for q in _PRIMES if q >= count and q * q <= most]
    q = max(fit, default=next((p for p in _PRIMES if p >= count), _PRIMES[-1]))
    x, y = (g.reshape(-1) for g in np.meshgrid(np.arange(q), np.arange(q), indexing="ij"))
    columns = []
    for k, fmt in enumerate(lanes.single):
        values = np.resize(_cut(np.concatenate([_few(fmt), _edges(fmt)]), q), q)
        columns.append(values[(x + k * y) % q])
    return np.stack(columns, axis=1)


def _related(lanes: _Lanes) -> Codes:
    """Two lanes of one width whose codes are negations, complements, neighbours or doubles of each other, for all pairs
    of lanes; two inputs whose lanes are equal, negations or complements; and lanes that ascend or descend."""
    count = len(lanes.single)
    two = [(i, j) for i, j in itertools.combinations(range(count), 2) if _alike(lanes, i, j)]
    made = []
    for number, (i, j) in enumerate(two):
        fmt = lanes.single[i]
        mask, top = _mask(fmt.code_bits), _signed64(1 << (fmt.code_bits - 1))
        values = _ordinary(fmt)[:4]
        images = [values ^ top, ~values & mask, -values & mask, values + 1 & mask, values - 1 & mask, 2 * values & mask]
        images.append(values)
        rows = _backgrounds(lanes, len(values) * len(images), 1000 + number)[2].copy()
        rows[:, i], rows[:, j] = np.tile(values, len(images)), np.concatenate(images)
        made.append(rows)
    for one, other in itertools.combinations(_same_formats(lanes)[: len(lanes.formats)], 2):
        if len(one) == len(other) and _alike(lanes, one[0], other[0]):
            rows = _backgrounds(lanes, 24, 2000)[2].copy()
            bits = lanes.single[one[0]].code_bits
            codes = rows[:, one]
            rows[:, other] = np.concatenate([codes[:8], codes[8:16] ^ _signed64(1 << bits - 1), ~codes[16:]])
            made.append(rows)
    begins = np.stack([np.resize(_edges(f)[:: max(1, len(_edges(f)) // 16)], 16) for f in lanes.single], axis=1)
    steps = np.arange(count, dtype=np.int64)
    masks = np.array([_mask(f.code_bits) for f in lanes.single], dtype=np.int64)
    made += [(begins[:, :1] + step * steps) & masks for step in (1, -1)]
    return np.concatenate(made)


def _alike(lanes: _Lanes, i: int, j: int) -> bool:
    return lanes.single[i].code_bits == lanes.single[j].code_bits


# ---- Words -----------------------------------------------------------------------------------------------------------


def _edge_words(lanes: _Lanes) -> Iterator[Codes]:
    """Units whose registers, or pairs of registers, are edges: of integers, of floats, and bytes that repeat."""
    if not lanes.words and not lanes.pairs_of_words:
        return
    few = [0, -1, 1, 1 << 31, (1 << 31) - 1, 0xFFFF, 0xFFFF0000, 0x80008000, 0x80808080, 0x01010101, 0x3C92A5D7]
    runs = [v for k in range(1, REGISTER) for v in ((1 << k) - 1, -1 << k, 1 << k, ~(1 << k))]
    narrow = {bits for _, _, bits in lanes.words}
    # Each byte is in all lanes of bytes already, and each edge of 16 bits in all lanes of those.
    repeated = [c * 0x00010001 for c in edge_codes(U16)] * (8 in narrow) + [b * 0x01010101 for b in range(256)] * (
        16 in narrow
    )
    edges = [*few, *edge_codes(U32), *edge_codes(F32), *runs, *repeated]
    yield from _in_words(lanes, lanes.words, _as_codes(edges))
    yield from _in_two_words(lanes, _as_codes(few))
    if lanes.pairs_of_words:
        wide = [*edge_codes(U64), *(v for k in range(1, 64) for v in (1 << k, (1 << k) - 1))]
        yield from _in_words(lanes, lanes.pairs_of_words, _as_codes(wide))


def _in_words(lanes: _Lanes, places: Sequence[tuple[int, int, int]], values: Codes) -> Iterator[Codes]:
    """Units with each value in each place, with zeros and ordinary values in all others, and in all places at once."""
    for number, register in enumerate(places):
        rows = _backgrounds(lanes, len(values), 3000 + number)
        for codes in rows[::2] if len(lanes.single) * len(lanes.formats) > register[1] else rows[:1]:
            units = lanes.units(codes)
            _put(units, register, values)
            yield units
    if len(places) > 1:
        units = lanes.units(_backgrounds(lanes, len(values), 4000)[2])
        for register in places:
            _put(units, register, values)
        yield units


def _in_two_words(lanes: _Lanes, values: Codes) -> Iterator[Codes]:
    """Units with every pair of values in every two registers, with all others zero."""
    two = list(itertools.combinations(lanes.words, 2))
    values = values[: max(3, int((_TWO_WORDS / (max(1, len(two)) * lanes.pack)) ** 0.5))]
    one, other = (g.reshape(-1) for g in np.meshgrid(values, values, indexing="ij"))
    for first, second in two:
        units = lanes.units(np.zeros((len(one), len(lanes.single)), dtype=np.int64))
        _put(units, first, one)
        _put(units, second, other)
        yield units


def _put(units: Codes, place: tuple[int, int, int], values: Codes) -> None:
    first, count, bits = place
    for k in range(count):
        units[:, first + k] = (values >> (k * bits)) & _mask(bits)


# ---- From the numbers of the asm -------------------------------------------------------------------------------------


def _numbers_in_lanes(lanes: _Lanes, numbers: Sequence[Number]) -> Codes:
    """Each number, and the next ones, in each lane, with all others zero, one and ordinary; and in all lanes."""
    made = [np.zeros((0, len(lanes.single)), dtype=np.int64)]
    beside = {f: _lane_numbers(f, numbers) for f in lanes.single}
    for lane, fmt in enumerate(lanes.single):
        for rows in _backgrounds(lanes, len(beside[fmt]), 5000 + lane):
            changed = rows.copy()
            changed[:, lane] = beside[fmt]
            made.append(changed)
    for group in _same_formats(lanes):
        changed = _backgrounds(lanes, len(beside[lanes.single[group[0]]]), 6000)[2].copy()
        changed[:, group] = beside[lanes.single[group[0]]][:, None]
        made.append(changed)
    return np.concatenate(made)


def _numbers_beside(lanes: _Lanes, numbers: Sequence[Number]) -> Codes:
    """Two numbers, or a number and one of the few values, in every two lanes and in patterns of lanes.

    The other lanes are zero or ordinary where two lanes are chosen; those of other inputs are ordinary in a pattern.
    """
    beside = {
        f: np.concatenate(
            [_as_codes([n & _bits(f) for n in _plain_numbers(f, numbers)]), _lane_numbers(f, numbers)]
        ).tolist()
        for f in lanes.single
    }
    made = [np.zeros((0, len(lanes.single)), dtype=np.int64)]
    two = list(itertools.combinations(range(len(lanes.single)), 2))
    room = max(2, int((_TWO_NUMBERS // lanes.pack / max(1, 2 * len(two))) ** 0.5))
    for number, (i, j) in enumerate(two):
        columns = [_mixed(beside[f], _few(f), room) for f in (lanes.single[i], lanes.single[j])]
        one, other = (grid.reshape(-1) for grid in np.meshgrid(*columns, indexing="ij"))
        for rows in _backgrounds(lanes, one.size, 8000 + number)[::2]:
            changed = rows.copy()
            changed[:, i], changed[:, j] = one, other
            made.append(changed)
    for group in _same_formats(lanes):
        fmt = lanes.single[group[0]]
        masks = _patterns(len(group))
        room = max(4, int((_TWO_NUMBERS // lanes.pack / (len(masks) * len(lanes.formats))) ** 0.5))
        values = _mixed(beside[fmt], _few(fmt), room)
        pairs = np.array([(a, b) for a in values for b in values if a != b], dtype=np.int64)
        rows = np.where(masks[:, None, :], pairs[None, :, :1], pairs[None, :, 1:]).reshape(-1, len(group))
        changed = _backgrounds(lanes, len(rows), 9000)[2].copy()
        changed[:, group] = rows
        made.append(changed)
    return np.concatenate(made)


def _related_lanes(lanes: _Lanes, numbers: Sequence[Number]) -> Codes:
    """Two lanes of one format that a number relates, for every two lanes, with all others ordinary. Of lanes of a byte
    only products: the other relations hold of so many pairs that some stand in every two lanes by chance."""
    two = [
        (i, j) for i, j in itertools.combinations(range(len(lanes.single)), 2) if lanes.single[i] == lanes.single[j]
    ]  # fmt: skip
    made = [np.zeros((0, len(lanes.single)), dtype=np.int64)]
    room = max(_LEAST_RELATED, _RELATIONS // lanes.pack // max(1, len(two)))
    pairs = {f: _pairs(f, numbers) for f in {lanes.single[i] for i, _ in two}}
    for number, (i, j) in enumerate(two):
        one, other = pairs[lanes.single[i]]
        some = np.random.default_rng([_SEED, number]).permutation(len(one))[:room]
        changed = _backgrounds(lanes, len(some), 10_000 + number)[2].copy()
        changed[:, i], changed[:, j] = one[some], other[some]
        made.append(changed)
    return np.concatenate(made)


def _related_words(lanes: _Lanes, numbers: Sequence[Number]) -> Iterator[Codes]:
    """Units in which a number relates two registers that hold several lanes each, with all others ordinary."""
    two = list(itertools.combinations(lanes.words, 2)) if lanes.words and lanes.words[0][1] > 1 else []
    if not two or lanes.words[0][1] * lanes.words[0][2] != REGISTER:
        return
    room = max(_LEAST_RELATED, _RELATIONS // lanes.pack // len(two))
    one, other = _pairs(U32, numbers)
    largest = sorted((n for n in numbers if isinstance(n, int)), key=lambda n: -n.bit_length())[:_MADE]
    steps = list(pairs_of(U32, U32, largest, np.random.default_rng(_SEED)))
    made = [_as_codes([pair[k] for pair in steps]) for k in (0, 1)]
    for number, (first, second) in enumerate(two):
        some = np.random.default_rng([_SEED, number]).permutation(len(one))[:room]
        left, right = np.concatenate([one[some], made[0]]), np.concatenate([other[some], made[1]])
        units = lanes.units(_backgrounds(lanes, len(left), 11_000 + number)[2])
        _put(units, first, left)
        _put(units, second, right)
        yield units


def _pairs(fmt: Format, numbers: Sequence[Number]) -> tuple[Codes, Codes]:
    """Codes of one format, side by side, that a number of the code relates (`relations`); in both orders."""
    rng = np.random.default_rng(_SEED)
    if fmt.code_bits <= 8:
        whole = [n for n in numbers if isinstance(n, int) and n <= fmt.code_mask**2][:_NUMBERS]
        factors = [(u, n // u) for n in whole for u in divisors(n) if n // u <= fmt.code_mask]
        made = [(_as_codes([u for u, _ in factors]), _as_codes([v for _, v in factors]))]
    else:
        plain = numbers_as_bits(fmt, numbers)
        made = [relations(fmt, plain, numbers, rng), simple_relations(fmt, plain, numbers)]
        if fmt.is_float and (pairs := list(pairs_of(fmt, fmt, numbers, rng))):
            made.append((_as_codes([a for a, _ in pairs]), _as_codes([b for _, b in pairs])))
    one, other = (np.concatenate([pair[k] for pair in made]) for k in (0, 1))
    return np.concatenate([one, other]), np.concatenate([other, one])


def _chains(lanes: _Lanes, numbers: Sequence[Number]) -> Codes:
    """Lanes of an input of which each is one step from the lane before: a sum, a difference, a product, an xor or a
    shift with a number; those of other inputs are ordinary."""
    made = [np.zeros((0, len(lanes.single)), dtype=np.int64)]
    for number, group in enumerate(_same_formats(lanes)[: len(lanes.formats)]):
        fmt = lanes.single[group[0]]
        steps = list(dict.fromkeys([*(n for n in _plain_numbers(fmt, numbers) if n), 2, 3]))[:_NUMBERS]
        begins = [*_few(fmt)[:4].tolist(), *range(2, 5), *_ordinary(fmt)[:3].tolist()]
        rows = [_chain(begin, n, fmt, len(group), how) for n in steps for how in range(5) for begin in begins]
        changed = _backgrounds(lanes, len(rows), 12_000 + number)[2].copy()
        changed[:, group] = np.stack(rows)
        made.append(changed)
    return np.concatenate(made)


def _chain(begin: int, n: int, fmt: Format, count: int, how: int) -> Codes:
    codes, mask = [begin & _bits(fmt)], _bits(fmt)
    for _ in range(count - 1):
        x = codes[-1]
        codes.append((x + n, x - n, x * n, x ^ n, x << n % fmt.code_bits)[how] & mask)
    return _as_codes(codes)


def _mixed(numbers: Sequence[int], few: Codes, count: int) -> Codes:
    """At most `count` values: numbers first, then some of the few values, at least a third of the whole."""
    chosen = [*list(dict.fromkeys(numbers))[: count - count // 3], *few[:count].tolist(), *numbers]
    return np.array(list(dict.fromkeys(chosen))[:count], dtype=np.int64)


def _lane_numbers(fmt: Format, numbers: Sequence[Number]) -> Codes:
    """The numbers as codes of one lane, cut into parts of its width, with the next ones and the negations."""
    near = [v for n in _plain_numbers(fmt, numbers) for v in (n, n + 1, n - 1, -n, ~n)]
    kept = dict.fromkeys(n & _bits(fmt) for n in near)
    return _as_codes(list(kept)[: 5 * _NUMBERS])


def _plain_numbers(fmt: Format, numbers: Sequence[Number]) -> list[int]:
    """The numbers as codes of one lane, and those that are wider cut into parts of its width."""
    whole = numbers_as_bits(fmt, numbers)[:_NUMBERS]
    integers = [n for n in numbers if isinstance(n, int)][:_NUMBERS]
    parts = [n >> shift for n in integers for shift in range(0, 64, fmt.code_bits) if n >> shift]
    return list(dict.fromkeys([*whole, *parts]))


def _numbers_in_words(lanes: _Lanes, numbers: Sequence[Number]) -> Iterator[Codes]:
    """The numbers as words, and the words that a step turns into a number."""
    for places, fmt in ((lanes.words, U32), (lanes.pairs_of_words, U64)):
        if not places:
            continue
        bits = places[0][1] * places[0][2]
        fmt = U16 if bits <= 16 else fmt
        plain = numbers_as_bits(fmt, numbers)[:_NUMBERS]
        near = [v for n in plain for v in near_numbers(n, fmt.unit_bits)]
        values = _as_codes(list(dict.fromkeys([*near, *_masked(plain, numbers, fmt.unit_bits)])))
        yield from _in_words(lanes, places, values)
        if fmt is not U64:
            # The first numbers have most bits; zero and the others are among the words of the formats.
            yield from _in_two_words(lanes, _as_codes([*plain[:4], 0, -1, *plain[4:8]]))
        yield from _solved_words(lanes, places, units_beside(fmt, numbers, repeated=False))


def _solved_words(lanes: _Lanes, places: Sequence[tuple[int, int, int]], words: Codes) -> Iterator[Codes]:
    """Units with a word in every place in turn, with ordinary values in all others, and in all of them."""
    ordinary = lanes.units(_backgrounds(lanes, len(words), 7000)[2])
    for register in places:
        units = ordinary.copy()
        _put(units, register, words)
        yield units
    if len(places) > 1:
        for register in places:
            _put(ordinary, register, words)
        yield ordinary


def _masked(plain: Sequence[int], numbers: Sequence[Number], width: int) -> Iterator[int]:
    """Words of which the bits under a mask of the code are all zero, all one, or a number; the others zero, one or
    ordinary. Masks are the numbers, and fields between two small numbers, as `bfe` has them."""
    small = list(dict.fromkeys(n for n in numbers if isinstance(n, int) and 0 < n <= width))[:6]
    fields = [((1 << size) - 1) << first for size in small for first in (0, *small) if first + size <= width]
    rest = [0, (1 << width) - 1, *(int(v) & (1 << width) - 1 for v in _ordinary(U64)[:4])]
    values = [0, (1 << width) - 1, *plain[:8]]
    for mask in dict.fromkeys([*plain[:12], *fields[:12]]):
        lowest = (mask & -mask).bit_length() - 1
        for other in rest:
            for value in values:
                yield other & ~mask | value & mask
                if lowest > 0:
                    yield other & ~mask | value << lowest & mask


def _as_codes(values: Sequence[int]) -> Codes:
    return np.array([_signed64(v & (1 << 64) - 1) for v in values], dtype=np.int64)


def _bits(fmt: Format) -> int:
    return (1 << fmt.code_bits) - 1


def _mask(bits: int) -> int:
    return -1 if bits >= 64 else (1 << bits) - 1


def _signed64(code: int) -> int:
    return code - (1 << 64) if code >> 63 else code
