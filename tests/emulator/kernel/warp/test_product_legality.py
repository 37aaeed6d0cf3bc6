"""The table of mma's forms accepts exactly the shapes and types that ptxas accepts."""

from __future__ import annotations

import itertools
import re

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import errors_of_ptxas, needs

SHAPES = ["m8n8k4", "m8n8k16", "m8n8k32", "m8n8k128", "m16n8k4", "m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64"]
SHAPES += ["m16n8k128", "m16n8k256"]
FLOATS = ["f16", "bf16", "tf32", "e4m3", "e5m2", "e2m1"]
INTEGERS = ["s8", "u8", "s4", "u4"]


def registers(elements: int, kind: str) -> str:
    """An operand: registers may be named more than once."""
    wide = BITS[kind] == 64
    count = elements * BITS[kind] // (2048 if wide else 1024) or 1
    return "{" + ", ".join(f"%{'f64' if wide else 'b32'}_{i % 8}" for i in range(count)) + "}"


def line(shape: str, layouts: str, types: tuple[str, str, str, str], middle: str = "", tail: str = "") -> str:
    m, n, k = map(int, re.findall(r"\d+", shape))
    tiles = 4 if types[1] == types[2] == "f16" and shape == "m8n8k4" else 1
    sizes = (m * n, m * k, k * n, m * n)
    operands = ", ".join(registers(tiles * size, kind) for size, kind in zip(sizes, types, strict=True))
    return f"mma.sync.aligned.{shape}.{layouts}{middle}.{'.'.join(types)}{tail} {operands};"


def lines() -> list[str]:
    found = []
    for shape, d, c, a, b in itertools.product(SHAPES, ("f16", "f32"), ("f16", "f32"), FLOATS, FLOATS):
        found.append(line(shape, "row.col", (d, a, b, c)))
        if a[0] == "e" and b[0] == "e":
            found.append(line(shape, "row.col", (d, a, b, c), ".kind::f8f6f4"))
    for shape, a, b, sat in itertools.product(SHAPES, INTEGERS, INTEGERS, ("", ".satfinite")):
        found.append(line(shape, "row.col", ("s32", a, b, "s32"), sat))
    for shape in SHAPES:
        found += [line(shape, "row.col", ("f64",) * 4, rounding) for rounding in ("", ".rn", ".rz", ".rm", ".rp")]
        found += [line(shape, "row.col", ("s32", "b1", "b1", "s32"), "", f".{op}.popc") for op in ("xor", "and", "or")]
    for layouts, shape in itertools.product(("row.row", "col.row", "col.col"), ("m8n8k4", "m16n8k8")):
        found.append(line(shape, layouts, ("f32", "f16", "f16", "f32")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a"])
def test_the_table_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the two thousand lines that it refuses."""
    needs(target)
    isa.load()
    device = Target.parse(target)
    texts = lines()
    different = []
    for text, words in zip(texts, errors_of_ptxas(texts, target), strict=True):
        opcode, *modifiers = text.split()[0].split(".")
        found = [f for f in find(opcode, tuple(modifiers)) if f.requirement_unmet(device) is None]
        quads = bool(found) and "alayout" in found[0].modifiers
        accepted = bool(found) and (quads or [m for m in modifiers if m in ("row", "col")] == ["row", "col"])
        if accepted == bool(words):
            different.append(f"{text.split()[0]}: ptxas {words or 'accepts it'}")
    assert different == []
