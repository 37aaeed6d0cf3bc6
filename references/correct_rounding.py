"""Correctly rounded elementary functions: float64 where it decides, a table of hard cases where it cannot.

float64 functions are wrong by a few units in their last place (CPU vector libraries by 1, CUDA's by at most 2), float32
keeps 29 bits fewer. The rounding can therefore go wrong only if the float64 result lies within those few units of the
middle of two float32 values. All inputs for which it lies within 32 are known (`references.hard_cases`, found by trying
every input) and answered from the table, so float32 results are correctly rounded, ties included, on any machine whose
float64 functions err by less than 32 units in the last place. For float16 and bfloat16 a test tries all 2^16 inputs.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """`rounded`, with the results of the hard cases among the float32 `codes` taken from the table."""
    table = torch.tensor(HARD_CASES[name], dtype=torch.int64, device=codes.device)
    keys, results = table[:, 0].contiguous(), table[:, 1]
    place = torch.searchsorted(keys, codes.contiguous()).clamp(max=len(HARD_CASES[name]) - 1)
    return torch.where(keys[place] == codes, results[place], rounded)
