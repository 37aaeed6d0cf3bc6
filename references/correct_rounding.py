"""Correctly rounded elementary functions: computed in float64, with a table for inputs that float64 cannot decide.

float64 functions have errors of a few ulps (CPU vector libraries 1, CUDA's at most 2), and float32 has 29 fewer bits.
So rounding can be wrong only if the float64 result lies within those few ulps of the midpoint of two float32 values.
All inputs for which it lies within 32 ulps are known (`ptxdiff.references.hard_cases`, found by trying every input),
and their results come from the table. So float32 results are correctly rounded, including ties, on any machine whose
float64 functions have errors below 32 ulps. For float16 and bfloat16 a test tries all 2^16 inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import F32, Codes, Format, to_float64
from ptxdiff.references.hard_cases import HARD_CASES
from ptxdiff.references.lazily import torch
from ptxdiff.references.rounding import Ftz, round_float64

if TYPE_CHECKING:
    from torch import Tensor


def round_function(
    name: str, function: Callable[[Tensor], Tensor], codes: Tensor, fmt: Format, ftz: Ftz = False
) -> Tensor:
    """`function`, evaluated in float64 on codes of `fmt` and rounded to nearest even; hard cases of float32 by table.

    The caller flushes operands; with `ftz` a tiny result becomes zero. No hard case has a tiny result.
    """
    if fmt.precision > F32.precision:
        raise ValueError(f"{fmt.name}: correctly rounded {name} is defined up to float32")
    return round_float64(fmt, function(to_float64(fmt, codes)), ftz=bool(ftz))


_PLACE_BITS = 13  # few enough for the tables to fit a GPU's L1 cache, and enough that few hard cases share a place


def settle(name: str, codes: Tensor, rounded: Tensor) -> Tensor:
    """`rounded`, with the results of the hard cases among the float32 `codes` taken from the table.

    The table's index is made of bits of the code in which hard cases mostly differ. It includes the lowest bits, so
    that consecutive codes read neighbouring places.
    """
    place = _place(codes)
    for table in _TABLES[name]:
        entry = torch.tensor(table, device=codes.device)[place]
        rounded = torch.where((entry & 0xFFFFFFFF) == codes, (entry >> 32) & 0xFFFFFFFF, rounded)
    return rounded


def _place(codes: Codes) -> Codes:
    return (codes ^ (codes >> 18)) & ((1 << _PLACE_BITS) - 1)


def _indexed(hard: Sequence[tuple[int, int]]) -> list[NDArray[np.int64]]:
    """Hard cases by `_place`: as many tables as hard cases share a place.

    An entry has the result above the code, so that one look-up reads both. An entry without a hard case has a code that
    belongs to another place.
    """
    empty = np.zeros(1 << _PLACE_BITS, np.int64)
    empty[0] = 1
    tables: list[NDArray[np.int64]] = []
    for code, result in hard:
        place = _place(code)
        free = next((t for t in tables if t[place] == empty[place]), None)
        if free is None:
            free = empty.copy()
            tables.append(free)
        free[place] = np.uint64(result << 32 | code).astype(np.int64)
    return tables


_TABLES = {name: _indexed(hard) for name, hard in HARD_CASES.items()}
"""The tables as arrays: making a tensor from a list of 8192 numbers takes a thousand times as long."""
