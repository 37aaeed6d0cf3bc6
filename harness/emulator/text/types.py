"""PTX's fundamental types: their sizes, and which registers may hold which operands (ISA 5.2, 9.4.1)."""

from __future__ import annotations

from dataclasses import dataclass

from ptxdiff.emulator.text.narrow import NARROW


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
