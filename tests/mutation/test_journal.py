"""The journal of mutants: known results are not computed again, and invalid entries are not used."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.model.load import load
from ptxdiff.mutation import campaign
from ptxdiff.mutation.campaign import Budget, MutationJournal, MutationRequest
from ptxdiff.records import Mutation, Survivor
from ptxdiff.running import reuse

CASE = '''
"""A complement."""

from ptxdiff import Case, asm
from ptxdiff.references.formats import U32


def complement(x):
    """Every bit."""
    return x ^ 0xFFFFFFFF


case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=complement,
    variants={"asm": asm("not.b32 $0, $1;"), "other": asm("xor.b32 $0, $1, 0xFFFFFFFF;")},
    source="made for this test",
)
'''
FEW = ["--bits", "12", "--inputs", "12"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "cases" / "kept.py"
    path.parent.mkdir()
    path.write_text(CASE)
    return path


def request(path: Path, **changed) -> MutationRequest:
    (loaded,) = load(path)
    given = {"loaded": loaded, "subject": "asm", "names": ("asm",), "target": "sm_90a", "budget": Budget()}
    return MutationRequest(**given | changed)


MADE = Mutation("kept", "asm", "asm", "sm_90a", {"opcode": 1})


def test_the_command_continues_where_it_was_stopped(path, tmp_path, capsys, monkeypatch):
    words = ["mutate", str(path), *FEW, "--format", "json", "--journal", str(tmp_path / "j.jsonl")]
    main(words)
    first = capsys.readouterr().out
    assert len(first.splitlines()) == 3
    lines = (tmp_path / "j.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "j.jsonl").write_text("".join(lines[:2]))
    ran = []
    plain = campaign.Subject.run
    monkeypatch.setattr(campaign.Subject, "run", lambda self, name: ran.append(name) or plain(self, name))
    main(words)
    again = capsys.readouterr().out
    unlike = [(a, b) for a, b in zip(first.splitlines(), again.splitlines(), strict=True) if a != b]
    assert len(unlike) <= 1  # the reference, which took another time
    ran.clear()
    main(words)
    assert capsys.readouterr().out == again
    assert ran == []


def test_a_journal_is_used_only_if_nothing_changed(path, tmp_path, monkeypatch):
    journal = MutationJournal(tmp_path / "j.jsonl")
    journal.keep(request(path), MADE)
    journal = MutationJournal(tmp_path / "j.jsonl")
    assert journal.find(request(path)) == MADE
    assert journal.find(request(path, names=("other",))) is None
    assert journal.find(request(path, subject="reference")) is None
    assert journal.find(request(path, target="sm_100a")) is None
    assert journal.find(request(path, budget=Budget(most=3))) is None
    assert journal.find(request(path, budget=Budget(seed=3))) is None
    (loaded,) = load(path)
    edge = replace(loaded, case=replace(loaded.case, hard_cases=[(5,)]))
    assert journal.find(request(path, loaded=edge)) is None
    judged = replace(loaded, case=replace(loaded.case, reference=lambda x: x ^ 0xFFFFFFFE))
    assert journal.find(request(path, loaded=judged)) is None
    assert journal.find(request(path)) == MADE
    monkeypatch.setattr(reuse, "_edited_meanwhile", lambda: True)
    assert journal.find(request(path)) is None


@pytest.mark.parametrize(
    "made",
    [
        Mutation("kept", "asm", "asm", "sm_90a", words="it does not pass unchanged on sm_90a: error"),
        Mutation("kept", "asm", "asm", "sm_90a", survivors=(Survivor("opcode", "a -> b", "undecided", "timeout"),)),
    ],
)
def test_undecided_mutants_are_not_stored(path, tmp_path, made):
    journal = MutationJournal(tmp_path / "j.jsonl")
    journal.keep(request(path), made)
    assert journal.find(request(path)) is None
    assert not (tmp_path / "j.jsonl").exists()


def test_an_incomplete_line_is_computed_again_and_an_unknown_one_refused(path, tmp_path, capsys):
    kept = tmp_path / "j.jsonl"
    MutationJournal(kept).keep(request(path), MADE)
    whole = kept.read_text()
    kept.write_text(whole + whole[:40])
    assert MutationJournal(kept).find(request(path)) == MADE
    assert kept.read_text() == whole
    kept.write_text(whole + json.dumps({"plan": 1}) + "\n")
    assert main(["mutate", str(path), "--journal", str(kept)]) == 2
    assert "j.jsonl:2 is no line of a mutation journal" in capsys.readouterr().err
