"""A variant that is known to give other bits on a target: the case states it with a reason, and the gate checks the
bits."""

import dataclasses
import re
from pathlib import Path

import pytest

from ptxdiff import Case, Differs, asm
from ptxdiff.gating import baseline
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, gate
from ptxdiff.model.load import load
from ptxdiff.model.variants import CaseError
from ptxdiff.records import DECLARED, read
from ptxdiff.references.formats import U8
from tests.support.case_sources import FLIP

WHY = "adds a bit too many there"
DIFFERS = FLIP.replace('"=r,r", pack=4),\n    },', f'"=r,r", pack=4, differs={{"sm_90": "{WHY}"}}),\n    }},')


@pytest.fixture
def run(run_cases):
    """A function that runs a case file on one target and returns the exit code, the output and the records."""

    def run(text, target="sm_90a", name="run"):
        result = run_cases(f"--ptx-target={target}", f"--ptx-records={name}.jsonl", flip=text)
        return result.ret, result.stdout.str(), read(Path(f"{name}.jsonl"))

    return run


def test_declared_bits_are_an_expected_failure_with_their_reason(run):
    code, output, found = run(DIFFERS)
    assert code == 0, output
    wrong = [r for r in found.results if r.key.variant == "wrong" and r.total]
    assert wrong
    assert {(r.outcome, r.diagnosis) for r in wrong} == {("expected failure", DECLARED)}
    assert all(r.words.startswith(f"on sm_90a: {WHY} (") and r.different for r in wrong)
    info = found.cases["flip"].variants["wrong"]
    assert info.expected_failure == f"other bits on sm_90a: {WHY}"


def test_it_fails_on_other_targets(run):
    code, _, found = run(DIFFERS, "sm_100a")
    assert code == 1
    assert {r.outcome for r in found.results if r.key.variant == "wrong" and r.total} == {"fail"}


def test_right_bits_where_others_are_declared_fail(run):
    text = DIFFERS.replace("0x01010181", "0x01010101")
    code, output, _ = run(text)
    assert code == 1
    assert re.search(rf"declared to give other bits on sm_90a \({WHY}\) and did not", output)


def test_the_gate_accepts_only_the_bits_that_a_baseline_accepted(run):
    _, _, found = run(DIFFERS)
    decision = gate(found, dataclasses.replace(baseline.accepted(found), results=[]))
    assert decision.code == CORRECTNESS
    assert any("no baseline has accepted these bits" in f.text and WHY in f.text for f in decision.findings)
    accepted = baseline.accepted(found)
    again = gate(found, accepted)
    assert again.code == ACCEPTED
    assert any(WHY in f.text for f in again.findings)
    _, _, other = run(DIFFERS.replace("0x01010181", "0x01010141"), name="other")
    assert gate(other, accepted).code == CORRECTNESS


HELD = (
    FLIP.replace("import Case, asm", "import Case, Differs, asm")
    .replace('"=r,r", pack=4),\n    },', f'"=r,r", pack=4, differs={{"sm_90": Differs("{WHY}", other)}}),\n    }},')
    .replace("case = Case(", "def other(x):\n    return x ^ OTHER\n\n\ncase = Case(")
)
# The wrong variant flips another bit in one element of four, which no function of an element can express; here in all
# four.
EVERYWHERE = HELD.replace("0x01010181", "0x81818181").replace("OTHER", "0x81")


def outcomes(found):
    return {(r.key.target, r.outcome) for r in found.results if r.key.variant == "wrong" and r.total}


def test_a_reference_for_a_target_is_used_only_on_that_target(run_cases):
    """In one run, whose judgements are cached, the same bits are right on one target and wrong on the others."""
    targets = [f"--ptx-target={t}" for t in ("sm_80", "sm_90a", "sm_100a")]
    result = run_cases(*targets, "--ptx-records=run.jsonl", flip=EVERYWHERE)
    found = read(Path("run.jsonl"))
    assert outcomes(found) == {("sm_80", "fail"), ("sm_90a", "pass"), ("sm_100a", "fail")}, result.stdout.str()
    info = found.cases["flip"].variants["wrong"]
    assert (info.expected_failure, f"on sm_90a held to other: {WHY}" in info.note) == ("", True)


@pytest.mark.parametrize(
    "text", [EVERYWHERE.replace("x ^ 0x81", "x ^ 0x83"), EVERYWHERE.replace("0x81818181", "0x01010101")]
)
def test_other_bits_than_those_of_the_targets_reference_fail(run, text):
    """The bits of the case's own reference fail, too."""
    code, output, found = run(text)
    assert code == 1
    assert outcomes(found) == {("sm_90a", "fail")}, output


def test_a_changed_reference_of_a_target_changes_results_there(tmp_path):
    from ptxdiff.model.identity.definition import changed_parts
    from ptxdiff.running.item import Item, fingerprint_of

    texts = {"a": EVERYWHERE, "b": EVERYWHERE.replace("x ^ 0x81", "x ^ 0x83")}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
    for target, changed in (("sm_90a", ("reference",)), ("sm_100a", ("differs",))):
        one, two = (
            fingerprint_of(Item(load(tmp_path / f"{name}.py")[0], "wrong", target, "emulator")) for name in texts
        )
        assert changed_parts(one, two) == changed


@pytest.mark.parametrize(
    ("differs", "options", "words"),
    [
        ({"sm_1": "why"}, {}, "'sm_1' is no target"),
        ({"sm_90": ""}, {}, "gives no reason for sm_90a"),
        ("sm_90", {}, "write differs={'sm_90': 'the reason'}"),
        ({"sm_90": Differs("", len)}, {}, "gives no reason for sm_90a"),
        ({"sm_90": Differs("why", None)}, {}, "None is no function of codes"),
        ({"sm_80": "why"}, {"targets": "sm_90"}, "which targets= leaves out"),
    ],
)
def test_impossible_declarations_are_refused(differs, options, words):
    with pytest.raises(CaseError, match=re.escape(words)):
        Case(
            inputs={"x": U8},
            outputs={"y": U8},
            reference=lambda x: x,
            variants={"v": asm("mov.b32 $0, $1;", constraints="=r,r", pack=4, differs=differs, **options)},
        )


def test_the_declaration_belongs_to_the_definition(tmp_path):
    from ptxdiff.model.identity.definition import changed_parts, definition

    texts = {"plain": FLIP, "declared": DIFFERS}
    found = {}
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        [loaded] = load(tmp_path / f"{name}.py")
        found[name] = definition(loaded.case, loaded.case.variants["wrong"])
    assert changed_parts(found["plain"], found["declared"]) == ("differs",)
