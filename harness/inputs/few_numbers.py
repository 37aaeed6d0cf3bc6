"""Inputs of whole kernels that hold few numbers: a scalar has one a run, so it would meet hardly any edge.

A set `few/k` gives each such input the k-th of the numbers that matter most, or random ones near one, whose sums and
products have to be rounded. The other inputs are random. Kernels that work on many elements are left out: each set is
another run of all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.arguments import Argument, format_of
from ptxdiff.model.case import Case
from ptxdiff.references.formats import Format, Shaped, encode

FEW = 16
"""Elements below which an input holds few."""
MOST = 4096
"""Elements of all inputs and outputs beyond which a kernel is left out."""
_EDGES, _RANDOM = 8, 8
"""Sets of numbers that matter, and of random ones: those have to tell of a single element how it is rounded."""


def _numbers(fmt: Format) -> list[int]:
    """Codes of both zeros, one and minus one, the ends of the finite numbers, infinity and NaN, as far as there are."""
    found = [0, 1 << fmt.sign_shift, encode(fmt, 1.0), encode(fmt, -1.0), fmt.min_positive, fmt.max_finite]
    found += [code for code in (fmt.infinity_code, fmt.canonical_nan) if code is not None]
    return found


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
        digits = fmt.mantissa_bits + fmt.ignored_bits
        near = rng.integers(fmt.bias - 2, fmt.bias + 2, size).astype(np.uint64) << np.uint64(digits)
        near |= rng.integers(0, 1 << digits, size).astype(np.uint64)
        near |= rng.integers(0, 2, size).astype(np.uint64) << np.uint64(fmt.sign_shift)
        return near.astype(fmt.numpy_dtype())
    place = list(case.inputs).index(name)
    turned = np.roll(np.array(codes, dtype=np.uint64), -number - 3 * place)
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
    found = [format_of(a).single for a in case.outputs.values()]
    return [f for f in found if f.is_float and f.has_sign and 2 < f.exponent_bits < widest]


def near_units(case: Case, name: str, set_name: str, size: int, seed: int) -> NDArray[np.generic]:
    """`size` units of an input that `suits`, in one dimension. seed: of the random numbers."""
    fmt, rng, number = format_of(case.inputs[name]), np.random.default_rng(seed), NEAR_NAMES.index(set_name)
    ends = [f.min_exponent for f in _narrow(case)]
    fields = fmt.bias + rng.integers(*_AROUND_ONE, size)
    if number >= _TURNS:
        low = np.arange(size) % 2 == number % 2
        fields = fmt.bias + ends[(number // 2) % len(ends)] + np.where(low, -rng.integers(1, _BELOW + 1, size), 0)
    digits = fmt.mantissa_bits + fmt.ignored_bits
    found = np.maximum(fields, 0).astype(np.uint64) << np.uint64(digits)
    found |= rng.integers(0, 1 << digits, size).astype(np.uint64)
    found |= rng.integers(0, 2, size).astype(np.uint64) << np.uint64(fmt.sign_shift)
    found &= np.uint64(fmt.code_mask ^ ((1 << fmt.ignored_bits) - 1))
    return found.astype(fmt.numpy_dtype())
