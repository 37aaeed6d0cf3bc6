"""The rows of the table, by subject. Importing this package declares them all."""

from __future__ import annotations

from ptxdiff.sass import rows
from ptxdiff.sass.isa import (
    convert,
    convert_scaled,
    convert_toward_zero,
    double,
    half,
    integer,
    logic,
    mixed,
    quarter,
    single,
)

__all__ = [
    "convert", "convert_scaled", "convert_toward_zero", "double", "half", "integer", "logic", "mixed", "quarter",
    "single",
]  # fmt: skip

rows.finish()
