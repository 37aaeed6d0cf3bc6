"""What the ISA promises of approximate instructions, in its measure (PTX ISA 9.x, 9.7.3 to 9.7.5)."""

from __future__ import annotations


def bound(form: str) -> str:
    """The bound that the ISA states of a form; empty where none is known, or it is exact."""
    return ""
