"""The input sets of whole kernels, a table with one row for each kind: a new kind is its functions and its row.

Beside them a kernel runs on what the case generates (`generated/1`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import edge_codes
from ptxdiff.inputs.sets import CaseRef, seed_of, stream
from ptxdiff.inputs.ties import nearest_below, tie_codes
from ptxdiff.model.arguments import Argument, codes_of, format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import read_only
from ptxdiff.model.reference import ReferenceFault, apply_reference
from ptxdiff.references.formats import E2M1, E4M3, Format, Shaped, encode, fraction, is_nan, magnitude, pack

# ---- Inputs that hold few numbers ------------------------------------------------------------------------------------
#
# A scalar has one number a run, so it would meet hardly any edge. A set `few/k` gives each such input the k-th of the
# numbers that matter most, or random ones near one, whose sums and products have to be rounded. The other inputs are
# random. Kernels that work on many elements are left out: each set is another run of all of them.


FEW = 16
"""Elements below which an input holds few."""
MOST = 4096
"""Elements of all inputs and outputs beyond which a kernel is left out."""
_EDGES, _RANDOM = 8, 8
"""Sets of numbers that matter, and of random ones: those have to tell of a single element how it is rounded."""


def _numbers(fmt: Format) -> list[int]:
    """Codes of both zeros, one and minus one, the ends of the finite numbers, infinity and NaN, as far as there are."""
    codes = [0, 1 << fmt.sign_shift, encode(fmt, 1.0), encode(fmt, -1.0), fmt.min_positive, fmt.max_finite]
    codes += [code for code in (fmt.infinity_code, fmt.canonical_nan) if code is not None]
    return codes


NAMES = tuple(f"few/{k}" for k in range(1, _EDGES + _RANDOM + 1))
"""All sets, those of edges first."""


def _size(argument: Argument, sizes: Mapping[str, int]) -> int:
    return int(np.prod(argument.shape(sizes))) if isinstance(argument, Shaped) else 1


def _suits(argument: Argument, sizes: Mapping[str, int]) -> bool:
    fmt = format_of(argument)
    wide = fmt.is_float and fmt.has_sign and fmt.code_bits > 8 and fmt.codes_per_unit == 1
    return wide and _size(argument, sizes) < FEW


def total(case: Case, sizes: Mapping[str, int]) -> int:
    """The elements of all inputs and outputs of a whole kernel."""
    return sum(_size(a, sizes) for a in (*case.inputs.values(), *case.outputs.values()))


def few_sets(case: Case, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The sets that a whole kernel is run on for its inputs of few elements; none where it has none."""
    return NAMES if total(case, sizes) <= MOST and any(_suits(a, sizes) for a in case.inputs.values()) else ()


def few_units(case: Case, name: str, set_name: str, sizes: Mapping[str, int], seed: int) -> NDArray[np.generic] | None:
    """Units of one input in a set of `NAMES`, in one dimension; None where it has many, which are random as elsewhere.

    seed: of random numbers. Two inputs of few elements take different numbers in the same set.
    """
    if not _suits(case.inputs[name], sizes):
        return None
    fmt = format_of(case.inputs[name])
    codes, number = _numbers(fmt), NAMES.index(set_name)
    size = _size(case.inputs[name], sizes)
    if number >= _EDGES:
        rng = np.random.default_rng(seed)
        return _of_binades(fmt, rng.integers(fmt.bias - 2, fmt.bias + 2, size), rng, ignored=True)
    index = list(case.inputs).index(name)
    turned = np.roll(np.array(codes, dtype=np.uint64), -number - 3 * index)
    return np.resize(turned, size).astype(fmt.numpy_dtype())


# Inputs of whole kernels whose numbers are of one size -------------------------------------------------------------
#
# Near one, or near the ends of what the outputs can hold.
#
# Random bits are spread over all binades, so that beside the largest number of a block the others round to zero, and
# few reach the subnormal numbers of a narrow output. A kernel holds each element in a register of its own, and each of
# them has to meet every kind of number. Sets `near/k` are further runs, so large kernels are left out.

NEAR_MOST = 1024
"""Elements of all inputs and outputs beyond which a kernel is left out: its threads do each thing for several rows."""
_AROUND_ONE = (-5, 2)
"""Binades from one."""
_BELOW = 4
"""Binades below an output's smallest normal number."""
_TURNS = 2
"""Sets of each size of numbers. Near the ends, an element is below the smallest normal number in one of two."""

NEAR_NAMES = tuple(f"near/{k}" for k in range(1, 2 * _TURNS + 1))
"""All sets: those near one first, then those near the smallest normal number of an output."""


def suits(argument: Argument) -> bool:
    """Whether an input has numbers near one: a tensor of floats that are no bytes."""
    fmt = format_of(argument)
    wide = fmt.is_float and fmt.has_sign and fmt.code_bits > 8 and fmt.codes_per_unit == 1
    return wide and isinstance(argument, Shaped) and bool(argument.dims)


def near_sets(case: Case, sizes: Mapping[str, int]) -> Iterator[str]:
    """The sets that a whole kernel is run on; none for large ones, those near the ends for narrower outputs."""
    if total(case, sizes) <= NEAR_MOST and any(suits(a) for a in case.inputs.values()):
        yield from NEAR_NAMES[:_TURNS]
        if _narrow(case):
            yield from NEAR_NAMES[_TURNS:]


def _narrow(case: Case) -> list[Format]:
    """The outputs' signed float formats with fewer binades than an input's."""
    widest = max(format_of(a).exponent_bits for a in case.inputs.values() if suits(a))
    formats = [format_of(a).single for a in case.outputs.values()]
    return [f for f in formats if f.is_float and f.has_sign and 2 < f.exponent_bits < widest]


def near_units(case: Case, name: str, set_name: str, size: int, seed: int) -> NDArray[np.generic]:
    """`size` units of an input that `suits`, in one dimension. seed: of the random numbers."""
    fmt, rng, number = format_of(case.inputs[name]), np.random.default_rng(seed), NEAR_NAMES.index(set_name)
    ends = [f.min_exponent for f in _narrow(case)]
    fields = fmt.bias + rng.integers(*_AROUND_ONE, size)
    if number >= _TURNS:
        low = np.arange(size) % 2 == number % 2
        fields = fmt.bias + ends[(number // 2) % len(ends)] + np.where(low, -rng.integers(1, _BELOW + 1, size), 0)
    return _of_binades(fmt, np.maximum(fields, 0), rng)


def _of_binades(
    fmt: Format,
    fields: Codes,
    rng: np.random.Generator,
    negative: NDArray[np.bool_] | None = None,
    *,
    ignored: bool = False,
) -> NDArray[np.generic]:
    """Units of random numbers with these exponent fields.

    negative: which of them are; None: by chance. ignored: whether bits that the format ignores are random, not zero.
    """
    digits = fmt.mantissa_bits + fmt.ignored_bits
    units = fields.astype(np.uint64) << np.uint64(digits)
    units |= rng.integers(0, 1 << digits, len(fields)).astype(np.uint64)
    signs = rng.integers(0, 2, len(fields)) if negative is None else negative
    units |= signs.astype(np.uint64) << np.uint64(fmt.sign_shift)
    if not ignored:
        units &= np.uint64(fmt.code_mask ^ ((1 << fmt.ignored_bits) - 1))
    return units.astype(fmt.numpy_dtype())


# Inputs in which single elements stand out --------------------------------------------------------------------------
#
# An extreme of 32 random numbers is a given one of them once in 32 times, so a reduction that leaves out one element
# passes on few random rows. A set `extremes/k` gives every 32 consecutive elements one that is the largest, one that is
# the least and one that is the smallest, in places that move from group to group and from set to set: all 32 where a
# tensor has four groups or more. Smaller ones have two sets, because each set is another run. Only kernels whose
# reference has results of several elements have them.

LANES = 32
"""Elements of a group: those of a warp."""
_MOST_EXTREMES = 8

_FEW_EXTREMES = 2

EXTREMES = tuple(f"extremes/{k}" for k in range(1, _MOST_EXTREMES + 1))
"""All sets. A kernel has as many as move the places through a whole group, or few if these are not enough."""


def _has_extremes(argument: Argument) -> bool:
    fmt = format_of(argument)
    numbers = fmt.code_bits > 8 and fmt.codes_per_unit == 1 and (fmt.has_sign or not fmt.is_float)
    return numbers and isinstance(argument, Shaped) and bool(argument.dims)


def extreme_sets(case: Case, sizes: Sizes) -> tuple[str, ...]:
    """The sets that a whole kernel is run on; none for large ones, and for those that work element by element."""
    tensors = [_size(a, sizes) for a in case.inputs.values() if _has_extremes(a)]
    if not tensors or total(case, sizes) > NEAR_MOST or not _reduces(CaseRef(case), tuple(sizes.items())):
        return ()
    needed = -(-LANES // max(max(tensors) // LANES, 1))
    return EXTREMES[: needed if needed <= _MOST_EXTREMES else _FEW_EXTREMES]


def extreme_units(case: Case, name: str, set_name: str, size: int, seed: int) -> NDArray[np.generic]:
    """`size` units of an input with extremes, in one dimension. seed: of the random numbers."""
    fmt, rng, number = format_of(case.inputs[name]), np.random.default_rng(seed), EXTREMES.index(set_name)
    group, lane = np.divmod(np.arange(size), LANES)
    groups = max(size // LANES, 1)
    place = (number * groups + group + 5 * list(case.inputs).index(name)) % LANES
    kinds = [lane == (place + shift) % min(LANES, size) for shift in (0, 11, 21)]
    if not fmt.is_float:
        most = (1 << fmt.code_bits - 1) - 1
        codes = rng.integers(most // 8, most // 4, size)
        for kind, value in zip(kinds, (most - 3, -(most // 2), 1), strict=True):
            codes[kind] = value
        return (codes.view(np.uint64) & np.uint64(fmt.code_mask)).astype(fmt.numpy_dtype())
    fields = fmt.bias + rng.integers(-2, 2, size)
    negative = rng.integers(0, 2, size).astype(bool)
    for kind, binade, below in zip(kinds, (4, 3, -9), (False, True, None), strict=True):
        fields[kind] = fmt.bias + binade
        if below is not None:
            negative[kind] = below
    return _of_binades(fmt, fields, rng, negative)


@functools.lru_cache(maxsize=64)
def _reduces(case_ref: CaseRef, sizes: tuple[tuple[str, int], ...]) -> bool:
    """Whether some element of an input decides several results, or one in another place.

    Found by one element of each input, which is made large, negative and zero in turn among ordinary numbers.
    """
    from ptxdiff.inputs.fill import kernel_inputs  # which makes inputs from this module's table

    case: Case = case_ref.of
    shapes = dict(sizes)
    units = kernel_inputs(case, NEAR_NAMES[0], shapes)
    for name, argument in case.inputs.items():
        if name in case.domains or not _has_extremes(argument) or not units[name].size:
            continue
        at, answers = units[name].size // 2, []
        for value in (None, *_standing_out(format_of(argument))):
            changed = units[name].reshape(-1).copy()
            if value is not None:
                changed[at] = value
            codes = codes_of(case.inputs, {**units, name: changed.reshape(units[name].shape)})
            try:
                answers.append(apply_reference(case, case.reference, codes))
            except ReferenceFault:  # each run tells of it
                return False
        for other in answers[1:]:
            for output, before in answers[0].items():
                places = np.flatnonzero(before.reshape(-1) != other[output].reshape(-1))
                if len(places) > 1 or (len(places) and places[0] != at):
                    return True
    return False


def _standing_out(fmt: Format) -> NDArray[np.generic]:
    """The units of a large number, of its negative, and of zero."""
    large = encode(fmt, 64.0) if fmt.is_float else (1 << fmt.code_bits - 1) - 1
    negative = large | 1 << fmt.sign_shift if fmt.is_float else -large & fmt.code_mask
    return np.array([large, negative, 0], np.uint64).astype(fmt.numpy_dtype())


# Rows of one sign ---------------------------------------------------------------------------------------------------
#
# Random numbers are of both signs in nearly every row, and the largest is hardly ever the last. So a maximum that
# begins with zero, and one that leaves out the last column, agree with the right one. And words of equal elements do
# not occur, such as four bytes of zero. `rows/1`: each row negative and rising; `rows/2`: positive and falling;
# `rows/3`: runs of one value, of integers alone. Kernels of floats have the first two if their reference has results of
# several elements.

ROWS_NAMES = ("rows/1", "rows/2", "rows/3")
_RUN = 16
"""Equal elements side by side: as many as the largest pack has."""


def _has_integer_rows(argument: Argument) -> bool:
    fmt = format_of(argument)
    return isinstance(argument, Shaped) and bool(argument.dims) and not fmt.is_float and fmt.codes_per_unit == 1


def row_sets(case: Case, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The sets that a whole kernel is run on; none for large ones."""
    if total(case, sizes) > MOST:
        return ()
    if any(map(_has_integer_rows, case.inputs.values())):
        return ROWS_NAMES
    floats = any(map(suits, case.inputs.values()))
    return ROWS_NAMES[:2] if floats and _reduces(CaseRef(case), tuple(sizes.items())) else ()


def row_units(case: Case, name: str, set_name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.generic] | None:
    """Units of one input in a set of `ROWS_NAMES`; None where it has random bits.

    Runs of one value stand in one input, beside random bits in the others. seed: of the random numbers.
    """
    argument, rng, size = case.inputs[name], np.random.default_rng(seed), math.prod(shape)
    fmt, integers = format_of(argument), [n for n, a in case.inputs.items() if _has_integer_rows(a)]
    if name not in integers and not suits(argument):
        return None
    sign = 1 << fmt.sign_shift if fmt.is_float else 1 << fmt.code_bits - 1
    if set_name == ROWS_NAMES[2]:
        ones = fmt.code_mask
        first = (0, ones, sign, sign - 1, 1, *(c & ones for c in edge_codes(fmt)))
        values = np.array(list(dict.fromkeys(first)), np.uint64)
        return np.resize(np.repeat(values, _RUN), size).astype(fmt.numpy_dtype()) if name in integers[:1] else None
    # Of floats the codes of positive numbers rise with the numbers.
    low, high = (encode(fmt, 0.125), encode(fmt, 8.0)) if fmt.is_float else (1, sign - 1)
    rows = (size // shape[-1] if size else 0, shape[-1])
    falling = np.sort(rng.integers(low, high, rows, np.int64, endpoint=True), axis=1)[:, ::-1]
    if fmt.is_float:
        falling &= ~np.int64((1 << fmt.ignored_bits) - 1)
    negative = falling.astype(np.uint64) | np.uint64(sign) if fmt.is_float else (-falling).astype(np.uint64)
    codes = (negative if set_name == ROWS_NAMES[0] else falling.astype(np.uint64)) & np.uint64(fmt.code_mask)
    return codes.reshape(-1).astype(fmt.numpy_dtype())


# Rows at the ends of a format -----------------------------------------------------------------------------------------
#
# A maximum that begins with -1e30 for minus infinity, or with the largest negative number, is right unless all numbers
# of a row are less. `ends/1`: each row has the largest negative numbers, and the second one minus infinity alone;
# `ends/2`: the largest positive ones, and infinity. They stand in the tensor with most elements; the other tensors of
# floats have ordinary numbers, so that a product with them is no NaN. Only kernels whose reference has results of
# several elements have these sets.

ENDS = ("ends/1", "ends/2")
_LAST_BINADES = 2
"""Binades of floats below the largest number: 1e30 is far less in formats that hold it."""


def end_sets(case: Case, sizes: Sizes) -> tuple[str, ...]:
    """The sets that a whole kernel is run on, in one of its sizes: the first one with two rows that are reduced, or
    with one if there is no other. None for large ones, and for those that work element by element."""
    if not any(map(_has_ends, case.inputs.values())) or total(case, sizes) > MOST:
        return ()
    fitting = [s for s in case.sizes if 0 < total(case, s) <= MOST] or [sizes]
    two_rows_first = sorted(fitting, key=lambda s: _rows_at_ends(case, s) < 2)
    chosen = next((s for s in two_rows_first if _reduces(CaseRef(case), tuple(s.items()))), None)
    return ENDS if chosen is not None and dict(chosen) == dict(sizes) else ()


def _with_ends(case: Case, sizes: Sizes) -> str:
    """The input with most elements among those that can have ends."""
    return max((n for n, a in case.inputs.items() if _has_ends(a)), key=lambda n: _size(case.inputs[n], sizes))


def _rows_at_ends(case: Case, sizes: Sizes) -> int:
    argument = case.inputs[_with_ends(case, sizes)]
    shape = argument.shape(sizes) if isinstance(argument, Shaped) else ()
    return math.prod(shape[:-1])


def _has_ends(argument: Argument) -> bool:
    return suits(argument) or (_has_integer_rows(argument) and format_of(argument).code_bits > 8)


def end_units(case: Case, name: str, set_name: str, sizes: Sizes, seed: int) -> NDArray[np.generic] | None:
    """Units of one input in a set of `ENDS`, in one dimension; None where it has random bits. seed: of the random
    numbers."""
    argument, rng = case.inputs[name], np.random.default_rng(seed)
    if not _has_ends(argument):
        return None
    fmt, size = format_of(argument), _size(argument, sizes)
    negative = np.full(size, set_name == ENDS[0])
    if name != _with_ends(case, sizes):
        return _of_binades(fmt, fmt.bias + rng.integers(*_AROUND_ONE, size), rng, ~negative) if fmt.is_float else None
    columns = argument.shape(sizes)[-1] if isinstance(argument, Shaped) else size
    second = slice(columns, 2 * columns)
    if fmt.is_float:
        last = fmt.max_finite >> fmt.mantissa_bits + fmt.ignored_bits
        units = _of_binades(fmt, last - rng.integers(0, _LAST_BINADES, size), rng, negative).astype(np.uint64)
        sign = np.uint64(1 << fmt.sign_shift)
        units = np.minimum(units & ~sign, np.uint64(fmt.max_finite)) | units & sign
        end = fmt.max_finite if fmt.infinity_code is None else fmt.infinity_code
        units[second] = units[second] & sign | np.uint64(end)
    else:
        most = (1 << fmt.code_bits - 1) - 1
        units = np.uint64(most) - rng.integers(0, most >> 3, size).astype(np.uint64)
        units[second] = most
        if negative.any():  # of signed integers the least; of unsigned ones the other half
            units = ~units & np.uint64(fmt.code_mask)
    made: NDArray[np.generic] = units.astype(fmt.numpy_dtype())
    return made


# ---- Blocks, and the table of all kinds ------------------------------------------------------------------------------


# Inputs of kernels that work on blocks of values, such as quantisation with a scale for each block -----------------
#
# `blocks/1`.
#
# The rows of a tensor of floats are cut into runs: the first row into runs of 16, the second into runs of 32, the third
# is one run, and so on. The runs take the KINDS in turn, in an order that depends on the input's place among the
# inputs. Each size continues where the previous size stopped. So every kind occurs for each of the three lengths if the
# rows of all sizes together hold as many runs of that length as there are kinds. Kinds that a format cannot hold are
# omitted.
#
# The formats of the case define "tiny" and "large": a scale underflows near the smallest numbers of any of them.

Codes = NDArray[np.int64]

NAME = "blocks/1"
_CUTS = (16, 32, None)  # None: a whole row
_FACTORS = [Fraction(2) ** e for e in range(-3, 4)]  # a scale is the largest magnitude times a constant


@dataclass(frozen=True)
class _Runs:
    """Runs of one kind: the number of codes in each, the longest, and how often the kind occurred before each."""

    lengths: Codes
    width: int
    turns: Codes
    rng: np.random.Generator

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.lengths), self.width

    def places(self) -> tuple[Codes, Codes]:
        """A random place in each run, as an index."""
        column = (self.rng.random(len(self.lengths)) * self.lengths).astype(np.int64)
        return np.arange(len(self.lengths)), column

    def integers(self, low: int | Codes, high: int | Codes, each: bool = True) -> Codes:
        """Random integers from `low` up to `high`, both included: one for each code or for each run."""
        return self.rng.integers(low, high, self.shape if each else (len(self.lengths), 1), np.int64, endpoint=True)


@dataclass(frozen=True)
class _Maker:
    """Makes runs in one format.

    A size is a code without its sign and ignored bits; `binade` is the step between binades.
    """

    fmt: Format
    declared: tuple[Format, ...]
    name: str

    @property
    def binade(self) -> int:
        return 1 << self.fmt.mantissa_bits

    @property
    def top(self) -> int:
        return self.fmt.max_finite >> self.fmt.ignored_bits

    def size_below(self, value: Fraction) -> int:
        """The size of the largest finite value not above `value`, or of the smallest positive one."""
        smallest, largest = self.fmt.min_positive, self.fmt.max_finite
        if value <= fraction(self.fmt, smallest):
            code = smallest
        else:
            code = largest if value >= fraction(self.fmt, largest) else nearest_below(self.fmt, value)
        return code >> self.fmt.ignored_bits

    def limits(self, large: bool) -> Codes:
        """Sizes near the limits of the declared formats and of e4m3 (a common scale format), each limit in turn."""
        values = []
        for fmt in dict.fromkeys((self.fmt, *self.declared, E4M3)):
            codes = (fmt.max_finite,) if large else (fmt.min_positive, fmt.min_normal)
            values += [fraction(fmt, c) for c in dict.fromkeys(codes)]
        sizes = np.array([[self.size_below(v * f) for f in _FACTORS] for v in values], dtype=np.int64)
        permuted: Codes = read_only(_rng(self.name, "limits").permuted(sizes, axis=1).T.reshape(-1))
        return permuted

    def grids(self) -> list[tuple[int, Codes]]:
        """For each narrow format and for integers of 4 and 8 bits: the largest size, and the ties with their
        neighbours."""
        by_grid: list[tuple[int, Codes]] = []
        for grid in dict.fromkeys((E2M1, E4M3, *(f for f in self.declared if f.code_bits <= 8))):
            last = self.size_below(fraction(grid, grid.max_finite))
            by_grid.append((last, magnitude(self.fmt, tie_codes(self.fmt, grid, 0))))
        for bits in (4, 8):
            most = (1 << (bits - 1)) - 1
            halves = [h for k in range(most) if (h := _held(self.fmt, Fraction(2 * k + 1, 2))) is not None]
            by_grid.append((self.size_below(Fraction(most)), np.array(halves, dtype=np.int64)))
        kept = [(last, np.unique(sizes[(sizes > 0) & (sizes <= last)])) for last, sizes in by_grid]
        return [(last, read_only(sizes)) for last, sizes in kept if len(sizes)]

    def signed(self, sizes: Codes, negative: Codes | NDArray[np.bool_]) -> Codes:
        sign = -(1 << 63) if self.fmt.code_bits == 64 else 1 << self.fmt.sign_shift
        codes: Codes = (sizes << self.fmt.ignored_bits) | np.where(negative, sign if self.fmt.has_sign else 0, 0)
        return codes

    def either_sign(self, sizes: Codes, runs: _Runs) -> Codes:
        return self.signed(sizes, runs.integers(0, 1))

    def numbers(self, runs: _Runs, each: bool = True) -> Codes:
        """Sizes of ordinary numbers; those of one run lie within eight binades."""
        middle = encode(self.fmt, 1.0) >> self.fmt.ignored_bits
        middles = middle + self.binade * runs.integers(-8, 8, each=False)
        sizes: Codes = np.clip(middles + runs.integers(-4 * self.binade, 4 * self.binade, each), 1, self.top)
        return sizes

    def zeros(self, runs: _Runs) -> Codes:
        return self.either_sign(np.zeros(runs.shape, np.int64), runs)

    def negative_zeros(self, runs: _Runs) -> Codes:
        return self.signed(np.zeros(runs.shape, np.int64), np.ones(runs.shape, np.int64))

    def one_nan(self, runs: _Runs) -> Codes:
        codes = self.either_sign(self.numbers(runs), runs)
        nans = [c for c in edge_codes(self.fmt) if is_nan(self.fmt, c)]
        signed64 = np.array([c - (1 << 64) if c >> 63 else c for c in nans], dtype=np.int64)
        codes[runs.places()] = signed64[runs.turns % len(nans)]
        return codes

    def one_infinity(self, runs: _Runs) -> Codes:
        sizes = self.numbers(runs)
        sizes[runs.places()] = (self.fmt.infinity_code or 0) >> self.fmt.ignored_bits
        return self.either_sign(sizes, runs)

    def equal(self, runs: _Runs) -> Codes:
        one = self.signed(self.numbers(runs, each=False), runs.integers(0, 1, each=False))
        return np.repeat(one, runs.width, axis=1)

    def tiny(self, runs: _Runs) -> Codes:
        return self._up_to(_limits(self, large=False), runs)

    def large(self, runs: _Runs) -> Codes:
        return self._up_to(_limits(self, large=True), runs)

    def _up_to(self, limits: Codes, runs: _Runs) -> Codes:
        most = limits[runs.turns % len(limits)]
        sizes = runs.integers(np.maximum(most - 3 * self.binade, 0)[:, None], most[:, None])
        sizes[runs.places()] = most
        return self.either_sign(sizes, runs)

    def huge_among_tiny(self, runs: _Runs) -> Codes:
        limits = _limits(self, large=True)
        huge = limits[runs.turns % len(limits)]
        sizes = np.maximum(huge[:, None] - runs.integers(10 * self.binade, 30 * self.binade), 1)
        sizes[runs.places()] = huge
        return self.either_sign(sizes, runs)

    def ties(self, runs: _Runs) -> Codes:
        """Ties of a narrow format whose largest value is the run's largest magnitude, all times a power of two."""
        grids = _grids(self)
        sizes = np.zeros(runs.shape, np.int64)
        places = runs.places()
        for k, (last, middles) in enumerate(grids):
            chosen = np.flatnonzero(runs.turns % len(grids) == k)
            low, high = -((last - self.binade) // self.binade), (self.top - last) // self.binade
            shift = self.binade * runs.rng.integers(max(-6, min(0, low)), min(6, high), (len(chosen), 1), endpoint=True)
            drawn = runs.rng.choice(middles, (len(chosen), runs.width))
            drawn[np.arange(len(chosen)), places[1][chosen]] = last
            sizes[chosen] = np.where(drawn + shift < self.binade, np.minimum(drawn, 1), drawn + shift)
        return self.either_sign(sizes, runs)

    def powers_of_two(self, runs: _Runs) -> Codes:
        """Powers of two, those of one run within 16 binades: near one, and anywhere."""
        last = self.top // self.binade
        near = (encode(self.fmt, 1.0) >> self.fmt.ignored_bits) // self.binade
        middle = np.where(runs.turns[:, None] % 2 == 0, near, runs.integers(1, last, each=False))
        exponents = np.clip(middle + runs.integers(-8, 8), 1, last)
        return self.either_sign(np.minimum(exponents * self.binade + runs.integers(-1, 1), self.top), runs)


# Cached: computing them with fractions is slow, and every run of a tensor uses the same, for all variants and targets.
_limits = functools.lru_cache(64)(_Maker.limits)
_grids = functools.lru_cache(64)(_Maker.grids)

KINDS: dict[str, Callable[[_Maker, _Runs], Codes]] = {
    "zeros": _Maker.zeros,
    "negative zeros": _Maker.negative_zeros,
    "NaN": _Maker.one_nan,
    "infinity": _Maker.one_infinity,
    "equal": _Maker.equal,
    "tiny": _Maker.tiny,
    "large": _Maker.large,
    "huge among tiny": _Maker.huge_among_tiny,
    "ties": _Maker.ties,
    "powers of two": _Maker.powers_of_two,
}


def kinds_of(fmt: Format, name: str) -> list[str]:
    """The kinds that a format can hold, in the order for a tensor. name: what `numbered` calls it."""
    lacking = {
        "zeros": not fmt.has_zero,
        "negative zeros": not (fmt.has_zero and fmt.has_sign),
        "NaN": fmt.nan == "none",
        "infinity": not fmt.infinity,
    }
    return [str(k) for k in _rng(name, "kinds").permutation([k for k in KINDS if not lacking.get(k)])]


def block_units(
    fmt: Format,
    name: str,
    shape: tuple[int, ...],
    before: Sequence[tuple[int, ...]],
    declared: Sequence[Format],
) -> NDArray[np.generic]:
    """The storage units of a tensor of floats. before: its shapes at the earlier sizes.

    name: what `numbered` calls the input. declared: every float format that the case declares.
    """
    single = fmt.single
    maker = _Maker(single, tuple(f.single for f in declared), name)
    kinds = kinds_of(single, name)
    rows, width = _flat(fmt, shape)
    first, starts = 0, [0] * len(_CUTS)
    for earlier in before:
        count, wide = _flat(fmt, earlier)
        for k, cut in enumerate(_CUTS):
            starts[k] += len(_rows_of(k, first, count)) * _per_row(wide, cut)
        first += count
    codes = np.zeros((rows, width), np.int64)
    rng = _rng(name, str(first))
    for k, cut in enumerate(_CUTS):
        chosen = _rows_of(k, first, rows)
        if not len(chosen) or not width:
            continue
        per_row, length = _per_row(width, cut), cut or width
        lengths = np.full((len(chosen), per_row), length)
        lengths[:, -1] = width - (per_row - 1) * length
        numbers = starts[k] + np.arange(lengths.size)
        runs = np.zeros((lengths.size, length), np.int64)
        for index, kind in enumerate(kinds):
            of_kind = np.flatnonzero(numbers % len(kinds) == index)
            asked = _Runs(lengths.reshape(-1)[of_kind], length, numbers[of_kind] // len(kinds), rng)
            runs[of_kind] = KINDS[kind](maker, asked)
        codes[chosen] = runs.reshape(len(chosen), -1)[:, :width]
    units: NDArray[np.generic] = pack(fmt, codes).reshape(shape)
    return units


def _flat(fmt: Format, shape: tuple[int, ...]) -> tuple[int, int]:
    return math.prod(shape[:-1]), shape[-1] * fmt.codes_per_unit


def _rows_of(cut: int, first: int, rows: int) -> Codes:
    """The rows with a cut, if `first` rows came before."""
    return np.arange((cut - first) % len(_CUTS), rows, len(_CUTS))


def _per_row(width: int, cut: int | None) -> int:
    return -(-width // cut) if cut else min(width, 1)


def _held(fmt: Format, value: Fraction) -> int | None:
    """The size of a value, or None if the format does not hold it."""
    try:
        return encode(fmt, value) >> fmt.ignored_bits
    except ValueError:
        return None


def _rng(tensor: str, what: str) -> np.random.Generator:
    return np.random.default_rng(seed_of(f"{tensor}/{NAME}/{what}"))


# The table ------------------------------------------------------------------------------------------------------------

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class KernelSets:
    """A kind of input sets.

    names: of all its sets, as keys write them. chosen: those on which a case runs at some sizes. units: the storage
    units of one input, given its number for seeds, its name and the set's, in one dimension or in the input's shape;
    None where the input gets random bits instead.
    """

    names: tuple[str, ...]
    chosen: Callable[[Case, Sizes], Iterable[str]]
    units: Callable[[Case, str, str, str, Sizes], NDArray[np.generic] | None]


def sets_for(case: Case, sizes: Sizes) -> list[str]:
    """The sets on which a whole kernel runs at some sizes, in the order of the table."""
    return [name for kind in KERNEL_SETS for name in kind.chosen(case, sizes)]


def numbered(case: Case, name: str) -> str:
    """An input by its place among the inputs, as seeds are made of it: names change no inputs."""
    return f"input {list(case.inputs).index(name)}"


def units_of(case: Case, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic]:
    """The storage units of an input in a set, in its shape. A set that is in no row has a stream of its name.

    All variants and targets run on the same, so small ones are kept; each caller gets an array of its own.
    """
    kind = next((k for k in KERNEL_SETS if set_name in k.names), None)
    if total(case, sizes) > KEPT_ELEMENTS:
        return _made(case, kind, name, set_name, sizes)
    return _kept(_Declared(case), kind, name, set_name, tuple(sizes.items())).copy()


KEPT_ELEMENTS = 1 << 14
"""Elements of all inputs and outputs beyond which units are made again: there the making takes no part of a run."""


class _Declared:
    """A case in the key of a cache: equal to each case of which the units are the same, whatever its code is."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.declared = (
            tuple(case.inputs.items()),
            tuple(case.outputs.items()),
            tuple(tuple(sizes.items()) for sizes in case.sizes),
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Declared) and other.declared == self.declared

    def __hash__(self) -> int:
        return hash(self.declared)


@functools.lru_cache(maxsize=512)
def _kept(
    declared: _Declared, kind: KernelSets | None, name: str, set_name: str, sizes: tuple[tuple[str, int], ...]
) -> NDArray[np.generic]:
    units: NDArray[np.generic] = read_only(_made(declared.case, kind, name, set_name, dict(sizes)))
    return units


def _made(case: Case, kind: KernelSets | None, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic]:
    own, argument = numbered(case, name), case.inputs[name]
    shape = argument.shape(sizes) if isinstance(argument, Shaped) else ()
    units = None if kind is None else kind.units(case, own, name, set_name, sizes)
    if units is None:
        units = stream(format_of(argument), own, set_name, int(np.prod(shape)))
    return units.reshape(shape)


def _has_blocks(argument: Argument) -> TypeGuard[Shaped]:
    return isinstance(argument, Shaped) and bool(argument.dims) and argument.format.is_float


def _blocks_chosen(case: Case, sizes: Sizes) -> Iterator[str]:
    if any(_has_blocks(a) for a in case.inputs.values()):
        yield NAME


def _blocks(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    argument = case.inputs[name]
    if not _has_blocks(argument):
        return None
    formats = [format_of(a) for a in (*case.inputs.values(), *case.outputs.values())]
    before = [argument.shape(s) for s in itertools.takewhile(lambda s: dict(s) != dict(sizes), case.sizes)]
    declared = [f for f in formats if f.is_float]
    return block_units(argument.format, own, argument.shape(sizes), before, declared)


def _few(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    return few_units(case, name, set_name, sizes, seed_of(f"{own}/{set_name}"))


def _near(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    argument = case.inputs[name]
    if not suits(argument):
        return None
    size = int(np.prod(argument.shape(sizes))) if isinstance(argument, Shaped) else 1
    return near_units(case, name, set_name, size, seed_of(f"{own}/{set_name}"))


def _extremes(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    if not _has_extremes(case.inputs[name]):
        return None
    return extreme_units(case, name, set_name, _size(case.inputs[name], sizes), seed_of(f"{own}/{set_name}"))


def _rows(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    argument = case.inputs[name]
    shape = argument.shape(sizes) if isinstance(argument, Shaped) else ()
    return row_units(case, name, set_name, shape, seed_of(f"{own}/{set_name}"))


def _ends(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    return end_units(case, name, set_name, sizes, seed_of(f"{own}/{set_name}"))


_STREAMS = ("edges/1", "random/1")
KERNEL_SETS: tuple[KernelSets, ...] = (
    KernelSets(_STREAMS, lambda case, sizes: _STREAMS, lambda *_: None),
    KernelSets((NAME,), _blocks_chosen, _blocks),
    KernelSets(NAMES, few_sets, _few),
    KernelSets(NEAR_NAMES, near_sets, _near),
    KernelSets(EXTREMES, extreme_sets, _extremes),
    KernelSets(ROWS_NAMES, row_sets, _rows),
    KernelSets(ENDS, end_sets, _ends),
)
