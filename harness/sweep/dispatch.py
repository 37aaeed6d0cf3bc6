"""Run and judge a large set on the backend's device, or in pieces in this process.

The process that owns the device gets the set by name, and makes, runs and judges it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ptxdiff.inputs import InputSet
from ptxdiff.inputs.generated import CountedTuples
from ptxdiff.inputs.sets import generated_set
from ptxdiff.jobs import Backend, DeviceBackend, Job, Outcome
from ptxdiff.judging.judge import Judgement
from ptxdiff.model.policies import Policies, policies
from ptxdiff.model.reference import runs_on_host
from ptxdiff.sweep.chunks import sweep_in_chunks
from ptxdiff.sweep.kernels import built_ahead
from ptxdiff.sweep.result import Swept
from ptxdiff.sweep.tuples import sweep_tuples
from ptxdiff.triton.build import Built


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
    """Sweep in the process that owns the device. made: see `ptxdiff.sweep.launched.run`."""
    from ptxdiff.sweep.launched import run

    swept = run(job, policies(job.case, job.variant), named.input_set(), made)
    return swept.outcome, swept
