"""The table of wgmma's forms accepts exactly the shapes and types that ptxas accepts."""

from __future__ import annotations

import itertools
import re

import pytest

from ptxdiff.emulator import isa
from ptxdiff.emulator.isa.forms import find
from ptxdiff.emulator.numeric.tensorcore import BITS
from ptxdiff.emulator.targets import Target
from tests.support.emulator.legality import errors_of_ptxas, needs

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


def sparse(n: int, k: int, d: str, a: str, b: str, middle: str = "") -> str:
    """A line of wgmma.sp: with metadata, and with k as the ISA counts it, of which a stores half."""
    head, operands = line(n, k, d, a, b, middle).split(" ", 1)
    return f"{head.replace('.sync', '.sp.sync')} {operands.replace('%b64_1,', '%b64_1, %b32_0, 0,')}"


def sparse_lines() -> list[str]:
    found = []
    for n, d, a, b in itertools.product(COLUMNS, ACCUMULATORS, TYPES, TYPES):
        if a == b or BITS[a] == BITS[b] == 8:
            found.append(sparse(n, 512 // BITS[a], d, a, b))
            if d == "s32":
                found.append(sparse(n, 512 // BITS[a], d, a, b, ".satfinite"))
    found += [sparse(8, k, "f32", "f16", "f16") for k in (16, 64)]
    return found + [text.replace(".sp.", ".sp::ordered_metadata.") for text in found[-2:]]


def disagreements(texts: list[str], target: str) -> list[str]:
    needs(target)
    isa.load()
    device = Target.parse(target)
    found = []
    for text, words in zip(texts, errors_of_ptxas(texts, target), strict=True):
        opcode, *modifiers = re.split(r"\.", text.split()[0])
        accepted = any(f.requirement_unmet(device) is None for f in find(opcode, tuple(modifiers)))
        if accepted == bool(words):
            found.append(f"{text.split()[0]}: ptxas {words or 'accepts it'}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100a"])
def test_the_table_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the many lines that it refuses."""
    assert disagreements(lines(), target) == []


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90", "sm_90a", "sm_100a"])
def test_the_table_of_sparse_forms_accepts_what_ptxas_accepts(target: str) -> None:
    """Slow: ptxas runs again and again until it has named each of the many lines that it refuses.

    The lines name the same few registers, and ptxas then fails to allocate registers for more than 200 columns;
    `test_sparse_warpgroup` compares those forms with the ISA's list.
    """
    texts = sparse_lines()
    for n in COLUMNS:
        if n < 200 or n > 256:
            assert disagreements([text for text in texts if f".m64n{n}k" in text], target) == []
