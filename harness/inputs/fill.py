"""Inputs in the shape that a job needs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.kernel_sets import numbered, units_of
from ptxdiff.inputs.sets import InputSet, seed_of, stream, within
from ptxdiff.model.arguments import format_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Generated
from ptxdiff.model.variants import CaseError
from ptxdiff.references.formats import Format, Shaped

Units = dict[str, NDArray[np.generic]]


def shaped(inputs: InputSet, shape: tuple[int, ...], shuffled: int | None = None) -> Units:
    """A set's inputs in a shape: all of them if the sizes are equal; otherwise evenly spaced ones, or with repeats.

    shuffled: a seed for a permutation of them. Inputs that one invocation reads together stay together.
    """
    size = int(np.prod(shape))
    if inputs.group > 1:
        return {n: u.reshape(shape) for n, u in inputs.pick(_chosen_groups(inputs, size, shuffled)).items()}
    chosen = np.arange(size) % inputs.count
    if size < inputs.count:
        chosen = np.linspace(0, inputs.count - 1, size).astype(np.int64)
    if shuffled is not None:
        chosen = np.random.default_rng(shuffled).permutation(chosen)
    return {n: u.reshape(shape) for n, u in inputs.pick(chosen).items()}


def _chosen_groups(inputs: InputSet, size: int, shuffled: int | None) -> NDArray[np.int64]:
    """The numbers of `size` inputs in whole groups; only the last group may be cut."""
    wanted, groups = -(-size // inputs.group), inputs.count // inputs.group
    chosen = np.arange(wanted) % groups
    if wanted < groups:
        chosen = np.linspace(0, groups - 1, wanted).astype(np.int64)
    if shuffled is not None:
        chosen = np.random.default_rng(shuffled).permutation(chosen)
    return (chosen[:, None] * inputs.group + np.arange(inputs.group)).reshape(-1)[:size]


def kernel_inputs(case: Case, set_name: str, sizes: Mapping[str, int]) -> Units:
    """Inputs of a whole kernel: what the case generates, or what a set of `kernel_sets` gives.

    Elements outside `where` are replaced by other elements of the set that lie inside.
    Inputs that are `generated` are made by the case's `generate` in every set, with the set's own random generator.

    Raises CaseError if the case generates other names, shapes or storage than it declares, or an element outside
    `where`, or if no value inside `where` could be found.
    """
    shapes = {n: a.shape(sizes) if isinstance(a, Shaped) else () for n, a in case.inputs.items()}
    if set_name.startswith("generated"):
        return _all_within(case, _generated(case, set_name, sizes, shapes))
    made = [n for n, domain in case.domains.items() if isinstance(domain, Generated)]
    units = {n: u for n, u in _generated(case, set_name, sizes, shapes).items() if n in made} if made else {}
    for name in case.inputs:
        if name not in made:
            units[name] = units_of(case, name, set_name, sizes)
    bounded = [n for n in case.domains if n not in made]
    return {n: units[n] for n in case.inputs} | {n: _kept(case, set_name, n, units[n]) for n in bounded}


_TRIED = 1 << 18
"""How many random values are tried if a set has few inside a domain."""
_SMALL = 1 << 14
"""The largest integer tried if few random values lie inside: the range of an index is too narrow for random values."""
_FEW = 64
"""If fewer distinct values of a set lie inside the domain, others are added to the replacements, so that enough values
are tested."""


def _kept(case: Case, set_name: str, name: str, units: NDArray[np.generic]) -> NDArray[np.generic]:
    """The units, with those outside the domain of the input `name` replaced by others that lie inside."""
    inside = _inside(case, name, units)
    if inside.all():
        return units
    kept_units = units[inside]
    fmt = format_of(case.inputs[name])
    for random in (True, False):
        if np.unique(kept_units).size < min(_FEW, units.size):
            tried = stream(fmt, f"{numbered(case, name)}/where", "random/1", _TRIED) if random else _small_integers(fmt)
            kept_units = np.concatenate([kept_units, tried[_inside(case, name, tried)]]) if tried.size else kept_units
    if not kept_units.size:
        text, small = case.domains[name].text, _small_integers(fmt).size
        exceptions = f" and {small} small integers" if small else ""
        raise CaseError(f"where= of {name} ({text}) holds none of {_TRIED} random values{exceptions}; widen it")
    kept = units.copy()
    rng = np.random.default_rng(seed_of(f"{numbered(case, name)}/{set_name}/where"))
    kept[~inside] = rng.choice(kept_units, int((~inside).sum()))
    return kept


def _small_integers(fmt: Format) -> NDArray[np.generic]:
    """The integers of a format from -_SMALL to _SMALL, as far as it has them; none of other formats."""
    integer = not fmt.is_float and fmt.codes_per_unit == 1 and fmt.code_bits >= 8
    most = min(_SMALL, (1 << fmt.code_bits - 1) - 1) if integer else -1
    return np.arange(-most, most + 1).astype(f"i{fmt.unit_bits // 8}").view(fmt.numpy_dtype())


def _all_within(case: Case, units: Units) -> Units:
    """The units that generate= made. Raises CaseError if an element lies outside `where`."""
    for name in case.domains:
        inside = _inside(case, name, units[name])
        if not inside.all():
            index = np.unravel_index(int(np.argmin(inside)), inside.shape)
            raise CaseError(
                f"generate= gave {name}{list(map(int, index))} = {units[name][index]:#x}, which lies outside where= "
                f"({case.domains[name].text}); widen where=, or generate other values"
            )
    return units


def _inside(case: Case, name: str, units: NDArray[np.generic]) -> NDArray[np.bool_]:
    mask = within(case.domains[name], {name: format_of(case.inputs[name])}, {name: units.reshape(-1)})
    return mask.reshape(units.shape)


def _generated(case: Case, set_name: str, sizes: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> Units:
    assert case.generate is not None
    made = case.generate(dict(sizes), np.random.default_rng(seed_of(set_name)))
    if set(made) != set(case.inputs):
        raise CaseError(f"generate= gave {', '.join(sorted(made))}; the inputs are {', '.join(case.inputs)}")
    units: Units = {}
    for name, array in made.items():
        dtype = format_of(case.inputs[name]).numpy_dtype()
        generated = np.asarray(array)
        if generated.shape != shapes[name] or generated.dtype.itemsize != dtype.itemsize:
            raise CaseError(
                f"generate= gave {name} as {generated.dtype} of shape {generated.shape}; "
                f"it takes {dtype.itemsize * 8}-bit units of shape {shapes[name]}"
            )
        units[name] = np.array(generated, order="C").view(
            dtype
        )  # copied, because generate= may keep and change its array
    return units
