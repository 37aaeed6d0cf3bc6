"""The loop and shared contexts: each must give the bits that the same variant gives in the straight context."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.snippet import fed_back
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.judge import Judgement, judge_same
from ptxdiff.model.reference import ReferenceFault


class NoStraightRun(ReferenceFault):
    """The straight run that another context must equal has no bits."""

    def __init__(self, words: str, outcome: Outcome) -> None:
        super().__init__(words)
        self.outcome = outcome


Units = Mapping[str, NDArray[np.generic]]


def run_loop(backend: Backend, job: Job, carry: Mapping[str, str]) -> tuple[Job, Outcome, Judgement]:
    """Run loops of one step, two steps, and so on, up to the job's; each must equal the same number of straight runs.

    Returns job, outcome and judgement of the first loop that differs, or else of the last. Raises ReferenceFault.
    """
    try:
        return _run_loop(backend, job, carry)
    except NoStraightRun as missing:
        if missing.outcome.status != "not run":
            raise
        return job, replace(missing.outcome, suspected={}), Judgement()


def _run_loop(backend: Backend, job: Job, carry: Mapping[str, str]) -> tuple[Job, Outcome, Judgement]:
    part, outcome, judgement = job, Outcome("not run", "a loop of no steps"), Judgement()
    for steps, straight in enumerate(_straight(backend, job, carry), 1):
        part = replace(job, setup=replace(job.setup, steps=steps))
        outcome = backend.run(part)
        if outcome.status != "ran" or not outcome.outputs:
            return part, outcome, Judgement()
        judgement = judge_same(job.case, job.inputs, straight, outcome.outputs, job.setup.pack)
        if outcome.findings or not judgement.passed:
            break
    return part, outcome, judgement


def _straight(backend: Backend, job: Job, carry: Mapping[str, str]) -> Iterator[Mapping[str, Any]]:
    """The outputs after each step: the variant runs straight, and its outputs become the next step's inputs."""
    inputs = dict(job.inputs)
    for _ in range(job.setup.steps):
        outputs = run_straight(backend, replace(job, inputs=inputs))
        yield outputs
        inputs |= fed_back(job.case, carry, outputs)


def run_straight(backend: Backend, job: Job) -> Mapping[str, Any]:
    """The outputs of the job's variant in the straight context. Raises ReferenceFault if there are none."""
    outcome = backend.run(replace(job, setup=replace(job.setup, context="straight", steps=1)))
    if outcome.status != "ran" or not outcome.outputs:
        words = outcome.words or "; ".join(outcome.findings)
        raise NoStraightRun(f"the straight run that the {job.setup.context} context must equal: {words}", outcome)
    return outcome.outputs
