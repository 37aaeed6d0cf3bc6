"""Random programs whose machine code does not wait for a result: a finding of its own, whatever the bits are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxdiff.backends import create
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import MachineCodeInterpreter
from ptxdiff.fuzz.files import story
from ptxdiff.fuzz.judge import TOO_EARLY, BatchJudge, FuzzPlan, prepared
from ptxdiff.sass import text
from ptxdiff.triton.targets import assembler as bundled

TARGET = "sm_90a"


@pytest.fixture
def plan() -> FuzzPlan:
    if words := create("sass").unavailable(TARGET):
        pytest.skip(words)
    own = bundled(TARGET)
    one = assembler(own.path, 3, own.options)
    return FuzzPlan("early", TARGET, 90, (one,), {"integer": 1.0}, batch=2, interpreted=True)


def _judged(plan: FuzzPlan):
    return BatchJudge(plan, MachineCodeInterpreter(TARGET)).judge(prepared(plan, 0))


def test_a_wait_that_is_missing_is_found_and_reduced(plan, monkeypatch) -> None:
    """The waits are removed from the control codes, so the bits on the CPU stay right."""
    found = text.Control.of
    monkeypatch.setattr(text.Control, "of", lambda high: replace(found(high), waits=0))
    judged = _judged(plan)
    kinds = {f.kind for f in judged.findings}
    assert kinds == {TOO_EARLY}
    (first, *_) = judged.findings
    assert first.interpreted
    assert "nothing waits for scoreboard" in first.words
    assert first.words in story(first)
    assert first.size <= 2


def test_an_alarm_at_two_levels_is_one_finding_that_names_both(plan, monkeypatch) -> None:
    found = text.Control.of
    monkeypatch.setattr(text.Control, "of", lambda high: replace(found(high), waits=0))
    (level,) = plan.assemblers
    both = replace(plan, assemblers=(level, replace(level, choice=replace(level.choice, level=2))), batch=1)
    (first, *more) = _judged(both).findings
    assert first.assemblers == tuple(a.label for a in both.assemblers)
    assert more == []


def test_ptxas_waits(plan) -> None:
    assert [f.words for f in _judged(plan).findings] == []
