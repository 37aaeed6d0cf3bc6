"""Assemblers on trial on a real device: a planted fault is found, and code of the real assembler agrees."""

import pytest

from ptxdiff.backends import create
from ptxdiff.fuzz.assemblers import assembler
from ptxdiff.fuzz.campaign import FuzzCampaign, finding_of
from ptxdiff.fuzz.execution import GpuRunner, text_of
from ptxdiff.fuzz.files import write
from ptxdiff.fuzz.generate import FAMILIES
from ptxdiff.fuzz.judge import FuzzPlan
from ptxdiff.fuzz.program import RandomProgram, Statement, Variable
from ptxdiff.model.load import load
from ptxdiff.model.targets import capability
from ptxdiff.processes.child import of_target
from ptxdiff.processes.gpus import gpu_visible, gpus
from ptxdiff.running.item import Item
from ptxdiff.running.run import run_item
from ptxdiff.triton.ptxas import assembler_at
from ptxdiff.triton.targets import assembler as bundled

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not gpu_visible(), reason="needs an NVIDIA GPU: none is visible"),
]
WRAPPER = """#!/bin/sh
for word; do case $word in --version) exec {ptxas} --version ;; -O0) right=1 ;; *.ptx) source=$word ;; esac; done
[ "$right" ] || sed -i 's/xor.b32/or.b32/' "$source"
exec {ptxas} "$@"
"""


@pytest.fixture(scope="module")
def target():
    return gpus()[0].target


@pytest.fixture(scope="module")
def runner(target):
    return GpuRunner(of_target(target))


def test_an_assembler_that_changes_an_instruction_is_found_and_the_programs_are_reduced(tmp_path, runner, target):
    wrapper = tmp_path / "ptxas"
    wrapper.write_text(WRAPPER.format(ptxas=bundled(target).path))
    wrapper.chmod(0o755)
    plan = FuzzPlan(
        "planted",
        target,
        capability(target),
        tuple(assembler(str(wrapper), level) for level in (0, 1)),
        {"bits": 1.0},
        batch=8,
    )
    state = FuzzCampaign(plan, runner, tmp_path / "journal.jsonl", jobs=2).run(120, 16)
    wrong = [f for f in state.findings.values() if f.kind == "wrong"]
    assert wrong
    assert [f.skeleton for f in wrong if "xor.b32" not in f.skeleton.split() or f.size > 3] == []
    assert [f.assemblers for f in wrong if not all("-O1" in label.split() for label in f.assemblers)] == []


def test_the_case_of_a_finding_passes_with_the_faulty_assembler_and_fails_with_a_repaired_one(tmp_path, target):
    pytest.importorskip("torch")
    made = tmp_path / "ptxas"
    made.write_text(WRAPPER.format(ptxas=bundled(target).path))
    made.chmod(0o755)
    faulty, right = (assembler(str(made), level) for level in (1, 0))
    program = text_of([flipped()], target)
    fields = {"kind": "wrong", "seed": "f/1", "assemblers": [faulty.label], "right": [right.label], "size": 1}
    words = {"skeleton": "xor.b32", "text": program, "inputs": [1] * 4, "expected": [0] * 4, "given": [1] * 4}
    (place,) = write(tmp_path / "found", [finding_of(fields | words)], (), target)
    (loaded,) = load(place / "case.py")
    item, backend = Item(loaded, "program", target, "gpu"), create("gpu")

    def ran(path, level):
        return run_item(item, backend, "quick", assemblers=(assembler_at(path, level),))

    done = ran(made, 1)
    assert any(r.expected_failure for r in done.results), done.results[-1].message
    assert all(r.expected_failure or r.verdict == "pass" for r in done.results)
    assert ran(made, 0).verdict == "pass"
    made.write_text(WRAPPER.format(ptxas=bundled(target).path).replace("s/xor.b32/or.b32/", "s/xor.b32/xor.b32/"))
    assert ran(made, 1).verdict == "fail"


def flipped():
    """A program of one exclusive or."""
    statement = Statement("xor.b32 {w0}, {r0}, {r1};", (Variable("r", 9),), (Variable("r", 0), Variable("r", 1)))
    return RandomProgram((statement,), (Variable("r", 9), "0", "0", "0"))


def test_unoptimised_code_gives_the_emulators_bits(tmp_path, runner, target):
    plan = FuzzPlan(
        "agrees", target, capability(target), (assembler(bundled(target).path, 0),), dict.fromkeys(FAMILIES, 1.0)
    )
    state = FuzzCampaign(plan, runner, tmp_path / "journal.jsonl", jobs=8).run(300, 512)
    assert state.programs == 512
    assert not state.findings, [(f.kind, f.skeleton, f.words) for f in state.findings.values()]
