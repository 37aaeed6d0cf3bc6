"""Programs with one illegal change: differences between the emulator and assemblers are reported and grouped."""

import dataclasses
import json
from pathlib import Path

import pytest

from ptxdiff.cli import main
from ptxdiff.fuzz import refusals as changes
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.execution import text_of
from ptxdiff.fuzz.generate import FAMILIES
from ptxdiff.fuzz.refusals import (
    CHANGES,
    EMULATOR,
    Illegal,
    RefusalCampaign,
    RefusalPlan,
    disagreement,
    emulator_refusal,
    illegal,
    small,
    tried,
    write_groups,
)
from ptxdiff.triton.from_ptx import header_fault
from ptxdiff.triton.targets import assembler as bundled
from tests.support.tritons import since

FLIPPING = str(Path(__file__).with_name("flipping_ptxas.sh"))
WEIGHTS = dict.fromkeys(FAMILIES, 1.0)
TARGET = "sm_90a"


def plan(path=FLIPPING, seed="t", **others):
    return RefusalPlan(seed, TARGET, 90, (assembler(path, 0),), WEIGHTS, **others)


def test_before_the_change_a_program_is_legal():
    for number in range(40):
        assert emulator_refusal(text_of([small(f"l/{number}", 90, WEIGHTS)], TARGET), TARGET) is None


def test_every_kind_of_change_is_made_and_one_place_differs():
    made = [illegal(f"k/{n}", 90, WEIGHTS, TARGET) for n in range(600)]
    assert {m.kind for m in made} == set(CHANGES)
    assert made[:5] == [illegal(f"k/{n}", 90, WEIGHTS, TARGET) for n in range(5)]
    refused = sum(emulator_refusal(m.text, TARGET) is not None for m in made)
    assert refused > 300


def test_an_assembler_that_accepts_everything_disagrees(tmp_path):
    """At -O0 the stand-in accepts every text, so that each refusal by the emulator is a disagreement."""
    run = RefusalCampaign(plan(), tmp_path / "journal.jsonl")
    run.take(0, *tried(plan(), 0))
    assert run.state.programs == 8
    assert run.state.groups
    for group in run.state.groups.values():
        assert (group.takes, group.refuses) == ((plan().assemblers[0].label,), (EMULATOR,))
    known = dataclasses.replace(plan(), avoid=frozenset(run.state.groups))
    again = RefusalCampaign(known, tmp_path / "other.jsonl")
    again.take(0, *tried(known, 0))
    assert (again.state.groups, again.state.known > 0) == ({}, True)


def test_a_journal_is_resumed_and_refuses_another_campaign(tmp_path):
    run = RefusalCampaign(plan(), tmp_path / "journal.jsonl")
    run.take(0, *tried(plan(), 0))
    again = RefusalCampaign(plan(), tmp_path / "journal.jsonl")
    assert again.state == run.state
    with pytest.raises(ValueError, match="another campaign"):
        RefusalCampaign(plan(seed="u"), tmp_path / "journal.jsonl")
    places = write_groups(tmp_path / "found", list(run.state.groups.values()))
    assert (tmp_path / "found" / "refusals.txt").read_text().splitlines() == sorted(
        run.state.groups, key=lambda s: (-run.state.groups[s].seen, s)
    )
    first = json.loads((places[0] / "refusal.json").read_text())
    assert (places[0] / "program.ptx").read_text() == first["text"]


def test_disagreements_of_judges_are_detected():
    made = Illegal("s", "a kind", "x by y", "add", "text")
    assert disagreement(made, {EMULATOR: None, "ptxas": None}) is None
    assert disagreement(made, {EMULATOR: "no", "ptxas": "no"}) is None
    one = disagreement(made, {EMULATOR: None, "ptxas": "line 3: 'add' of %r12"})
    same = disagreement(made, {EMULATOR: None, "ptxas": "line 4: 'sub' of %r7"})
    assert one.signature == same.signature
    failing = disagreement(made, {EMULATOR: "no", "ptxas": "fails: crashed: signal 11"})
    assert failing.refuses == ("ptxas",)
    assert emulator_refusal("this is no PTX", TARGET) is not None


def test_a_fault_of_the_emulator_itself_is_a_group(monkeypatch):
    from ptxdiff.emulator import InternalError

    def broken(text):
        raise InternalError("division by zero")

    monkeypatch.setattr("ptxdiff.fuzz.refusals.load_kernel.__wrapped__", broken)
    begun = f".version 8.1\n.target {TARGET}\n"
    found = disagreement(Illegal("s", "k", "c", "o", "t"), {EMULATOR: emulator_refusal(begun, TARGET), "ptxas": "no"})
    assert "the emulator fails" in found.signature


def test_the_command(tmp_path, capsys):
    words = ["fuzz", "--refusals", "--output", str(tmp_path), "--assembler", FLIPPING, "--opt", "0", "--jobs", "1"]
    assert main([*words, "--programs", "8"]) == 1
    said = capsys.readouterr().out
    assert "groups of disagreements" in said
    assert list(tmp_path.glob("refusal-01-*/program.ptx"))
    assert main([*words, "--programs", "8"]) == 2
    assert "--resume" in capsys.readouterr().err
    avoid = ["--avoid", str(tmp_path / "refusals.txt")]
    assert main([*words, *avoid, "--programs", "8", "--output", str(tmp_path / "next")]) == 0
    assert "more in known groups" in capsys.readouterr().out


LAX = {
    "is a special register, and cannot be declared": 'ISA 4.4: "PTX predefines one constant and a small number of '
    'special registers that begin with the percentage sign": a name that is predefined is declared already',
    "is no target; write one like": "ISA 11.1.2 lists the target strings, sm_90b is none; ptxas takes it for sm_90",
    "after the operands of": "ISA 6.4.1: register plus offset is an address, in brackets; ptxas takes %r0+4 elsewhere",
    "crashed": "ptxas 13.4 ends by a signal where ` %f1+4` stands for a register: a fault of its own",
}  # fmt: skip
"""Words of disagreements where ptxas accepts too much or crashes, with the sentence of the ISA."""
OPEN = {
    "bytes lie outside parameter": "the ISA does not say what lies behind a parameter: the emulator keeps to the "
    "parameter, ptxas reads its neighbours",
    "not allowed in st": "a vector with a .f16x2 register and others: the ISA's table of operand types has no such row",
}  # fmt: skip
"""Words of disagreements where the ISA is silent and the emulator refuses."""
NOT_ASKED = {
    "PTX ISA .version": "ISA 11.1.1: each instruction has its first version; the emulator goes by the newest text",
    "requires .target": "a target before sm_75, which no GPU of the harness has",
    "Unsupported .": "a version or target after this ptxas; the emulator names no last one",
}  # fmt: skip
"""Words of disagreements where the ISA forbids a text and the emulator accepts it, because the rule does not affect
bits."""
KNOWN = LAX | OPEN | NOT_ASKED


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (".version 8.1\n", "", "does not begin with .version"),
        (".version 8.1\n.target sm_90a\n", ".target sm_90a\n.version 8.1\n", "does not begin with .version"),
        (".version 8.1", ".version 7.8", "states .version 7.8, but .target sm_90a was introduced in PTX ISA 8.0"),
        ("sm_90a", "sm_90", None),
        (".version 8.1", "// a comment\n\n.version  8.10", None),
    ],
)
def test_a_module_begins_as_the_isa_says(old, new, words):
    text = text_of([small("l/1", 90, WEIGHTS)], TARGET)
    assert old in text
    said = emulator_refusal(text.replace(old, new), TARGET)
    assert (said is None) == (words is None), said
    assert words is None or words in said


@pytest.mark.parametrize(
    "target",
    ["sm_80", "sm_90a", "sm_100a", pytest.param("sm_110a", marks=since(3, 9, "its ptxas has no sm_110a")), "sm_121a"],
)
def test_programs_state_a_version_that_has_their_target(target):
    """Without such a version ptxas refuses every program for a later target, and a campaign tests nothing."""
    text = text_of([small("l/1", 80, WEIGHTS)], target)
    assert header_fault(text) == ""
    assert assembler(bundled(target).path, 0).assemble(text, target).ended == "assembled"


@pytest.mark.slow  # ptxas takes 40 ms for each program
def test_emulator_and_ptxas_agree_on_changed_programs(tmp_path):
    planned = plan(bundled(TARGET).path, seed="agreed")
    run = RefusalCampaign(planned, tmp_path / "journal.jsonl")
    for number in range(60):
        run.take(number, *tried(planned, number))
    new = [g for g in run.state.groups.values() if not any(k in " ".join(g.words) for k in KNOWN)]
    assert not new, "\n".join(f"{g.signature}\n  {g.change}" for g in new)


def test_changes_name_what_they_change():
    one = illegal("named/1", 90, WEIGHTS, TARGET)
    assert one.change
    assert one.kind in changes.CHANGES
