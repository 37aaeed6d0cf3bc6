"""What random programs teach of machine instructions without a row."""

from __future__ import annotations

import dataclasses
import functools
import json

import pytest

from ptxdiff.conformance import taught, teaching
from ptxdiff.fuzz import move_kernels
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.lessons import move_lessons
from ptxdiff.sass import control
from ptxdiff.triton.targets import assembler as bundled

TARGET = "sm_90a"


@pytest.mark.slow
def test_the_ledger_of_moves_is_of_these_steps() -> None:
    """A step that changed since is not believed, and no machine code that has it accuses ptxas."""
    lessons, differing = move_lessons("sm_90a", programs=32)
    assert differing == []
    entries = [json.loads(line) for line in taught.MOVES.read_text().splitlines()]
    known = {e["form"]: e["digest"] for e in entries if e["target"] == "sm_90a"}
    stale = {form for form, digest in lessons.agreed if known.get(form, digest) != digest}
    assert stale == set(), "teach them again: ptxdiff conformance --teach programs --write"
    assert {"RET.REL.NODEC R,label", "BSYNC B", "LDS R,[R]"} <= {form for form, _ in lessons.agreed} & known.keys()


def test_kernels_teach_loads_of_each_width_and_special_registers() -> None:
    lessons, differing = _of_right_kernels()
    assert differing == []
    agreed = {form for form, _ in lessons.agreed}
    narrow = {f"LDG.E.{kind} R,[R64]" for kind in ("U8", "S8", "U16", "S16")}
    assert {*narrow, "LDC R,c[R]", "S2R R,SR_GTMASK"} <= agreed
    known = {(e["target"], e["form"]) for e in map(json.loads, taught.MOVES.read_text().splitlines())}
    assert {(TARGET, form) for form in agreed} <= known


def test_a_planted_mistake_in_a_narrow_load_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    right = control.as_words

    def without_sign(rows, size, signed):
        return right(rows, size, 0)

    monkeypatch.setattr(control, "as_words", without_sign)
    lessons, differing = _of_kernels()
    assert "LDC.S8 R,c[R]" in {form for form, _ in lessons.differed}
    assert any("table s8 by thread" in words for words in differing)


@pytest.mark.slow
def test_kernels_teach_predicates_that_are_kept_as_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, differing = _of_right_kernels()
    assert differing == []
    bits = {"P2R R,PR,R,int", "R2P PR,R,int", *(f"R2P PR,RB{k},int" for k in (1, 2, 3))}
    assert bits <= {form for form, _ in lessons.agreed}
    for step in (control.PredicatesAsBits, control.PredicatesFromByte):
        monkeypatch.setattr(step, "run", _with_another_bit(step.run))
    lessons, _ = _of_kernels()
    assert bits <= {form for form, _ in lessons.differed}


@pytest.mark.slow
def test_kernels_teach_a_branch_that_all_lanes_take_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, differing = _of_right_kernels()
    assert differing == []
    assert "BRA.U label" in {form for form, _ in lessons.agreed}
    monkeypatch.setattr(control.UnanimousBranch, "run", _of_each_lane)
    lessons, differing = _of_kernels()
    assert "BRA.U label" in {form for form, _ in lessons.differed}
    assert differing
    assert all("around a loop" in words for words in differing)


@pytest.mark.slow
@pytest.mark.parametrize("step", [control.Exit.run, control.Nop.run], ids=["by the guard alone", "nobody"])
def test_kernels_teach_an_end_under_two_predicates(step, monkeypatch: pytest.MonkeyPatch) -> None:
    lessons, differing = _of_right_kernels()
    assert differing == []
    assert "EXIT P" in {form for form, _ in lessons.agreed}
    monkeypatch.setattr(control.ExitUnder, "run", step)
    lessons, differing = _of_kernels()
    assert "EXIT P" in {form for form, _ in lessons.differed}
    assert differing
    assert all("an end of lanes" in words for words in differing)


def _at_the_register_rz(step):
    step.where = dataclasses.replace(step.where, base=dataclasses.replace(step.where.base, number=-1))


def _without_offset(step):
    step.where = dataclasses.replace(step.where, offset=0)


@pytest.mark.parametrize("mistake", [_at_the_register_rz, _without_offset])
def test_kernels_teach_addresses_of_32_bits(mistake, monkeypatch: pytest.MonkeyPatch) -> None:
    forms = {"LDG.E.S16.SYS R,[RU32+UR]", "STG.E.64.SYS [RU32+UR],R", "STG.E.U8.SYS [RU32+UR],R"}
    lessons, differing = _of_kernels("sm_75")
    assert differing == []
    assert {*forms, "LDS.U.S16 R,[R]", "STS.U8 [R],R"} <= {form for form, _ in lessons.agreed}
    right = control.ShortAddress.run

    def planted(self, machine, fibre):
        where = self.where
        mistake(self)
        try:
            return right(self, machine, fibre)
        finally:
            self.where = where

    monkeypatch.setattr(control.ShortAddress, "run", planted)
    lessons, differing = _of_kernels("sm_75")
    assert differing
    assert all("at a word" in words for words in differing)
    believed = {form for form, _ in lessons.agreed} - {form for form, _ in lessons.differed}
    assert not believed & forms or any("lies in no buffer" in words for words in differing)


def test_kernels_teach_the_order_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads of 64 bits with their words exchanged differ."""
    words = control.as_words

    def exchanged(rows, size, signed):
        found = words(rows, size, signed)
        return found[::-1] if size == 8 else found

    monkeypatch.setattr(control, "as_words", exchanged)
    lessons, _ = _of_kernels("sm_75")
    assert {"LDG.E.64.SYS R,[RU32+UR]", "LDG.E.64.SYS R,[R]"} <= {form for form, _ in lessons.differed}


def _of_each_lane(self, machine, fibre):
    """The branch as if each lane with the predicate took it."""
    lanes, count = machine.guarded(self.instruction.guard, fibre.lanes)
    return machine.branch(fibre, lanes, count, self.target)


def _with_another_bit(run):
    """The same step, but P2R keeps two other predicates, and R2P gives P0 the opposite bit."""

    def planted(self, machine, fibre):
        kept, lanes = self.mask, fibre.lanes
        if self.instruction.opcode == "P2R":
            self.mask ^= 3
        goes_on = run(self, machine, fibre)
        self.mask = kept
        if self.instruction.opcode == "R2P":
            machine.write("P", 0, lanes, machine.read("P", 0, lanes) ^ 1)
        return goes_on

    return planted


@functools.cache
def _of_right_kernels() -> tuple[teaching.MoveLessons, list[str]]:
    """Those of the steps as they are; the tests plant mistakes in them afterwards."""
    return _of_kernels()


def _of_kernels(target: str = TARGET) -> tuple[teaching.MoveLessons, list[str]]:
    own, lessons = bundled(target), teaching.MoveLessons()
    return lessons, move_kernels.taught(target, assembler(own.path, 3, own.options), lessons)
