"""Records of machine code that ran on the CPU: accepted, resumed and compared like others, and refused like others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ptxdiff.backends import create
from ptxdiff.conformance import taught
from ptxdiff.gating import baseline, digests
from ptxdiff.gating.gate import ACCEPTED, CORRECTNESS, Policy, gate
from ptxdiff.records import read
from ptxdiff.records.compare import compare

CASE = """
from ptxdiff import Case, asm
from ptxdiff.references.formats import U32

case = Case(
    inputs={"x": U32}, outputs={"y": U32}, reference=lambda x: x ^ 6,
    variants={"flip": asm("xor.b32 $0, $1, 6;", constraints="=r,r", pack=1)},
)
"""
SASS = ("--ptx-backend=auto", "--ptx-target=sm_90a", "-k", "sass")
"""The smaller plan of `auto`: each kernel that is not kept costs a start of nvdisasm."""
MODELS = Policy(allow_model=True)


@pytest.fixture(scope="module", autouse=True)
def _available() -> None:
    if words := create("sass").unavailable("sm_90a"):
        pytest.skip(words)


@pytest.fixture
def records(run_cases, pytester):
    """Run a case as machine code. Returns the records."""

    def run(name: str, *arguments: str, case: str = CASE):
        run_cases(*SASS, f"--ptx-records={name}.jsonl", *arguments, folder=f"{name}/cases", flip=case)
        return read(pytester.path / f"{name}.jsonl")

    return run


@pytest.fixture
def nothing_taught(monkeypatch, tmp_path):
    """No form of machine code is believed on any target."""
    empty = tmp_path / "nothing.jsonl"
    empty.touch()
    monkeypatch.setattr(taught, "PATH", empty)


def test_the_accepted_machine_code_is_accepted_again_and_digests_hold_it(records, tmp_path):
    run = records("one")
    assert {(r.key.backend, r.verdict) for r in run.results} == {("sass", "pass")}
    assert gate(run, baseline.accepted(run), MODELS).code == ACCEPTED
    digests.write(digests.condensed(run), tmp_path / "digests")
    assert digests.decided(run, digests.load(tmp_path / "digests"), MODELS).code == ACCEPTED


def test_machine_code_alone_satisfies_no_gate_that_asks_for_more_than_a_model(records):
    run = records("one")
    assert gate(run, baseline.accepted(run), Policy()).code == CORRECTNESS


@pytest.mark.parametrize("against", ["records", "digests"])
def test_other_bits_of_machine_code_are_refused(records, tmp_path, against):
    run = records("one")
    digests.write(digests.condensed(run), tmp_path / "digests")
    first, *others = run.results
    block = replace(first.outputs_digest[0], digest="0" * len(first.outputs_digest[0].digest))
    changed = replace(run, results=[replace(first, outputs_digest=(block, *first.outputs_digest[1:])), *others])
    if against == "records":
        decision = gate(changed, baseline.accepted(run), MODELS)
    else:
        decision = digests.decided(changed, digests.load(tmp_path / "digests"), MODELS)
    assert decision.code == CORRECTNESS
    assert any("bits changed on sm_90a (sass)" in f.text for f in decision.findings), decision.findings


def test_a_pass_whose_forms_are_no_longer_believed_is_missed(records, request):
    before = records("one")
    request.getfixturevalue("nothing_taught")
    after = records("two")
    assert {r.verdict for r in after.results} == {"not run"}
    assert gate(after, baseline.accepted(before), MODELS).code == CORRECTNESS


def test_machine_code_of_two_levels_has_two_keys_and_compares_as_equal(records):
    both = records("both", "--ptx-opt=0", "--ptx-opt=3")
    by = {r.key.assembler for r in both.results}
    assert len(by) == 2
    assert all(r.ptxas for r in both.results)
    one, other = (replace(both, results=[r for r in both.results if r.key.assembler == name]) for name in sorted(by))
    assert not compare(one, one).differences
    assert {d.kind for d in compare(one, other).differences} == {"vanished", "new"}


def test_a_resumed_run_keeps_machine_code_of_the_same_definition_alone(run_cases, pytester):
    options = (*SASS, "--ptx-records=run.jsonl", "--ptx-resume")
    run_cases(*options, flip=CASE).assert_outcomes(passed=1)
    first = read(pytester.path / "run.jsonl")
    run_cases(*options, flip=CASE)
    assert read(pytester.path / "run.jsonl").results == first.results
    wrong = CASE.replace("$1, 6;", "$1, 7;")
    result = run_cases(*options, folder="after/cases", flip=wrong)
    result.stdout.fnmatch_lines(["*--ptx-resume: the records hold results of an earlier definition *changed*"])
