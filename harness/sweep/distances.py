"""Histograms of the signed distances between results and reference, on torch tensors.

They have the bins of `ptxdiff.judging.differences.step_bin`. A bin is a place in a table of `PLACES` counts, so that a
kernel can count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ptxdiff.judging.differences import step_bin
from ptxdiff.references.rounding import bit_length

_NEAR = 16  # distances up to here have a bin each
_FAR = 2 * _NEAR + 1  # the place of the first bin of a power of two
_SIGNS = 64  # places from a bin of a positive distance to that of the negative one

PLACES = 256
"""The counts in a table: a power of two."""

DROPPED = PLACES - 1
"""The place of what has no distance; it is not counted."""


def apart_of(a: Tensor, b: Tensor, *, small: bool = False) -> Tensor:
    """a - b for int64 ordinals, saturating; small: there can be no overflow."""
    difference = a - b
    if small:
        return difference
    overflow = ((a ^ b) & (a ^ difference)) < 0
    return torch.where(overflow, torch.where(a < 0, -(2**63) + 1, 2**63 - 1), difference)


def place_of(steps: Tensor) -> Tensor:
    """The place of each int64 distance."""
    size = torch.where(steps < 0, -steps, steps)
    bits = bit_length(torch.where(size > _NEAR, size - 1, 0))
    return torch.where(size > _NEAR, bits + _FAR + (steps < 0).to(torch.int64) * _SIGNS, steps + _NEAR)


def binned(steps: Tensor) -> dict[str, int]:
    """Counts of int64 distances by bin; empty bins are omitted."""
    return by_bin(torch.bincount(place_of(steps), minlength=PLACES).tolist())


def by_bin(counts: Sequence[int]) -> dict[str, int]:
    """A table of counts as a histogram."""
    return {_name(place): count for place, count in enumerate(counts[:DROPPED]) if count}


def _name(place: int) -> str:
    if place < _FAR:
        return step_bin(place - _NEAR)
    sign, bits = divmod(place - _FAR, _SIGNS)
    least = (1 << (bits - 1)) + 1
    return step_bin(-least if sign else least)
