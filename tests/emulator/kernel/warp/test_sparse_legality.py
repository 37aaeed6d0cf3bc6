"""The tables of sparse and of block-scaled mma accept exactly the forms that ptxas accepts."""

from __future__ import annotations

import itertools
import re

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import errors_of_ptxas, needs

SHAPES = ["m16n8k8", "m16n8k16", "m16n8k32", "m16n8k64", "m16n8k128"]
FLOATS = ["f16", "bf16", "tf32", "e4m3", "e5m2", "e3m2", "e2m3", "e2m1"]
BITS = {"f32": 32, "tf32": 32, "f16": 16, "bf16": 16, "s4": 4, "u4": 4, "s32": 32}
VARIANTS = ["sp", "sp::ordered_metadata"]


def registers(elements: int, kind: str) -> str:
    """An operand: registers may be named more than once."""
    return "{" + ", ".join(f"%b32_{i % 8}" for i in range(elements * BITS.get(kind, 8) // 1024 or 1)) + "}"


def sparse(variant: str, shape: str, types: tuple[str, str, str, str], middle: str = "") -> str:
    m, n, k = map(int, re.findall(r"\d+", shape))
    sizes = (m * n, m * k // 2, k * n, m * n)
    operands = ", ".join(registers(size, kind) for size, kind in zip(sizes, types, strict=True))
    return f"mma.{variant}.sync.aligned.{shape}.row.col{middle}.{'.'.join(types)} {operands}, %b32_0, 0;"


def sparse_lines() -> list[str]:
    found = []
    for variant, shape in itertools.product(VARIANTS, SHAPES):
        for d, c, a, b in itertools.product(("f32", "f16"), ("f32", "f16"), FLOATS, FLOATS):
            narrow = a[0] == b[0] == "e"
            if a == b or narrow:
                found.append(sparse(variant, shape, (d, a, b, c)))
            if narrow and d == c:
                found.append(sparse(variant, shape, (d, a, b, c), ".kind::f8f6f4"))
        for a, b, saturate in itertools.product(("s8", "u8", "s4", "u4"), ("s8", "u8", "s4", "u4"), ("", ".satfinite")):
            if BITS.get(a) == BITS.get(b):
                found.append(sparse(variant, shape, ("s32", a, b, "s32"), saturate))
    return found


def scaled_lines() -> list[str]:
    found = []
    four, two = "{%b32_0, %b32_1, %b32_2, %b32_3}", "{%b32_0, %b32_1}"
    scales = "%b32_5, {0, 0}, %b32_6, {0, 0};"
    pairs = [("e4m3", "e4m3"), ("e4m3", "e2m1"), ("e2m1", "e2m1"), ("e5m2", "e3m2"), ("e2m3", "e2m3")]
    for kind, shape, vector, (a, b), scale, d in itertools.product(
        ("mxf8f6f4", "mxf4", "mxf4nvf4"), ("m16n8k32", "m16n8k64"),
        ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X"), pairs, ("ue8m0", "ue4m3"), ("f32", "f16"),
    ):  # fmt: skip
        c = four if d == "f32" else two
        head = f"mma.sync.aligned.{shape}.row.col.kind::{kind}.block_scale{vector}.{d}.{a}.{b}.{d}.{scale}"
        found.append(f"{head} {c}, {four}, {two}, {c}, {scales}")
    return found


def sparse_scaled_lines() -> list[str]:
    """Like `scaled_lines`, with the two shapes of products with a sparse matrix."""
    found = []
    four, tail = "{%b32_0, %b32_1, %b32_2, %b32_3}", "%b32_4, 0, %b32_5, {0, 0}, %b32_6, {0, 0};"
    pairs = [("e4m3", "e4m3"), ("e4m3", "e2m1"), ("e2m1", "e2m1"), ("e5m2", "e3m2"), ("e2m3", "e2m3")]
    for variant, kind, shape, vector, (a, b), scale in itertools.product(
        VARIANTS, ("mxf8f6f4", "mxf4", "mxf4nvf4"), ("m16n8k64", "m16n8k128"),
        ("", ".scale_vec::1X", ".scale_vec::2X", ".scale_vec::4X"), pairs, ("ue8m0", "ue4m3"),
    ):  # fmt: skip
        head = f"mma.{variant}.sync.aligned.{shape}.row.col.kind::{kind}.block_scale{vector}.f32.{a}.{b}.f32.{scale}"
        found.append(f"{head} {four}, {four}, {four}, {four}, {tail}")
    return found


def disagreements(lines: list[str], target: str) -> list[str]:
    needs(target)
    isa.load()
    device = Target.parse(target)
    different = []
    for text, words in zip(lines, errors_of_ptxas(lines, target), strict=True):
        opcode, *modifiers = text.split()[0].split(".")
        accepted = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if accepted == bool(words):
            different.append(f"{text.split()[0]}: ptxas {words or 'accepts it'}")
    return different


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_89", "sm_90a", "sm_100a", "sm_103a", "sm_110a", "sm_120a"])
def test_the_table_of_sparse_forms_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the thousand lines that it refuses."""
    assert disagreements(sparse_lines(), target) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120", "sm_120a", "sm_120f", "sm_121a"])
def test_the_table_of_scaled_forms_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the hundreds of lines that it refuses."""
    assert disagreements(scaled_lines() + sparse_scaled_lines(), target) == []
