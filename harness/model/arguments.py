"""Arguments of a case: formats with or without dimensions."""

from __future__ import annotations

from ptxdiff.references.formats import Format, Scalar, Shaped

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
