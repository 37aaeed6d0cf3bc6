"""Sweeps with a job's kernel in the process that owns the GPU, through `ptxdiff.sweep.device`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ptxdiff.backends import gpu
from ptxdiff.backends.assembler import artifacts, refused
from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.inputs.sets import generated_set
from ptxdiff.jobs import Backend, DeviceBackend, Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.reference import runs_on_host
from ptxdiff.sweep import OracleFault
from ptxdiff.sweep.chunks import sweep_in_chunks
from ptxdiff.sweep.device import DeviceSweep
from ptxdiff.sweep.device_time import copy_floor
from ptxdiff.sweep.fused.registers import asm_in_registers, sweep_in_registers
from ptxdiff.sweep.fused.translation import NotFused
from ptxdiff.sweep.kernels import built_ahead, chunk_job, unit_bytes
from ptxdiff.sweep.result import Swept, blocks_of
from ptxdiff.sweep.tuples import sweep_tuples
from ptxdiff.triton.build import Built
from ptxdiff.triton.diagnostics import Refusal
from ptxdiff.triton.launch import Launch, launch_of


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
    asm = asm_in_registers(job, inputs) if compiled else None

    try:
        found = DeviceSweep(
            job, policy, inputs.generator, inputs.count, starter(job, launch), launch.tensors, views,
            device=gpu.DEVICE, compiled=compiled, first=inputs.first,
            in_registers=None if asm is None else partial(sweep_in_registers, asm),
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


def starter(job: Job, launch: Launch) -> Callable[[Mapping[str, Any]], None]:
    """A function that launches the kernel on tensors by name.

    Preparing a launch takes longer than many kernels, so that of an elementwise kernel is kept for the same tensors; a
    whole kernel may have scratch memory, which must be new for each launch.
    """
    kept: list[tuple[list[Any], Callable[[], Any]]] = []

    def start(pointers: Mapping[str, Any]) -> None:
        tensors = list(pointers.values())
        if not (kept and all(a is b for a, b in zip(kept[0][0], tensors, strict=True))):
            kept[:] = [(tensors, gpu.prepared(job, launch, pointers))]
        kept[0][1]()
        if launch.elementwise is None:
            kept.clear()

    return start


def _witness(inputs: InputSet, failing: int | None, pack: int) -> tuple[Mapping[str, Any], int]:
    """The pack of the first failing input, or the first pack."""
    place = 0 if failing is None else failing - inputs.first
    return inputs.take(place - place % pack, pack), place % pack


@dataclass(frozen=True)
class SetRef:
    """A description of an input set that is computed from numbers, without its functions."""

    name: str
    count: int
    seed: int
    generator: Any
    first: int

    def input_set(self) -> InputSet:
        """The set."""
        return generated_set(self.name, self.count, self.seed, self.generator, self.first)


def sweep(
    backend: Backend, job: Job, policy: Policies, inputs: InputSet, judge: Callable[[Job, Outcome], Judgement]
) -> Swept:
    """Run and judge a large set: on the backend's device if possible, else in pieces with `judge`.

    Raises OracleFault if the fast judge on a device and the plain one disagree.
    """
    swept = _on_device(backend, job, policy, inputs) if isinstance(backend, DeviceBackend) else None
    if swept is None and isinstance(inputs.generator, CountedTuples) and inputs.group == job.setup.pack:
        return sweep_tuples(backend, job, inputs, judge)
    return swept if swept is not None else sweep_in_chunks(backend, job, inputs, judge)


def _on_device(backend: DeviceBackend, job: Job, policy: Policies, inputs: InputSet) -> Swept | None:
    """The sweep on the device; None if its inputs or its reference exist only on the host."""
    if inputs.generator is None or any(runs_on_host(r) for r in (policy.reference, job.case.reference)):
        return None
    if reason := backend.unavailable(job.target):
        return Swept(Outcome("not run", reason), Judgement())
    named = SetRef(inputs.name, inputs.count, inputs.seed, inputs.generator, inputs.first)
    outcome, swept = backend.on_device(f"{__name__}:sweep_here", job, named, built_ahead(job, inputs))
    assert swept is None or isinstance(swept, Swept)
    return replace(swept, outcome=outcome) if swept else Swept(outcome, Judgement())


def sweep_here(job: Job, named: SetRef, made: Built | None = None) -> tuple[Outcome, Swept]:
    """Sweep in the process that owns the device. made: see `ptxdiff.sweep.dispatch.run`."""

    swept = run(job, policies(job.case, job.variant), named.input_set(), made)
    return swept.outcome, swept
