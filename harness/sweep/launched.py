"""Sweeps with a job's kernel in the process that owns the GPU, through `ptxdiff.sweep.device`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptxdiff.backends import gpu
from ptxdiff.backends.assembler import artifacts, refused
from ptxdiff.inputs import InputSet
from ptxdiff.jobs import Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.policies import Policies
from ptxdiff.sweep import OracleFault, Swept
from ptxdiff.sweep.device import DeviceSweep
from ptxdiff.sweep.devicetime import copy_floor
from ptxdiff.sweep.fused.writer import NotFused
from ptxdiff.sweep.kernels import chunk_job, unit_bytes
from ptxdiff.sweep.result import blocks_of
from ptxdiff.triton.build import Built
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import launch_of


def run(job: Job, policy: Policies, inputs: InputSet, made: Built | None = None) -> Swept:
    """Sweep a set that has a generator. Raises OracleFault if the fast judge and the plain one disagree.

    made: the kernel under test, if another process has built it (`ptxdiff.sweep.kernels.built_ahead`).

    The judge is one kernel if one can be made of the reference; otherwise it runs as eager operations.
    """
    try:
        return _run(job, policy, inputs, compiled=gpu.DEVICE != "cpu", made=made)
    except NotFused as error:
        swept = _run(job, policy, inputs, compiled=False)
        words = f"no kernel can be made of the reference, which ran as eager operations, slower: {_line(error)}"
        return replace(swept, notes=(words, *swept.notes))


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _run(job: Job, policy: Policies, inputs: InputSet, *, compiled: bool, made: Built | None = None) -> Swept:
    assert inputs.generator is not None
    job = chunk_job(job, inputs, compiled=compiled)
    try:
        launch = launch_of(job)
        if made is not None and gpu.is_of(launch, job.target, made):
            launch = replace(launch, made=made)
        built = launch.build(job.target)
    except (ValueError, TypeError) as error:
        return Swept(Outcome("error", str(error)), Judgement())
    if isinstance(built, Refusal):
        return Swept(refused(built), Judgement())
    views = {t.name: gpu.torch_dtype(t.format) for t in launch.tensors}

    def start(pointers: Mapping[str, Any]) -> None:
        gpu.start(job, launch, pointers)

    try:
        found = DeviceSweep(
            job, policy, inputs.generator, inputs.count, start, launch.tensors, views,
            device=gpu.DEVICE, compiled=compiled, first=inputs.first,
        ).run()  # fmt: skip
        floor = copy_floor(inputs.count * unit_bytes(job) // 2, gpu.DEVICE)
    except (OracleFault, NotFused):
        raise
    except Exception as error:
        return Swept(Outcome("error", gpu.fault_words(error), artifacts=artifacts(built)), Judgement())
    outcome = Outcome(
        "ran",
        findings=tuple(found.faults),
        evidence="hardware",
        contraction_open=job.setup.fusion and gpu.may_contract(built.compilation.ptx),
        artifacts=artifacts(built),
    )
    witness, place = _witness(inputs, found.failing, job.setup.pack)
    measured = {"seconds": round(found.seconds, 6), "copy": round(floor, 6)} if found.seconds else {}
    return Swept(
        outcome, found.judgement, blocks_of(found.sums, inputs.count), witness, place, tuple(found.notes), measured
    )


def _witness(inputs: InputSet, failing: int | None, pack: int) -> tuple[Mapping[str, Any], int]:
    """The pack of the first failing input, or the first pack."""
    place = 0 if failing is None else failing - inputs.first
    return inputs.take(place - place % pack, pack), place % pack
