"""Inputs in the shape in which a job wants them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from harness.case import Case, format_of
from harness.inputs.sets import InputSet, stream
from references.formats import Shaped

Units = dict[str, NDArray[np.generic]]


def shaped(inputs: InputSet, shape: tuple[int, ...], shuffled: int | None = None) -> Units:
    """A set's inputs in a shape: all of them where the sizes agree, else evenly spread ones, or repeats.

    shuffled: a seed for a permutation of them.
    """
    size = int(np.prod(shape))
    chosen = np.arange(size) % inputs.count
    if size < inputs.count:
        chosen = np.linspace(0, inputs.count - 1, size).astype(np.int64)
    if shuffled is not None:
        chosen = np.random.default_rng(shuffled).permutation(chosen)
    return {n: u[chosen].reshape(shape) for n, u in inputs.all().items()}


def kernel_inputs(case: Case, case_name: str, set_name: str, sizes: Mapping[str, int]) -> Units:
    """Inputs of a whole kernel: each tensor filled with edges or random bits of its format, in an order of its own."""
    units: Units = {}
    for name, argument in case.inputs.items():
        shape = argument.shape(sizes) if isinstance(argument, Shaped) else ()
        size = int(np.prod(shape))
        units[name] = stream(format_of(argument), f"{case_name}/{name}", set_name, size).reshape(shape)
    return units
