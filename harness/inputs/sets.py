"""The input sets of a case. Storage arrays are made in chunks, so that even 2^32 inputs need little memory."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.constants import constant_inputs
from ptxdiff.inputs.edges import edge_units, product
from ptxdiff.inputs.generated import Counted, CountedTuples, Generator, Stratified
from ptxdiff.inputs.intermediate import intermediate_inputs
from ptxdiff.inputs.outputs import output_inputs
from ptxdiff.inputs.patterns import combinations, neighbour_inputs, pattern_inputs, special_units
from ptxdiff.inputs.rounding import rounding_inputs, sticky_inputs
from ptxdiff.inputs.through import through_inputs
from ptxdiff.inputs.ties import tie_codes
from ptxdiff.inputs.together import made_together
from ptxdiff.inputs.words import constant_pairs, constant_relations, constant_words, word_inputs
from ptxdiff.model.arguments import format_of, units_of_hard_cases, values_of
from ptxdiff.model.case import Case
from ptxdiff.model.constants import built_constants_of, constants_of
from ptxdiff.model.match import Domain, read_only
from ptxdiff.model.variants import Variant
from ptxdiff.references.formats import BF16, F16, F32, Format

Codes = NDArray[np.int64]
Units = Mapping[str, NDArray[np.generic]]

EFFORTS = ("quick", "full", "exhaustive")

# By effort: rows of an edge product, tie codes of one input, random inputs, and the most input bits that run
# exhaustively.
_EDGE_ROWS = {"quick": 20_000, "full": 200_000, "exhaustive": 200_000}
_TIE_CODES = {"quick": 6_000, "full": 60_000, "exhaustive": 60_000}
_RANDOM = {"quick": 16_384, "full": 1 << 20, "exhaustive": 1 << 20}
_ALL_BITS = {"quick": 16, "full": 24, "exhaustive": 32}

CHUNK = 1 << 20

_WORDS_SEED = 0
"""The seed of the sets of tuples."""
_THRESHOLD_ROWS = 768
"""Inputs beside the reference's thresholds that fill whole tuples."""


@dataclass(frozen=True)
class InputSet:
    """A named, versioned list of inputs for a case.

    name: as keys write it, `edges/1`; `edges-full/1` at full and exhaustive effort. count: how many inputs there are.
    seed: the seed of the random choices. generator: makes any input from its number, for sets made that way, so that a
    GPU can make its own. first: the generator's number of the first input. group: how many inputs in a row belong
    together, because one invocation of the asm reads them; `count` is a multiple.
    """

    name: str
    count: int
    seed: int
    _slice: Callable[[int, int], dict[str, NDArray[np.generic]]]
    generator: Generator | None = None
    first: int = 0
    group: int = 1

    def take(self, first: int, count: int) -> dict[str, NDArray[np.generic]]:
        """Inputs `first` to `first + count`, as far as the set has them: one-dimensional storage arrays by input
        name."""
        return self._slice(first, min(first + count, self.count))

    def all(self) -> dict[str, NDArray[np.generic]]:
        """Every input at once."""
        return self.take(0, self.count)

    def pick(self, numbers: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
        """The inputs with the given numbers, in the shape of `numbers`."""
        if self.generator is None:
            return {n: u[numbers] for n, u in self.all().items()}
        return _generated(self.generator, numbers + self.first)

    def chunks(self, size: int = CHUNK) -> Iterator[dict[str, NDArray[np.generic]]]:
        """The inputs in order, at most `size` at a time."""
        for first in range(0, self.count, size):
            yield self.take(first, size)


def seed_of(set_name: str) -> int:
    """The seed of a set: a hash of its own name. A case's name is not in it, so that no verdict depends on one."""
    return int.from_bytes(hashlib.sha256(set_name.encode()).digest()[:6], "big")


def input_sets(case: Case, effort: str) -> list[InputSet]:
    """The non-empty sets on which an elementwise case runs at an effort.

    If all inputs are within the effort's bound, the sets are `exhaustive` and the case's own hard cases (and the edges,
    if `exhaustive` is too large to run in more than one shape).
    """
    if effort not in EFFORTS:
        raise ValueError(f"no effort is called {effort!r}; one of {', '.join(EFFORTS)}")
    return list(_input_sets(case, effort))


def constant_sets(case: Case, effort: str, variant: Variant) -> list[InputSet]:
    """The non-empty sets `constants/3` and `together/4` of one variant; none where all inputs run.

    These sets depend on the variant's code, because their numbers come from there. In `together/4` two inputs make a
    number, by a product, a shift or another step, or each of several inputs has one. `constants-built/1` and
    `together-built/1` are the same for numbers that the asm builds at run time; they are sets of their own, so that
    many such numbers take no place of those in the text.
    """
    return _constants_cached(CaseRef(case), CaseRef(variant), _runs_all(case, effort))


@functools.lru_cache(maxsize=32)
def _constants_cached(case_ref: CaseRef, variant_ref: CaseRef, everything: bool) -> list[InputSet]:
    case: Case = case_ref.of
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    if everything or not formats:
        return []
    written = constants_of(variant_ref.of)
    both = _with_built(case_ref, variant_ref, _BUILT)
    made = []
    for name, columns_of, numbers in (
        ("constants/3", constant_inputs, written),
        ("together/4", made_together, written),
        *((("constants-built/1", constant_inputs, both), ("together-built/1", made_together, both)) if both else ()),
    ):
        seed = seed_of(name)
        columns = columns_of(formats, numbers, np.random.default_rng(seed))
        made.append(_listed(name, seed, formats, columns, case.domain))
    return [s for s in made if s.count]


_BUILT, _BUILT_IN_WORDS = 48, 24
"""Numbers that the asm builds, with those in its text: of elements, and of words of packs. Of more the last ones count,
which in a long loop are those of the last rounds."""


def _with_built(case_ref: CaseRef, variant_ref: CaseRef, most: int) -> tuple[int | float, ...]:
    """The numbers that the asm builds, and those in its text, as many as there is room for; none if it builds none."""
    built = _built_cached(case_ref, variant_ref)
    return tuple(dict.fromkeys([*built[-most:], *constants_of(variant_ref.of)]))[:most] if built else ()


@functools.lru_cache(maxsize=64)
def _built_cached(case_ref: CaseRef, variant_ref: CaseRef) -> tuple[int | float, ...]:
    return built_constants_of(case_ref.of, variant_ref.of)


def word_sets(case: Case, effort: str, variant: Variant, pack: int) -> list[InputSet]:
    """The sets whose inputs are what one invocation reads at a pack: tuples of `pack` inputs.

    `all-words-4/1` has all tuples, if they have at most as many bits as run exhaustively. Else there are `words-4/1`,
    made from the formats and the reference's thresholds, and `constants-4/2`, `constants-pairs-4/2` and
    `constants-relations-4/2`, made from the numbers in the variant's code; `constants-built-4/1` and so on, from those
    that its asm builds. None where an invocation reads a single code.
    """
    if runs_all_words(case, effort, pack):
        return [all_words(case, pack)]
    of_code = [
        _constant_words(CaseRef(case), CaseRef(variant), pack, part, built)
        for built in ((False, True) if _built_cached(CaseRef(case), CaseRef(variant)) else (False,))
        for part in _OF_CODE
    ]
    made = [_words(CaseRef(case), effort, pack), *of_code]
    return [s for s in made if s.count]


def has_tuples(name: str) -> bool:
    """Whether a set of this name is one of `word_sets`."""
    return bool(_TUPLES.match(name))


_TUPLES = re.compile(r"(all-words|words|constants(-built)?(-pairs|-relations)?)-\d+(-full)?/")


def tuple_bits(case: Case, pack: int) -> int:
    """How many bits an invocation reads at a pack."""
    return pack * sum(format_of(a).unit_bits for a in case.inputs.values())


def runs_all_words(case: Case, effort: str, pack: int) -> bool:
    """Whether all tuples of a pack run at an effort. At quick effort never: all that matter are in a smaller set."""
    most = {"quick": 0, "full": 16, "exhaustive": 32}[effort]
    return pack > 1 and 0 < tuple_bits(case, pack) <= most and case.domain is None


def all_words(case: Case, pack: int) -> InputSet:
    """Every tuple of a pack, counted up: the first element's bits vary fastest, as those of a register."""
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    generator = CountedTuples(formats, pack)
    made = generated_set(f"all-words-{pack}/1", pack << tuple_bits(case, pack), 0, generator)
    return replace(made, group=pack)


@functools.lru_cache(maxsize=64)
def _words(case_ref: CaseRef, effort: str, pack: int) -> InputSet:
    case: Case = case_ref.of
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    inside = functools.partial(within, case.domain, formats)
    columns = word_inputs(formats, pack, effort, _thresholds(case_ref), None if case.domain is None else inside)
    return _tuples(f"words-{pack}{'' if effort == 'quick' else '-full'}/1", formats, columns, pack)


_OF_CODE = {"": constant_words, "-pairs": constant_pairs, "-relations": constant_relations}


@functools.lru_cache(maxsize=64)
def _constant_words(case_ref: CaseRef, variant_ref: CaseRef, pack: int, part: str, built: bool) -> InputSet:
    case: Case = case_ref.of
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    inside = functools.partial(within, case.domain, formats)
    numbers = _with_built(case_ref, variant_ref, _BUILT_IN_WORDS) if built else constants_of(variant_ref.of)
    columns = _OF_CODE[part](formats, pack, numbers, None if case.domain is None else inside)
    name = f"constants-built{part}-{pack}/1" if built else f"constants{part}-{pack}/2"
    return _tuples(name, formats, columns, pack)


@functools.lru_cache(maxsize=32)
def _thresholds(case_ref: CaseRef) -> list[Codes]:
    """Some inputs at both sides of the reference's thresholds, the same for every name of the case."""
    case: Case = case_ref.of
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    if sum(f.unit_bits for f in formats.values()) <= 8:  # all codes are edges
        return [np.zeros(0, dtype=np.int64) for _ in formats]
    inside = functools.partial(within, case.domain, formats)
    columns = output_inputs(case, formats, "quick", np.random.default_rng(_WORDS_SEED), inside)
    chosen = np.unique(np.linspace(0, max(0, len(columns[0]) - 1), _THRESHOLD_ROWS).astype(np.int64))
    return [c[chosen] if len(c) else c for c in columns]


def _tuples(name: str, formats: Mapping[str, Format], columns: Sequence[Codes], pack: int) -> InputSet:
    return replace(_listed(name, _WORDS_SEED, formats, columns, None), group=pack)


def _runs_all(case: Case, effort: str) -> bool:
    """Whether every input runs at an effort."""
    bits = sum(format_of(a).unit_bits for a in case.inputs.values())
    return bits <= _ALL_BITS[effort] and case.domain is None


@functools.lru_cache(maxsize=32)
def _cached(case_ref: CaseRef, effort: str) -> tuple[InputSet, ...]:
    return tuple(_make(case_ref.of, effort))


@dataclass(frozen=True, eq=False)
class CaseRef:
    """Makes a case or a variant, which hold mappings, usable in a cache key, by object identity."""

    of: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CaseRef) and other.of is self.of

    def __hash__(self) -> int:
        return id(self.of)


def _input_sets(case: Case, effort: str) -> tuple[InputSet, ...]:
    return _cached(CaseRef(case), effort)


def _make(case: Case, effort: str) -> Iterator[InputSet]:
    formats = {name: format_of(a) for name, a in case.inputs.items()}
    bits = sum(f.unit_bits for f in formats.values())
    results = [format_of(a) for a in case.outputs.values()]
    inside = functools.partial(within, case.domain, formats)
    references = [case.reference, *(v.reference for v in case.variants.values() if v.reference is not None)]

    def ties(rng: np.random.Generator) -> Callable[[], list[Codes]]:
        return functools.partial(_ties_of_products, formats, results, rng)

    # A name means the same inputs everywhere, so a set that is larger at a higher effort needs another name.
    size = "" if effort == "quick" else "-full"
    builders: list[tuple[str, Callable[[np.random.Generator], list[Codes]]]] = [
        ("hard/1", lambda rng: _hard(case, formats)),
    ]
    if _runs_all(case, effort):
        yield exhaustive(formats, bits)
        if bits > 20:  # too many to run in every shape, so the edges run in the other shapes
            builders.append(_edge_builder(formats, effort, size))
    else:
        builders += [
            _edge_builder(formats, effort, size),
            ("specials/1", lambda rng: _specials(formats, effort, rng)),
            (f"ties{size}/1", lambda rng: _ties(case, formats, effort, rng)),
            (f"outputs{size}/1", lambda rng: output_inputs(case, formats, effort, rng, inside)),
            (f"rounding{size}/1", lambda rng: rounding_inputs(formats, results, effort, rng)),
            (
                f"intermediate{size}/1",
                lambda rng: intermediate_inputs(case, references, formats, effort, rng, inside, ties(rng)),
            ),
            (f"through{size}/1", lambda rng: through_inputs(case, formats, effort, rng, inside, ties(rng))),
            (f"sticky{size}/2", lambda rng: sticky_inputs(formats, results, effort, rng)),
            ("patterns/1", lambda rng: pattern_inputs(formats, rng)),
            (f"random{size}/1", lambda rng: [_random(f, _RANDOM[effort], rng) for f in formats.values()]),
        ]
    domain = None if case.domain is None else inside
    builders.append(("neighbours/1", lambda rng: neighbour_inputs(formats, rng, domain)))
    for name, build in builders:
        seed = seed_of(name)
        made = _listed(name, seed, formats, build(np.random.default_rng(seed)), case.domain)
        if made.count:
            yield made


def _edge_builder(
    formats: Mapping[str, Format], effort: str, size: str
) -> tuple[str, Callable[[np.random.Generator], list[Codes]]]:
    columns = [edge_units(f) for f in formats.values()]
    return f"edges{size}/1", lambda rng: product(columns, _EDGE_ROWS[effort], rng)


def _specials(formats: Mapping[str, Format], effort: str, rng: np.random.Generator) -> list[Codes]:
    """Combinations of few values, where the edges are a sample of theirs; else none."""
    edges = np.prod([len(edge_units(f)) for f in formats.values()], dtype=object)
    if len(formats) < 2 or edges <= _EDGE_ROWS[effort]:
        return [np.zeros(0, dtype=np.int64)] * len(formats)
    return combinations([special_units(f) for f in formats.values()], rng)


def named_set(case: Case, effort: str, name: str) -> InputSet:
    """One set by its name. Raises KeyError with the names of the existing sets."""
    by_name = {s.name: s for s in input_sets(case, effort)}
    if name not in by_name:
        raise KeyError(f"the case has no input set {name!r} at effort {effort}; it has {', '.join(by_name)}")
    return by_name[name]


def _listed(
    name: str, seed: int, formats: Mapping[str, Format], columns: Sequence[Codes], where: Domain | None
) -> InputSet:
    if not formats:
        return InputSet(name, int(name.startswith("edges")), seed, lambda first, last: {})
    units = {n: c.astype(f.numpy_dtype()) for (n, f), c in zip(formats.items(), columns, strict=True)}
    if where is not None and len(columns[0]):
        keep = within(where, formats, units)
        units = {n: u[keep] for n, u in units.items()}
    count = len(next(iter(units.values())))
    units = {n: read_only(u) for n, u in units.items()}
    return InputSet(name, count, seed, lambda first, last: {n: u[first:last] for n, u in units.items()})


def within(where: Domain | None, formats: Mapping[str, Format], units: Units) -> NDArray[np.bool_]:
    """Which rows of storage units lie in a domain; a unit of several codes only if all of them do."""
    count = len(next(iter(units.values())))
    if where is None:
        return np.ones(count, dtype=bool)
    holds = where.holds({n: values_of(f, units[n]) for n, f in formats.items()})
    return np.asarray(holds.reshape(count, -1).all(axis=1))


def exhaustive(formats: Mapping[str, Format], bits: int) -> InputSet:
    """Every input, counted up: the last input's bits vary fastest."""
    return generated_set("exhaustive/1", 1 << bits, 0, Counted(formats))


def stratified(case: Case, count: int) -> InputSet:
    """`count` random inputs, each computed from its number: for sweeps of input spaces that are too large to try
    completely."""
    name = f"stratified-{count.bit_length() - 1}/1"
    seed = seed_of(name)
    return generated_set(name, count, seed, Stratified({n: format_of(a) for n, a in case.inputs.items()}, seed))


def generated_set(name: str, count: int, seed: int, generator: Generator, offset: int = 0) -> InputSet:
    """The `count` inputs that a generator makes from the numbers `offset` and up."""

    def cut(first: int, last: int) -> dict[str, NDArray[np.generic]]:
        return _generated(generator, np.arange(offset + first, offset + last, dtype=np.int64))

    return InputSet(name, count, seed, cut, generator, offset)


def _generated(generator: Generator, numbers: NDArray[np.int64]) -> dict[str, NDArray[np.generic]]:
    return {n: generator.units(n, numbers).astype(f.numpy_dtype()) for n, f in generator.formats.items()}


def _ties_of_products(
    formats: Mapping[str, Format], results: Sequence[Format], rng: np.random.Generator
) -> list[Codes]:
    """Codes of products, quotients and sums that tie, in the formats in which they may be computed."""
    alone = all(f.codes_per_unit == 1 for f in formats.values())
    return rounding_inputs(formats, [*results, F32, F16, BF16], "quick", rng) if alone else []


def _hard(case: Case, formats: Mapping[str, Format]) -> list[Codes]:
    columns = list(zip(*case.hard_cases, strict=True)) or [()] * len(formats)
    return [units_of_hard_cases(f, column) for f, column in zip(formats.values(), columns, strict=True)]


def _ties(case: Case, formats: Mapping[str, Format], effort: str, rng: np.random.Generator) -> list[Codes]:
    """The ties of each input in turn, with the other inputs at their own ties or at random edges."""
    results = [format_of(a) for a in case.outputs.values()]
    ties = {n: _tie_units(f, results, _TIE_CODES[effort]) for n, f in formats.items()}
    rows: list[list[Codes]] = []
    for name, column in ties.items():
        if not len(column):
            continue
        others = {n: np.concatenate([ties[n], edge_units(f)]) for n, f in formats.items()}
        rows.append([column if n == name else rng.choice(others[n], len(column)) for n in formats])
    if not rows:
        return [np.zeros(0, dtype=np.int64)] * len(formats)
    return [np.concatenate([row[k] for row in rows]) for k in range(len(formats))]


def _tie_units(fmt: Format, results: Sequence[Format], cap: int) -> Codes:
    codes = [tie_codes(fmt, result, cap) for result in results]
    merged = np.unique(np.concatenate(codes))
    if fmt.codes_per_unit == 1 or not len(merged):
        return merged
    slots = [np.roll(merged, k) << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)]
    units: Codes = np.bitwise_or.reduce(slots)
    return units


def _random(fmt: Format, count: int, rng: np.random.Generator) -> Codes:
    """Random units: half are uniform bits; for floats the others are near one, subnormal or edges."""
    uniform = rng.integers(0, 1 << min(fmt.unit_bits, 63), count, dtype=np.int64)
    if fmt.unit_bits == 64:
        uniform |= rng.integers(0, 2, count, dtype=np.int64) << 63
    if not fmt.is_float or fmt.codes_per_unit > 1 or fmt.code_bits <= 8:
        return uniform
    kind = rng.random(count)
    fraction_bits = fmt.mantissa_bits + fmt.ignored_bits
    sign_and_fraction = uniform & ~(((1 << fmt.exponent_bits) - 1) << fraction_bits)
    near_one = rng.integers(fmt.bias - 12, fmt.bias + 13, count, dtype=np.int64) << fraction_bits
    result = np.where(kind < 0.3, sign_and_fraction | near_one, uniform)
    result = np.where((kind >= 0.3) & (kind < 0.4), sign_and_fraction, result)
    edges = rng.choice(edge_units(fmt), count)
    return np.where((kind >= 0.4) & (kind < 0.5), edges, result)


def stream(fmt: Format, what: str, set_name: str, size: int) -> NDArray[np.generic]:
    """`size` units of one tensor of a whole kernel: its format's edges shuffled and repeated, or random bits.

    what: for what they are, so that two tensors of a kernel have different ones.
    """
    rng = np.random.default_rng(seed_of(f"{what}/{set_name}"))
    if set_name.startswith("edges"):
        units = np.resize(rng.permutation(edge_units(fmt)), size)
    else:
        units = _random(fmt, size, rng)
    return units.astype(fmt.numpy_dtype())
