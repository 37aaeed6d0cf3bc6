"""The table of wgmma's forms against ptxas, in both directions: shapes and types that exist, and those that do not."""

from __future__ import annotations

import itertools
import re

import pytest
from legality import needs, told_by_ptxas

from harness.ptx import isa
from harness.ptx.isa.forms import find
from harness.ptx.numeric.tensorcore import BITS
from harness.ptx.targets import Target

TYPES = ["f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"]
ACCUMULATORS = ["f16", "f32", "s32"]
COLUMNS = (8, 24, 32, 40, 48, 56, 240, 248, 256, 264)


def line(n: int, k: int, d: str, a: str, b: str, before: str = "", behind: str = "") -> str:
    count = 64 * n * BITS[d] // 4096
    registers = "{" + ", ".join(f"%b32_{i % 8}" for i in range(count)) + "}"
    signs = ", 1, 1" if a[0] in "fbte" and a != "b1" else ""
    layouts = ", 0, 0" if BITS[a] == 16 else ""
    operands = f"{registers}, %b64_0, %b64_1, %pred_0{signs}{layouts}"
    return f"wgmma.mma_async.sync.aligned.m64n{n}k{k}{before}.{d}.{a}.{b}{behind} {operands};"


def lines() -> list[str]:
    found = []
    for n, d, a, b in itertools.product(COLUMNS, ACCUMULATORS, TYPES, TYPES):
        if a != b and (BITS[a] != 8 or BITS[b] != 8):
            continue
        behind = ".and.popc" if a == "b1" else ""
        found.append(line(n, 256 // BITS[a], d, a, b, behind=behind))
        if d == "s32":
            found.append(line(n, 256 // BITS[a], d, a, b, ".satfinite", behind))
    found += [line(8, k, "f32", "f16", "f16") for k in (8, 32)]
    found.append(line(8, 256, "s32", "b1", "b1", behind=".xor.popc"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100a"])
def test_the_table_has_what_ptxas_takes(target: str) -> None:
    """Slow: ptxas is run until it has named each of many lines that it refuses."""
    needs(target)
    isa.load()
    device = Target.parse(target)
    asked = lines()
    different = []
    for text, words in zip(asked, told_by_ptxas(asked, target), strict=True):
        opcode, *modifiers = re.split(r"\.", text.split()[0])
        ours = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if ours == bool(words):
            different.append(f"{text.split()[0]}: ptxas {words or 'takes it'}")
    assert different == []
