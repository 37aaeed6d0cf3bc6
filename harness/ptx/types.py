"""PTX's fundamental types: their sizes, and which register may hold which operand (ISA 5.2, 9.4.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalarType:
    """A type suffix. `kind` is b, u, s, f or pred; `width` in bits (a predicate counts 1)."""

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
    rows += [("bf16", "f", 16), ("tf32", "b", 32)]
    # Packed types live in untyped registers of their size.
    rows += [("f16x2", "f", 32), ("bf16x2", "f", 32), ("u16x2", "b", 32), ("s16x2", "b", 32), ("f32x2", "b", 64)]
    rows += [(n, "b", 8) for n in ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1", "ue8m0", "e2m1x2")]
    rows += [(n, "b", 16) for n in ("e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "ue8m0x2", "s2f6x2", "e2m1x4")]
    rows += [(n, "b", 32) for n in ("e4m3x4", "e5m2x4", "e2m3x4", "e3m2x4")]
    rows += [("u8x4", "b", 32), ("s8x4", "b", 32)]
    return {name: ScalarType(name, kind, width) for name, kind, width in rows}


TYPES = _table()
"""Every type suffix of scalar and packed data, by name."""

REGISTER_TYPES = {n for n in TYPES if n in ("pred", "f16", "f16x2", "f32", "f64", "bf16", "bf16x2", "b128")} | {
    f"{k}{w}" for k in "bus" for w in (8, 16, 32, 64)
}


def holds(register: ScalarType, operand: ScalarType, relaxed: bool) -> bool:
    """Whether a register of one type may be an operand of another.

    Sizes must agree, and of the kinds only float against integer does not mix; untyped (b) goes with all.
    `relaxed`: conversions, loads and stores take registers wider than the operand.
    """
    if (register.kind == "pred") != (operand.kind == "pred"):
        return False
    if register.width < operand.width or (register.width > operand.width and not relaxed):
        return False
    if register.width != operand.width:
        return register.kind == "b" or "f" not in (register.kind, operand.kind)
    return "b" in (register.kind, operand.kind) or (register.kind == "f") == (operand.kind == "f")
