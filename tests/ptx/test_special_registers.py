"""Special registers: which targets have them, which moves read them, as ptxas says; and what computes nothing."""

from __future__ import annotations

import numpy as np
import pytest
from legality import check, told_by_emulate

from harness.ptx import emulate
from harness.ptx.isa import load
from harness.ptx.isa.registry import FORMS, REFUSED
from harness.ptx.operations import BINDERS
from harness.ptx.special import SPECIAL_REGISTERS

MOVES = {"u32": ("u32", "b32", "s32", "f32"), "u64": ("u64", "b64", "f64"), "pred": ("pred",)}
WORDS = "{%b32_0, %b32_1, %b32_2, %b32_3}"
HALVES = "{%b16_0, %b16_1, %b16_2, %b16_3}"


def reads() -> list[str]:
    """Moves of every special register in its own and in other sizes."""
    lines = []
    for name, (kind, vector) in SPECIAL_REGISTERS.items():
        if name[-1] in "0123456789" and name != "%pm3":
            continue
        part = ".y" if vector else ""
        for move in (*MOVES[kind], "u16", "u32", "u64"):
            register = "%pred_0" if move == "pred" else f"%b{move[1:]}_0"
            lines.append(f"mov.{move} {register}, {name}{part};")
        if vector:
            lines += [f"mov.v4.u32 {WORDS}, {name};", f"mov.v4.f32 {WORDS}, {name};", f"mov.v4.u16 {HALVES}, {name};"]
    return list(dict.fromkeys(lines))


NOTHING = [
    *(f"pmevent {what};" for what in ("0", "15", "16", "-1", "1.0", "%b32_0")),
    *(f"pmevent.mask {what};" for what in ("1", "65535", "65536", "%b32_0")),
    *(f"nanosleep.u32 {what};" for what in ("20", "-1", "%b32_0", "%f32_0", "1.0", "1, 2", "%b64_0")),
    "pmevent;",
    "nanosleep.u32;",
]


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90a", "sm_107a"])
def test_reads_as_ptxas_takes_them(target: str) -> None:
    check(reads() + NOTHING, target)


def test_a_register_that_the_target_lacks_is_named() -> None:
    told = told_by_emulate("mov.u32 %b32_0, %cluster_ctarank;", "sm_89")
    assert told
    assert "%cluster_ctarank needs sm_90 and later; the target is sm_89" in told
    assert told_by_emulate("mov.u32 %b32_0, %cluster_ctarank;", "sm_90") is None


def test_what_names_system_memory_reads_as_zero() -> None:
    asm = "{ .reg .b32 x; mov.b32 x, %reserved_smem_offset_1; add.u32 $0, $1, x; }"
    assert emulate(asm, "=r,r", [np.uint32([5])], "uint32").tolist() == [5]


def test_every_operation_runs_in_a_snippet_or_is_refused_in_words() -> None:
    load()
    here = {name for name, binder in BINDERS.items() if binder.__module__ == "harness.ptx.operations"}
    for opcode, forms in FORMS.items():
        assert opcode in REFUSED or all(not f.operation or f.operation in here for f in forms), opcode
