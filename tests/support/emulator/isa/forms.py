"""One instruction on columns of bit patterns, for tests of values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import Bound, find
from ptxdiff.emulator.numeric.vectorise import UNSIGNED

isa.load()


def form(spelling: str, sources: int) -> Bound:
    """The form with this spelling and this number of sources."""
    opcode, *modifiers = spelling.split(".")
    return next(b for b in find(opcode, tuple(modifiers)) if len(b.form.sources) == sources)


def run(spelling: str, *columns: Any, rounded: bool = False) -> Any:
    """The results of an instruction, as unsigned patterns, on columns of patterns (wrapped to their width).

    `rounded`: use the model of an approximate instruction that rounds to nearest.
    """
    bound = form(spelling, len(columns))
    arrays = []
    for column, (width, _) in zip(columns, bound.source_types, strict=True):
        values = np.asarray(column, object) & ((1 << width) - 1) if isinstance(column, list) else np.asarray(column)
        arrays.append(np.ascontiguousarray(values.astype(UNSIGNED[width])))
    return bound.array_function(rounded=rounded)(len(arrays[0]), *arrays)


def f32_bits(values: Any) -> Any:
    """float32 patterns of an array of values."""
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32).view(np.uint32)
