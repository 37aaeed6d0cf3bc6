"""The input sets of whole kernels, a table with one row for each kind: a new kind is a module here and its row.

Beside them a kernel runs on what the case generates (`generated/1`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs import blocks, few_numbers, similar_magnitudes
from ptxdiff.inputs.sets import seed_of, stream
from ptxdiff.model.arguments import Argument, format_of
from ptxdiff.model.case import Case
from ptxdiff.references.formats import Shaped

Sizes = Mapping[str, int]


@dataclass(frozen=True)
class KernelSets:
    """A kind of input sets.

    names: of all its sets, as keys write them. chosen: those on which a case runs at some sizes. units: the storage
    units of one input, given the name that seeds are made of, the input's name and the set's, in one dimension or in
    the input's shape; None where the input gets random bits instead.
    """

    names: tuple[str, ...]
    chosen: Callable[[Case, Sizes], Iterable[str]]
    units: Callable[[Case, str, str, str, Sizes], NDArray[np.generic] | None]


def sets_for(case: Case, sizes: Sizes) -> list[str]:
    """The sets on which a whole kernel runs at some sizes, in the order of the table."""
    return [name for kind in KERNEL_SETS for name in kind.chosen(case, sizes)]


def units_of(case: Case, case_name: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic]:
    """The storage units of an input in a set, in its shape. A set that is in no row has a stream of its name."""
    own, argument = f"{case_name}/{name}", case.inputs[name]
    shape = argument.shape(sizes) if isinstance(argument, Shaped) else ()
    kind = next((k for k in KERNEL_SETS if set_name in k.names), None)
    units = None if kind is None else kind.units(case, own, name, set_name, sizes)
    if units is None:
        units = stream(format_of(argument), own, set_name, int(np.prod(shape)))
    return units.reshape(shape)


def _has_blocks(argument: Argument) -> TypeGuard[Shaped]:
    return isinstance(argument, Shaped) and bool(argument.dims) and argument.format.is_float


def _blocks_chosen(case: Case, sizes: Sizes) -> Iterator[str]:
    if any(_has_blocks(a) for a in case.inputs.values()):
        yield blocks.NAME


def _blocks(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    argument = case.inputs[name]
    if not _has_blocks(argument):
        return None
    formats = [format_of(a) for a in (*case.inputs.values(), *case.outputs.values())]
    before = [argument.shape(s) for s in itertools.takewhile(lambda s: dict(s) != dict(sizes), case.sizes)]
    declared = [f for f in formats if f.is_float]
    return blocks.block_units(argument.format, own, argument.shape(sizes), before, declared)


def _few(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    return few_numbers.few_units(case, name, set_name, sizes, seed_of(own, set_name))


def _near(case: Case, own: str, name: str, set_name: str, sizes: Sizes) -> NDArray[np.generic] | None:
    argument = case.inputs[name]
    if not similar_magnitudes.suits(argument):
        return None
    size = int(np.prod(argument.shape(sizes))) if isinstance(argument, Shaped) else 1
    return similar_magnitudes.near_units(case, name, set_name, size, seed_of(own, set_name))


_STREAMS = ("edges/1", "random/1")
KERNEL_SETS: tuple[KernelSets, ...] = (
    KernelSets(_STREAMS, lambda case, sizes: _STREAMS, lambda *_: None),
    KernelSets((blocks.NAME,), _blocks_chosen, _blocks),
    KernelSets(few_numbers.NAMES, few_numbers.few_sets, _few),
    KernelSets(similar_magnitudes.NAMES, similar_magnitudes.near_sets, _near),
)
