"""The loop and shared contexts: each must give the bits that the same variant gives in the straight context."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxdiff.backends.snippet import fed_back
from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.judging.judge import Judgement, judge_same
from ptxdiff.model.reference import ReferenceFault
from ptxdiff.model.variants import AsmVariant
from ptxdiff.proving.on_device import arrays_of
from ptxdiff.proving.solving import Verdict, available
from ptxdiff.records import UNPROVED


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
        reason = outcome.words or "; ".join(outcome.findings)
        raise NoStraightRun(f"the straight run that the {job.setup.context} context must equal: {reason}", outcome)
    return outcome.outputs


# ---- Shared registers: whether a pass holds for all inputs -----------------------------------------------------------
#
# By a proof where one is possible, else it is a trial.


SECONDS = 10.0
"""Processor seconds for the proof of one pack."""
TRIAL = f"{UNPROVED}registers that outputs may share with inputs were tried on these inputs alone, because "
PROVED = "no register that an output may share with an input changes a bit, for all inputs: proved"


class SharedRegisters:
    """The proofs of one item, each asked for once. runs: the backend that runs a job with shared registers."""

    def __init__(self, runs: Callable[[Job], Backend]) -> None:
        self.runs = runs
        self._known: dict[tuple[str, int, bool], tuple[Verdict, Mapping[str, Any]]] = {}

    def settled(self, job: Job, outcome: Outcome) -> Outcome:
        """The outcome of a trial that found nothing, with a note of what it proves; with a finding if a solver found an
        input on which a run shows another bit."""
        if outcome.status != "ran" or outcome.findings:
            return outcome
        if not available():
            return _noted(outcome, f"{TRIAL}no solver is installed: pip install 'ptxdiff[prove]'")
        key = job.target, job.setup.pack, job.setup.fusion
        if key not in self._known:
            self._known[key] = self._asked(job)
        verdict, inputs = self._known[key]
        if verdict.verdict == "counterexample":
            return replace(outcome, findings=(f"{verdict.reason}, for {_shown(inputs)}",))
        if verdict.verdict == "proved":
            return _noted(outcome, PROVED + (f" by {verdict.solver}" if verdict.solver else ""))
        return _noted(outcome, TRIAL + f"a proof was not found: {verdict.reason}")

    def _asked(self, job: Job) -> tuple[Verdict, Mapping[str, Any]]:
        from ptxdiff.proving.verdicts import prove_sharing

        assert isinstance(job.variant, AsmVariant)
        pack = job.setup.pack

        def shown(units: Mapping[str, tuple[int, ...]]) -> str:
            inputs = arrays_of(job.case.inputs, units)
            one = replace(job, inputs=inputs, setup=replace(job.setup, shape=(pack,)))
            return "; ".join(self.runs(one).run(one).findings)

        proof = prove_sharing(job.case, job.variant, job.target, pack, shown, fusion=job.setup.fusion, seconds=SECONDS)
        return proof, arrays_of(job.case.inputs, proof.inputs) if proof.inputs else {}


def _noted(outcome: Outcome, words: str) -> Outcome:
    return replace(outcome, notes=(*outcome.notes, words))


def _shown(inputs: Mapping[str, Any]) -> str:
    parts = []
    for name, array in inputs.items():
        units = array.view(f"u{array.itemsize}").tolist()
        parts.append(f"{name} = {', '.join(f'0x{u:0{2 * array.itemsize}x}' for u in units)}")
    return "; ".join(parts)
