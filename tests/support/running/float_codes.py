"""Codes of float32 that matter to a judge."""

from __future__ import annotations

import numpy as np

from ptxdiff.references.formats import Format

ONE, INF, NAN, TOP, TINY, LEAST_NORMAL, MINUS = (
    0x3F800000,
    0x7F800000,
    0x7FC00000,
    0x7F7FFFFF,
    1,
    0x00800000,
    0x80000000,
)


def units(fmt: Format, *codes: int) -> np.ndarray:
    return np.array(codes, dtype=f"uint{fmt.unit_bits}").view(fmt.numpy_dtype())
