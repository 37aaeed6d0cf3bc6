"""Arguments of a case: formats, alone or with dimensions, and their codes as storage units and as values."""

from __future__ import annotations

from references.formats import Format, Scalar, Shaped

Argument = Format | Shaped | Scalar


def format_of(argument: Argument) -> Format:
    """The format of an argument, whatever its shape."""
    return argument if isinstance(argument, Format) else argument.format


FLUSHED = ("float32", "float16", "bfloat16")
"""Formats whose arithmetic has `.ftz` or may flush (PTX ISA, "Floating-Point Instructions" and "Half Precision"): all
that a word for ftz= speaks of. float64 supports subnormals always; narrow formats are converted, and lose none."""


def flushes(argument: Argument) -> bool:
    """Whether subnormals of an argument's format are flushed by any arithmetic."""
    return format_of(argument).single.name in FLUSHED
