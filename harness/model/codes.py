"""Codes of a case's arguments: conversion from and to storage units, and to values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ptxdiff.model.arguments import Argument, format_of
from ptxdiff.references.formats import Format, to_float64, unpack

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


def units_of_codes(fmt: Format, codes: Sequence[int]) -> Codes:
    """Storage units that hold the given code in every slot."""
    units = [sum(c << (k * fmt.slot_bits) for k in range(fmt.codes_per_unit)) for c in codes]
    return np.array([u - (1 << 64) if u >> 63 else u for u in units], dtype=np.int64)
