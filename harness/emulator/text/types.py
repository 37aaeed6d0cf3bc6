"""PTX's fundamental types: their sizes, and which registers may hold which operands (ISA 5.2, 9.4.1); and the number
formats of at most 8 bits that they pack."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# ---- Number formats of at most 8 bits, one row for each --------------------------------------------------------------
#
# The PTX types that pack them, and the properties that definitions use. This table is the source of the narrow types
# below, the codes in `isa.modifiers`, the inputs of measurements, and the properties that functions of
# `isa.convert_formats` look up.


Specials = Literal["ieee", "nan", "none"]
"""The meaning of the highest codes. `ieee`: infinity and NaNs, as in IEEE 754. `nan`: all ones is NaN. `none`:
numbers."""


@dataclass(frozen=True, slots=True)
class NarrowFormat:
    """A number format. `types`: its PTX types, each with the bits of its register.

    `code`: the number that a scalar definition receives for any of these types; None if no definition needs it.
    """

    name: str
    code: int | None
    exponent_bits: int
    mantissa_bits: int
    specials: Specials
    types: dict[str, int]

    @property
    def field(self) -> int:
        """Bits of one code in a packed register."""
        return next(bits // int(name[-1]) for name, bits in self.types.items() if name[-2:] in ("x2", "x4"))

    @property
    def bias(self) -> int:
        """Exponent bias."""
        return (1 << self.exponent_bits - 1) - 1 if self.exponent_bits else 0

    @property
    def ones(self) -> int:
        """All exponent and mantissa bits set: NaN if the format has one, else its largest number."""
        return (1 << self.exponent_bits + self.mantissa_bits) - 1

    @property
    def sign(self) -> int:
        """The mask of the sign bit; 0 for an unsigned format (name begins with u)."""
        return 0 if self.name.startswith("u") else self.ones + 1

    @property
    def infinity(self) -> int:
        """The code of infinity; -1 (no valid code) if the format has none."""
        return self.ones >> self.mantissa_bits << self.mantissa_bits if self.specials == "ieee" else -1

    @property
    def first_nan(self) -> int:
        """The lowest magnitude that is a NaN; above all magnitudes if the format has none."""
        return {"ieee": self.infinity + 1, "nan": self.ones, "none": self.ones + 1}[self.specials]

    @property
    def largest(self) -> int:
        """The code of the largest finite magnitude."""
        return {"ieee": self.infinity - 1, "nan": self.ones - 1, "none": self.ones}[self.specials]


def _packed(
    name: str, code: int | None, exponent_bits: int, mantissa_bits: int, specials: Specials, **widths: int
) -> NarrowFormat:
    """A format from the register widths of its types for one, two (`x2`) and four (`x4`) values."""
    types = {name + pack.removeprefix("one"): width for pack, width in widths.items()}
    return NarrowFormat(name, code, exponent_bits, mantissa_bits, specials, types)


NARROW = (
    _packed("e4m3", 0, 4, 3, "nan", one=8, x2=16, x4=32),
    _packed("e5m2", 1, 5, 2, "ieee", one=8, x2=16, x4=32),
    _packed("e2m3", 2, 2, 3, "none", one=8, x2=16, x4=32),
    _packed("e3m2", 3, 3, 2, "none", one=8, x2=16, x4=32),
    _packed("e2m1", 4, 2, 1, "none", one=8, x2=8, x4=16),
    _packed("ue5m3", 5, 5, 3, "nan", x2=16),
    _packed("e2m1p4", 6, 2, 1, "none", x4=32),  # e2m1 with four bits of padding
    _packed("ue8m0", 7, 8, 0, "nan", one=8, x2=16, x4=32),
    _packed("s2f6", None, 0, 6, "none", x2=16),  # fixed point
)
"""Every narrow format."""

BY_CODE = {row.code: row for row in NARROW if row.code is not None}
"""Formats by the code that definitions receive."""


# ---- Fundamental types -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type suffix. `width`: bits; a predicate has 1.

    `kind`: pred, b (untyped), u, s, f, p (packed halves, which an f16x2 register may hold) or x (types that only
    untyped registers hold: bf16, tf32, e4m3x2, f32x2, ...).
    """

    name: str
    kind: str
    width: int

    @property
    def signed(self) -> bool:
        """Whether scalar definitions read it sign-extended."""
        return self.kind == "s"


def _table() -> dict[str, ScalarType]:
    rows = [("pred", "pred", 1)]
    rows += [(f"{k}{w}", k, w) for k in "bus" for w in (8, 16, 32, 64)]
    rows += [("b128", "b", 128), ("f16", "f", 16), ("f32", "f", 32), ("f64", "f", 64)]
    rows += [("f16x2", "p", 32), ("u16x2", "p", 32), ("s16x2", "p", 32)]
    rows += [("bf16", "x", 16), ("tf32", "x", 32), ("bf16x2", "x", 32), ("f32x2", "x", 64)]
    rows += [(name, "x", width) for narrow in NARROW for name, width in narrow.types.items()]
    # Types of cvt.pack; no register has them.
    rows += [("u4", "u", 4), ("s4", "s", 4), ("u2", "u", 2), ("s2", "s", 2)]
    rows += [("u8x4", "p", 32), ("s8x4", "p", 32)]
    return {name: ScalarType(name, kind, width) for name, kind, width in rows}


TYPES = _table()
"""Every type suffix for scalar and packed data, by name."""

REGISTER_TYPES = {"pred", "f16", "f16x2", "f32", "f64", "b128"} | {f"{k}{w}" for k in "bus" for w in (8, 16, 32, 64)}

VARIABLE_TYPES = REGISTER_TYPES - {"pred"}
"""The types that a variable in memory may have."""


def holds(register: ScalarType, operand: ScalarType, relaxed: bool) -> bool:
    """Whether a register of one type may be an operand of another.

    Sizes must be equal. A float register cannot hold an integer operand, nor the reverse; an untyped (b) register holds
    both. An f16x2 register counts as an integer one. `relaxed`: for conversions, loads and stores the register may be
    wider than the operand; a float operand then needs an untyped register.
    """
    if (register.kind == "pred") != (operand.kind == "pred"):
        return False
    if register.width < operand.width or (register.width > operand.width and not relaxed):
        return False
    if operand.kind == "x":
        return register.kind == "b" and register.width == operand.width
    if register.kind == "b" or operand.kind == register.kind == "pred":
        return True
    if operand.kind == "p":
        return register.kind == "p" and register.width == operand.width
    if operand.kind == "f":
        return register.kind == "f" and register.width == operand.width
    return register.kind != "f" or operand.kind == "b"
