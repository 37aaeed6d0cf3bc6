"""Asm that looks at the bits of a register beside its elements: the failure says so, whatever the wrong value is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton", reason="in asm alone these bits are undefined, and a finding says so")

from ptxdiff import Case, asm
from ptxdiff.backends import create
from ptxdiff.model.load import LoadedCase
from ptxdiff.references.formats import I8, U8, U16, Format
from ptxdiff.running.item import Item, ItemResults
from ptxdiff.running.run import run_item


def half(x: Any) -> Any:
    return x >> 1


def magnitude(x: Any) -> Any:
    return abs((x ^ 128) - 128) & 255


def ran(fmt: Format, reference: Any, text: str, constraints: str, pack: int = 1) -> ItemResults:
    case = Case(
        inputs={"x": fmt}, outputs={"y": fmt}, reference=reference, variants={"it": asm(text, constraints, pack=pack)}
    )
    loaded = LoadedCase(case, "case", "case", Path(__file__), "")
    return run_item(Item(loaded, "it", "sm_90a", "emulator"), create("emulator"), "quick")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("fmt", "reference", "text", "constraints", "words"),
    [
        (U8, half, "shr.u32 $0, $1, 1;", "=r,r", "at pack 1, $1 holds x in its lower 8 bits, and its upper 24 are"),
        (I8, magnitude, "abs.s32 $0, $1;", "=r,r", "clear them first (`and.b32 t, $1, 0xff;`), or extend the sign"),
        (U8, half, "shr.u16 $0, $1, 1;", "=h,h", "its upper 8 are undefined; clear them first (`and.b16 t, $1, 0xff;"),
        (U16, half, "shr.u32 $0, $1, 1;", "=r,r", "holds x in its lower 16 bits, and its upper 16 are undefined"),
    ],
)
def test_the_message_names_the_register_and_its_undefined_bits(
    fmt: Format, reference: Any, text: str, constraints: str, words: str
) -> None:
    failed = [r for r in ran(fmt, reference, text, constraints).results if r.verdict == "fail" and not r.findings]
    assert failed
    assert all(words in r.message and "a result depends on bits beside" in r.words for r in failed)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{ .reg .b32 t; and.b32 t, $1, 0xff; shr.u32 $0, t, 1; }", False),
        ("{ .reg .b32 t; bfe.u32 t, $1, 1, 7; mov.b32 $0, t; }", False),
        ("{ .reg .b32 t; and.b32 t, $1, 0xff; shr.u32 $0, t, 2; }", True),
    ],
)
def test_asm_that_clears_them_is_not_accused_of_it(text: str, wrong: bool) -> None:
    found = ran(U8, half, text, "=r,r")
    assert (found.verdict == "fail") == wrong
    assert not any("beside the elements" in r.message for r in found.results)
