"""Arguments of a case: formats with or without dimensions, and their codes as storage units and as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.references.formats import Format, Scalar, Shaped, to_float64, unpack

Argument = Format | Shaped | Scalar


def format_of(argument: Argument) -> Format:
    """The format of an argument, whatever its shape."""
    return argument if isinstance(argument, Format) else argument.format


FLUSHED = ("float32", "float16", "bfloat16")
"""Formats whose arithmetic has `.ftz` or may flush (PTX ISA, "Floating-Point Instructions" and "Half Precision"): a
single word for ftz= applies to these. float64 always keeps subnormals; narrow formats are only converted, which loses
none."""


def flushes(argument: Argument) -> bool:
    """Whether any arithmetic flushes subnormals of an argument's format."""
    return format_of(argument).single.name in FLUSHED


# ---- Codes -----------------------------------------------------------------------------------------------------------


Codes = NDArray[np.int64]


def codes_of(arguments: Mapping[str, Argument], units: Mapping[str, NDArray[np.generic]]) -> dict[str, Codes]:
    """Storage arrays as int64 codes, by name."""
    return {name: unpack(format_of(a), units[name]) for name, a in arguments.items()}


def values_of(fmt: Format, units: NDArray[np.generic]) -> NDArray[np.float64]:
    """The values of storage units as float64, one per code; 64-bit integers are rounded to float64."""
    codes = unpack(fmt, units)
    if not fmt.is_float and fmt.code_bits == 64:
        return (codes if fmt.has_sign else codes.view(np.uint64)).astype(np.float64)  # type: ignore[no-any-return]
    return to_float64(fmt, codes)  # type: ignore[no-any-return]


def unit_of_hard_case(fmt: Format, given: int | Sequence[int]) -> int:
    """The storage unit that a hard case names: one code stands in every slot; a greater number is the whole word, and
    a sequence has a code for each slot, the lowest first. Raises ValueError for what is none of these.
    """
    if isinstance(given, int) and 0 <= given <= fmt.code_mask:
        slots = [given] * fmt.codes_per_unit
    elif isinstance(given, int):
        slots = [given >> (k * fmt.slot_bits) & ((1 << fmt.slot_bits) - 1) for k in range(fmt.codes_per_unit)]
        if not 0 <= given < 1 << fmt.unit_bits:
            raise ValueError(f"{given:#x}")
    else:
        slots = list(given)
    if len(slots) != fmt.codes_per_unit or not all(isinstance(c, int) and 0 <= c <= fmt.code_mask for c in slots):
        raise ValueError(f"{given:#x}" if isinstance(given, int) else str(given))
    return sum(c << (k * fmt.slot_bits) for k, c in enumerate(slots))


def units_of_hard_cases(fmt: Format, column: Sequence[int | Sequence[int]]) -> Codes:
    """The storage units that a column of hard cases names."""
    units = [unit_of_hard_case(fmt, given) for given in column]
    return np.array([u - (1 << 64) if u >> 63 else u for u in units], dtype=np.int64)


def units_of_codes(fmt: Format, codes: Sequence[int]) -> Codes:
    """Storage units that hold the given code in every slot."""
    units = [sum(c << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)) for c in codes]
    return np.array([u - (1 << 64) if u >> 63 else u for u in units], dtype=np.int64)
