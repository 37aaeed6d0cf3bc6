"""The functions of an oracle for a sweep: as kernels, or as plain torch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ptxdiff.inputs.generated import Counted, Generator
from ptxdiff.jobs import Job
from ptxdiff.model.identity import digest_with_code
from ptxdiff.model.identity.definition import definition
from ptxdiff.sweep.fused import kernels
from ptxdiff.sweep.fused.translation import NotFused
from ptxdiff.sweep.oracle import Oracle, numbers


@dataclass(frozen=True)
class Tools:
    """tally, mask: as in `Oracle`, functions of the number of a chunk's first input and its outputs. fill: makes an
    input. histogram: `Oracle.histogram`, a function of the number, some rows of the chunk, and its outputs.

    tally_ahead: takes names of inputs and returns a tally that also makes them for the next chunk; None if there is
    none.
    """

    tally: Callable[..., Tensor]
    mask: Callable[..., Tensor]
    fill: Mapping[str, Callable[[Tensor, Tensor], Any]]
    histogram: Callable[..., Tensor]
    tally_ahead: Callable[[tuple[str, ...]], Callable[..., Tensor] | None] = lambda _: None


def _filler(generator: Generator, name: str) -> Callable[[Tensor, Tensor], Any]:
    def fill(first: Tensor, units: Tensor) -> None:
        units.copy_(generator.units(name, numbers(first, units)).to(units.dtype))

    return fill


def plain_tools(oracle: Oracle) -> Tools:
    """The oracle's functions as plain torch, for a CPU."""
    fill = {n: _filler(oracle.generator, n) for n in oracle.inputs}
    return Tools(oracle.tally, oracle.mask, fill, oracle.histogram)


_kept: dict[tuple[Any, ...], Tools] = {}


def tools_of(oracle: Oracle, job: Job, chunk: int, device: str) -> Tools:
    """The kernels, cached for other variants and packs with the same judge; on a GPU calls may raise NotFused."""
    judged_by = definition(job.case, job.variant, exact=True)
    parts = tuple(judged_by[name] for name in ("reference", "policy", "meets", "formats"))
    key = (parts, digest_with_code(oracle.generator, exact=True), chunk, device)
    if key not in _kept:
        plain = plain_tools(oracle)
        _kept[key] = Tools(
            _fused(lambda: kernels.tally_of(oracle), plain.tally),
            _fused(lambda: kernels.mask_of(oracle), plain.mask),
            {n: _fused(functools.partial(kernels.fill_of, oracle, n), f) for n, f in plain.fill.items()},
            _fused(lambda: kernels.histogram_of(oracle), plain.histogram),
            _ahead(oracle, chunk, device),
        )
    return _kept[key]


def _ahead(oracle: Oracle, chunk: int, device: str) -> Callable[[tuple[str, ...]], Callable[..., Tensor] | None]:
    @functools.cache
    def made(names: tuple[str, ...]) -> Callable[..., Tensor] | None:
        if not device.startswith("cuda") or not isinstance(oracle.generator, Counted):
            return None
        try:
            return kernels.tally_of(oracle, names, chunk)
        except NotFused:
            return None

    return made


def _fused(make: Callable[[], Callable[..., Any]], plain: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that is made at its first call on a GPU; the call raises NotFused if none can be made."""
    made: list[Callable[..., Any]] = []

    def call(*tensors: Tensor) -> Any:
        if not made:
            made.append(make() if tensors[0].device.type == "cuda" else plain)
        return made[0](*tensors)

    return call
