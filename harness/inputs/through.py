"""Inputs on which a wrong rounding after an approximate step gives what no accepted intermediate value gives.

`exact(through=...)` accepts the results of every intermediate value within a bound. A wrong rounding after the
approximate step moves its result by at most one place, and so does another intermediate value. So the rounding shows
only where the approximate instruction gives a value at an end of the bound, and a product or a sum of it lies beside a
boundary of the steps that follow. Which values an instruction gives is not known here. Inputs are therefore made for
both ends and for the exact value, many of each. Preferred are those on which an instruction most likely gives the end:
where the correct result of the approximate step is nearly a tie, and was rounded away from this end; and where
significands are near two, because there a relative error has most ulps, and a quotient that is a product with a
reciprocal has the error of a reciprocal with a small significand.

The seed is the same for every case, so that no verdict depends on a name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.inputs.edges import repeated
from ptxdiff.inputs.intermediate import Codes, Inside, Rng, StepSearch, units_found
from ptxdiff.model.arguments import codes_of
from ptxdiff.model.case import Case
from ptxdiff.model.match import Approximate
from ptxdiff.model.policies import policies, specification
from ptxdiff.model.reference import runs_on_host
from ptxdiff.model.variants import Reference, alternatives
from ptxdiff.references.formats import F64, Format, to_float64
from ptxdiff.references.rounding import Rounded, Rounding, observing, unobserved

_ROWS = {"quick": 2048, "full": 4096, "exhaustive": 4096}
"""By effort: rows of a search."""
_KEPT = {"quick": 512, "full": 2048, "exhaustive": 2048}
"""By effort: rows kept for each other rounding of each step."""
_SPECIFICATIONS = 4


def through_inputs(
    case: Case,
    formats: Mapping[str, Format],
    effort: str,
    rng: Rng,
    inside: Inside,
    more: Callable[[], Sequence[Codes]],
) -> list[Codes]:
    """Storage units of every input; none if no variant has `through=`, or its exact step rounds nothing.

    inside: which rows of storage units lie within `where=`. more: makes codes by input, of rows that the search starts
    from besides random ones; none if it gives nothing.
    """
    return units_found(_searches(case, formats, effort, rng, inside), formats, more)


def _searches(case: Case, formats: Mapping[str, Format], effort: str, rng: Rng, inside: Inside) -> Iterator[StepSearch]:
    """One for each specification and each end of the bounds of its approximate steps."""
    for reference, steps in _specifications(case)[:_SPECIFICATIONS]:
        accepted = alternatives(reference)
        readings = [r for r in accepted if hasattr(r, "offsets")]
        if runs_on_host(reference):
            continue
        for offsets in _ends([r.offsets for r in readings]):
            reading = next(r for r in readings if r.offsets == offsets)
            rank = functools.partial(_unlikely, case, formats, steps, offsets) if any(offsets) else None
            yield StepSearch(
                case, reading, formats, rng, inside, _ROWS[effort], _KEPT[effort], accepted=accepted, rank=rank
            )


def _specifications(case: Case) -> list[tuple[Reference, list[Approximate]]]:
    """Each reference with `through=` once, and its approximate steps, whose own roundings are not observed."""
    found: dict[Any, tuple[Reference, list[Approximate]]] = {}
    for variant in case.variants.values():
        match = policies(case, variant).match
        steps = list({id(m.through): m.through for m in match.values() if m.through is not None}.values())
        reference = variant.reference or case.reference
        key = id(reference), tuple((n, id(m.through)) for n, m in match.items())
        if not steps or key in found:
            continue
        quiet = {id(step): replace(step, step=_quiet(step.step)) for step in steps}
        given = {n: m if m.through is None else replace(m, through=quiet[id(m.through)]) for n, m in match.items()}
        found[key] = specification(reference, given, tuple(case.outputs)), steps
    return list(found.values())


def _quiet(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose roundings no observer sees: they are what is approximate."""

    @functools.wraps(step)
    def quiet(*codes: Any, **options: Any) -> Any:
        with unobserved():
            return step(*codes, **options)

    return quiet


def _ends(every: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The distances from the exact intermediate values to search at: the farthest on both sides, and none."""
    least, most = (tuple(f(column) for column in zip(*every, strict=True)) for f in (min, max))
    return [o for o in dict.fromkeys([least, most, tuple(0 for _ in least)]) if o in every]


def _unlikely(
    case: Case, formats: Mapping[str, Format], steps: Sequence[Approximate], offsets: tuple[int, ...], rows: list[Codes]
) -> tuple[NDArray[np.float64], ...]:
    """Three numbers for each row, low where instructions probably give the ends that `offsets` name: how far the exact
    results of the approximate steps lie from these ends, and how far the significands of these results, and of the
    inputs, are from two."""
    units = {n: repeated(f, c) for (n, f), c in zip(formats.items(), rows, strict=True)}
    codes = list(codes_of(case.inputs, units).values())
    far, small = np.zeros(len(rows[0])), np.zeros(len(rows[0]))
    for step, offset in zip(steps, offsets, strict=True):
        if offset:
            distance, significand = _of_step(step, offset, codes)
            if distance.shape == far.shape:
                far, small = far + distance, small + (2 - significand)
    floats = [_significand(f.single, c) for f, c in zip(formats.values(), rows, strict=True) if f.is_float]
    return far, small, np.mean([2 - s for s in floats], axis=0) if floats else np.zeros(len(far))


def _of_step(step: Approximate, offset: int, codes: Sequence[Codes]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How far the exact results of a step lie from the value `offset` ulps beside the correct one, in ulp, less the
    constant part; zeros where the step's rounding is not that of its result. And the significands of its results."""
    import torch

    fmt = step.fmt
    last: list[tuple[Any, Any]] = []

    def observer(rounded_to: Format, rounding: Rounding, rounded: Rounded) -> Any:
        result = rounded(rounded_to, rounding)
        if rounded_to is fmt:
            last[:] = [(result, rounded(F64, "rn"))]
        return result

    with observing(observer):
        value = step.step(*(torch.from_numpy(c.copy()) for c in codes))
    given: Codes = np.asarray(value, dtype=np.int64)
    distance = np.zeros(given.shape)
    if last and last[0][0].shape == value.shape and not bool((last[0][0] != value).any()):
        with np.errstate(all="ignore"):
            number, exactly = to_float64(fmt, given), to_float64(F64, np.asarray(last[0][1], dtype=np.int64))
            ulp = np.ldexp(1.0, np.frexp(number)[1] - fmt.precision)
            distance = np.copysign(1, -offset) * (np.abs(exactly) - np.abs(number)) / ulp
    return np.where(np.isfinite(distance), distance, 1.0), _significand(fmt, given)


def _significand(fmt: Format, codes: Codes) -> NDArray[np.float64]:
    """From one up to two; zero for zero and for what is no number."""
    values = np.abs(to_float64(fmt, codes))
    return np.where(np.isfinite(values), 2 * np.frexp(np.where(np.isfinite(values), values, 0))[0], 0)
