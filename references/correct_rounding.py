"""Correctly rounded elementary functions: float64 where it decides, a table of hard cases where it cannot.

float64 functions are wrong by a few units in their last place (CPU vector libraries by 1, CUDA's by at most 2), float32
keeps 29 bits fewer. The rounding can therefore go wrong only if the float64 result lies within those few units of the
middle of two float32 values. All inputs for which it lies within 32 are known (`references.hard_cases`, found by trying
every input) and answered from the table, so float32 results are correctly rounded, ties included, on any machine whose
float64 functions err by less than 32 units in the last place. For float16 and bfloat16 a test tries all 2^16 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from references.formats import F32, Codes, Format, to_float64
from references.hard_cases import HARD_CASES
from references.lazily import torch
from references.rounding import Ftz, round_float64

if TYPE_CHECKING:
    from torch import Tensor


def round_function(
    name: str, function: Callable[[Tensor], Tensor], codes: Tensor, fmt: Format, ftz: Ftz = False
) -> Tensor:
    """`function`, evaluated in float64 on codes of `fmt` and rounded to nearest even; float32 hard cases by table.

    Operands are the caller's to flush; with `ftz` a tiny result becomes zero. No hard case has a tiny result.
    """
    if fmt.precision > F32.precision:
        raise ValueError(f"{fmt.name}: correctly rounded {name} is defined up to float32")
    return round_float64(fmt, function(to_float64(fmt, codes)), ftz=bool(ftz))


_PLACE_BITS = 13  # so few that a GPU's first cache holds the tables, and so many that few hard cases share a place


def settle(name: str, codes: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the results of the hard cases among the float32 `codes` taken from the table.

    The table is indexed by bits of the code that few hard cases share, and of which codes counted up change the lowest:
    they find their places side by side.
    """
    place = _place(codes)
    for keys, results in _TABLES[name]:
        hard = torch.tensor(keys, device=codes.device)[place] == codes
        rounded = torch.where(hard, torch.tensor(results, device=codes.device)[place], rounded)
    return rounded


def _place(codes: Codes) -> Codes:
    return (codes ^ (codes >> 18)) & ((1 << _PLACE_BITS) - 1)


def _indexed(hard: Sequence[tuple[int, int]]) -> list[tuple[list[int], list[int]]]:
    """Hard cases by `_place`: tables of codes and results, as many as hard cases share a place."""
    size = 1 << _PLACE_BITS
    tables: list[tuple[list[int], list[int]]] = []
    for code, result in hard:
        place = _place(code)
        free = next((t for t in tables if t[0][place] < 0), None)
        if free is None:
            free = [-1] * size, [0] * size
            tables.append(free)
        free[0][place], free[1][place] = code, result
    return tables


_TABLES = {name: [tuple(map(np.array, table)) for table in _indexed(hard)] for name, hard in HARD_CASES.items()}
"""As arrays: a tensor of a list of 8192 numbers takes a thousand times as long to make."""
