"""The rows of the table, by subject. Importing this package declares them all."""

from __future__ import annotations

from ptxdiff.sass import rows
from ptxdiff.sass.isa import convert, convert_toward_zero, double, half, integer, logic, quarter, single

__all__ = ["convert", "convert_toward_zero", "double", "half", "integer", "logic", "quarter", "single"]

rows.finish()
