"""Assemblers on trial on a real device: a planted fault is found, and the assembler's own code agrees."""

import pytest

from harness.fuzz.assemblers import assembler
from harness.fuzz.campaign import FuzzCampaign
from harness.fuzz.execution import GpuRunner
from harness.fuzz.families import FAMILIES
from harness.fuzz.judge import FuzzPlan
from harness.model.targets import capability
from harness.processes.child import of_target
from harness.processes.gpus import gpu_visible, gpus
from harness.triton.targets import assembler as bundled

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


def test_an_assembler_that_flips_an_instruction_is_found_and_its_programs_cut_down(tmp_path, runner, target):
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
    assert all("xor.b32" in f.skeleton.split() and f.size <= 3 for f in wrong)
    assert all(label.endswith("-O1") for f in wrong for label in f.assemblers)


def test_unoptimised_code_gives_the_emulators_bits(tmp_path, runner, target):
    plan = FuzzPlan(
        "agrees", target, capability(target), (assembler(bundled(target).path, 0),), dict.fromkeys(FAMILIES, 1.0)
    )
    state = FuzzCampaign(plan, runner, tmp_path / "journal.jsonl", jobs=8).run(300, 512)
    assert state.programs == 512
    assert not state.findings, [(f.kind, f.skeleton, f.words) for f in state.findings.values()]
