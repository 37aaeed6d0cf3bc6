"""Correctly rounded elementary functions: float64 where it decides, a table of hard cases where it cannot.

float64 functions are wrong by a few units in their last place (CPU vector libraries by 1, CUDA's by at most 2), float32
keeps 29 bits fewer. The rounding can therefore go wrong only if the float64 result lies within those few units of the
middle of two float32 values. All inputs for which it lies within 32 are known (`references.hard_cases`, found by trying
every input) and answered from the table, so float32 results are correctly rounded, ties included, on any machine whose
float64 functions err by less than 32 units in the last place. For float16 and bfloat16 a test tries all 2^16 inputs.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from references.formats import F32, Format, to_float64
from references.hard_cases import HARD_CASES
from references.rounding import round_float64


def round_function(name: str, function: Callable[[Tensor], Tensor], codes: Tensor, fmt: Format) -> Tensor:
    """`function`, evaluated in float64 on codes of `fmt` and rounded to nearest even; float32 hard cases by table."""
    if fmt.precision > F32.precision:
        raise ValueError(f"{fmt.name}: correctly rounded {name} is defined up to float32")
    return round_float64(fmt, function(to_float64(fmt, codes)))


def settle(name: str, codes: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the results of the hard cases among the float32 `codes` taken from the table.

    The few hard cases that share a code's upper bits are compared one after the other, so that neighbouring codes, in
    one order for all, read the same places of the table.
    """
    starts, keys, results, most = _TABLES[name]
    first = torch.tensor(starts, device=codes.device)[(codes >> _INDEX_SHIFT).clamp(0, len(starts) - 2)]
    keys, results = (torch.tensor(column, device=codes.device) for column in (keys, results))
    for place in range(most):
        rounded = torch.where(keys[first + place] == codes, results[first + place], rounded)
    return rounded


_INDEX_SHIFT = 20


def _indexed(hard: Sequence[tuple[int, int]]) -> tuple[list[int], list[int], list[int], int]:
    """Hard cases by upper bits: where these start; codes; results; how many share them at most."""
    keys = [code for code, _ in hard]
    starts = [bisect.bisect_left(keys, upper << _INDEX_SHIFT) for upper in range((1 << 32 - _INDEX_SHIFT) + 1)]
    most = max(after - before for before, after in itertools.pairwise(starts))
    return starts, keys + [-1] * most, [result for _, result in hard] + [0] * most, most


_TABLES = {name: _indexed(hard) for name, hard in HARD_CASES.items()}
