"""Number formats of at most 8 bits, a row each: the types that PTX packs them in, and the code that definitions get.

The types of `types`, the codes of `isa.modifiers` and the inputs of a measurement come from here. What a definition
computes with a format is in `isa.convert_formats`, whose functions hardware has confirmed as they are written.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NarrowFormat:
    """A format. `types`: its PTX types, and the bits of a register of each.

    `code`: the number that a scalar definition gets for any of these types; None where no definition asks.
    """

    name: str
    code: int | None
    exponent_bits: int
    mantissa_bits: int
    types: dict[str, int]


def _packed(name: str, code: int | None, exponent_bits: int, mantissa_bits: int, **widths: int) -> NarrowFormat:
    """A format from the widths of its types: `one` value, `x2` and `x4`."""
    types = {name + pack.removeprefix("one"): width for pack, width in widths.items()}
    return NarrowFormat(name, code, exponent_bits, mantissa_bits, types)


NARROW = (
    _packed("e4m3", 0, 4, 3, one=8, x2=16, x4=32),
    _packed("e5m2", 1, 5, 2, one=8, x2=16, x4=32),
    _packed("e2m3", 2, 2, 3, one=8, x2=16, x4=32),
    _packed("e3m2", 3, 3, 2, one=8, x2=16, x4=32),
    _packed("e2m1", 4, 2, 1, one=8, x2=8, x4=16),
    _packed("ue5m3", 5, 5, 3, x2=16),
    _packed("e2m1p4", 6, 2, 1, x4=32),  # e2m1 with four bits of padding
    _packed("ue8m0", 7, 8, 0, one=8, x2=16, x4=32),
    _packed("s2f6", None, 0, 6, x2=16),  # fixed point
)
"""Every narrow format."""
