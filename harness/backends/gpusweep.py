"""The gpu backend's sweeps: the kernel of a job, launched as ever, under `harness.sweep.device`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from harness.backends import Job, Outcome, gpu
from harness.backends.assembler import artifacts
from harness.case import Policies
from harness.inputs import InputSet
from harness.judge import Judgement
from harness.sweep import OracleFault, Swept
from harness.sweep.device import DeviceSweep, Findings, chunk_size, copy_floor
from harness.sweep.result import blocks_of
from harness.triton.diagnostics import Refusal
from harness.triton.launch import Launch, launch_of
from harness.triton.ptxtext import contraction_open

BLOCK = 1024  # elements a program: enough loads in flight to reach the memory's rate


def run(job: Job, policy: Policies, inputs: InputSet, fault: Callable[[Exception], str]) -> Swept:
    """Sweep a set that has a generator. Raises OracleFault where the fast judge and the plain one disagree."""
    assert inputs.generator is not None
    compiled = gpu.DEVICE != "cpu"
    unit_bytes = sum(f.unit_bits // 8 for f in inputs.generator.formats.values())
    unit_bytes += sum(t.format.unit_bits // 8 for t in launch_of(_sized(job, 1)).outputs)
    job = _sized(job, chunk_size(inputs.count, unit_bytes, compiled=compiled))
    try:
        launch = launch_of(job)
        built = launch.build(job.target)
    except (ValueError, TypeError) as error:
        return Swept(Outcome("error", str(error)), Judgement())
    if isinstance(built, Refusal):
        return Swept(Outcome(built.kind, built.words), Judgement())
    notes: list[str] = []
    try:
        found = _swept(job, policy, inputs, launch, compiled, notes)
        floor = copy_floor(inputs.count * unit_bytes // 2, gpu.DEVICE)
    except OracleFault:
        raise
    except Exception as error:
        return Swept(Outcome("error", fault(error), artifacts=artifacts(built)), Judgement())
    outcome = Outcome(
        "ran",
        findings=tuple(found.faults),
        evidence="hardware",
        contraction_open=job.setup.fusion and contraction_open(built.compilation.ptx),
        artifacts=artifacts(built),
    )
    witness, place = _witness(inputs, found.failing, job.setup.pack)
    measured = {"seconds": round(found.seconds, 6), "copy": round(floor, 6)} if found.seconds else {}
    blocks = blocks_of(found.sums, inputs.count)
    return Swept(outcome, found.judgement, blocks, witness, place, (*notes, *found.notes), measured)


def _sized(job: Job, size: int) -> Job:
    return replace(job, setup=replace(job.setup, shape=(size,), block=max(BLOCK, job.setup.block)))


def _swept(job: Job, policy: Policies, inputs: InputSet, launch: Launch, compiled: bool, notes: list[str]) -> Findings:
    """With the fused judge where torch can compile it, else with eager operations."""
    assert inputs.generator is not None

    def start(pointers: Mapping[str, Any]) -> None:
        gpu._start(job, launch, pointers)

    views = {t.name: getattr(torch, gpu._TORCH[t.format.element_type]) for t in launch.tensors}

    def sweep(compiled: bool) -> Findings:
        assert inputs.generator is not None
        return DeviceSweep(
            job,
            policy,
            inputs.generator,
            inputs.count,
            start,
            launch.tensors,
            views,
            device=gpu.DEVICE,
            compiled=compiled,
        ).run()

    if not compiled:
        return sweep(False)
    try:
        return sweep(True)
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        first = str(error).strip().partition("\n")[0]
        notes.append(f"torch.compile did not take the reference, which ran eagerly: {type(error).__name__}: {first}")
        return sweep(False)


def _witness(inputs: InputSet, failing: int | None, pack: int) -> tuple[Mapping[str, Any], int]:
    """The pack of the first failing input, or the first pack."""
    first = 0 if failing is None else failing - failing % pack
    return inputs.take(first, pack), 0 if failing is None else failing - first
