"""The sass backend: results only from forms that are taught, and only with the bits of the PTX."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import ptxdiff
from ptxdiff.backends import BACKENDS, create
from ptxdiff.conformance import taught
from ptxdiff.jobs import Job, Setup, block_of
from ptxdiff.references.formats import F32, U32
from ptxdiff.sass import rows, text

TARGET = "sm_90a"
SUM = ptxdiff.Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x + 1,
    variants={"add": ptxdiff.asm("add.u32 $0, $1, 1;", "=r,r")},
)  # fmt: skip
FUSED = ptxdiff.Case(
    inputs={"x": F32}, outputs={"y": F32}, reference=lambda x: x,
    variants={"mul": ptxdiff.asm("mul.f32 $0, $1, $1;", "=r,r")},
)  # fmt: skip


def _job(case: ptxdiff.Case, inputs: np.ndarray) -> Job:
    (name,) = case.variants
    setup = Setup(shape=inputs.shape, block=block_of(1))
    return Job(case, "case", Path(__file__), name, case.variants[name], TARGET, setup, {"x": inputs})


@pytest.fixture
def backend():
    made = create("sass")
    if words := made.unavailable(TARGET):
        pytest.skip(words)
    return made


def test_it_is_a_backend_that_auto_leaves_out() -> None:
    assert not BACKENDS["sass"].automatic


def test_it_runs_a_kernel(backend) -> None:
    values = np.arange(300, dtype=np.uint32)
    outcome = backend.run(_job(SUM, values))
    assert outcome.status == "ran", outcome.words
    assert (outcome.outputs["y"] == values + 1).all()
    assert outcome.evidence == "model"
    assert outcome.identity
    assert any("timing" in note for note in outcome.notes)


def test_a_form_that_is_not_taught_gives_no_result(backend, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(taught, "PATH", tmp_path / "none.jsonl")
    outcome = backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))
    assert outcome.status == "not run"
    assert "unsettled" in outcome.words
    assert "not taught" in outcome.words


def test_a_difference_from_the_ptx_accuses_nobody(backend, monkeypatch) -> None:
    """A wrong row that counts as taught: the words have both words, and no verdict rests on it."""
    planted = [
        rows.InstructionRow(r.name, r.opcodes, r.fixed, r.flags, r.choices, r.shapes, _bigger)
        for r in rows.ROWS["FMUL"]
    ]
    monkeypatch.setitem(rows.ROWS, "FMUL", planted)
    outcome = backend.run(_job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32)))
    assert outcome.status == "not run"
    assert "0x40100001" in outcome.words
    assert "0x40100000" in outcome.words


def _bigger(a: int, b: int) -> int:
    return 0x40100001


def test_an_instruction_without_a_row_gives_no_result(backend, monkeypatch) -> None:
    monkeypatch.delitem(rows.ROWS, "FMUL")
    outcome = backend.run(_job(FUSED, np.full(300, 1.5, np.float32).view(np.uint32)))
    assert outcome.status == "not run"
    assert "FMUL" in outcome.words


def test_a_result_that_is_used_too_early_is_a_finding_of_its_own(backend, monkeypatch) -> None:
    """The wait of the instruction that uses what was loaded is removed from the control codes."""
    found = text.Control.of
    monkeypatch.setattr(text.Control, "of", lambda high: replace(found(high), waits=0))
    outcome = backend.run(_job(SUM, np.arange(300, dtype=np.uint32)))
    assert outcome.status == "not run"
    assert "unsettled: machine code uses a result too early: 0x" in outcome.words
    assert not outcome.suspected
