"""Whether a pass with shared registers holds for all inputs: by a proof where one is possible, else it is a trial."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ptxdiff.jobs import Backend, Job, Outcome
from ptxdiff.model.variants import AsmVariant
from ptxdiff.proving.on_device import arrays_of
from ptxdiff.proving.search import Verdict
from ptxdiff.proving.solving import available
from ptxdiff.records import UNPROVED

SECONDS = 10.0
"""Processor seconds for the proof of one pack."""
TRIAL = f"{UNPROVED}registers that outputs may share with inputs were tried on these inputs alone, because "
PROVED = "no register that an output may share with an input changes a bit, for all inputs: proved"


class SharedRegisters:
    """The proofs of one item, each asked for once."""

    def __init__(self, backend: Backend) -> None:
        self.backend = backend
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
            return "; ".join(self.backend.run(one).findings)

        found = prove_sharing(job.case, job.variant, job.target, pack, shown, fusion=job.setup.fusion, seconds=SECONDS)
        return found, arrays_of(job.case.inputs, found.inputs) if found.inputs else {}


def _noted(outcome: Outcome, words: str) -> Outcome:
    return replace(outcome, notes=(*outcome.notes, words))


def _shown(inputs: Mapping[str, Any]) -> str:
    parts = []
    for name, array in inputs.items():
        units = array.view(f"u{array.itemsize}").tolist()
        parts.append(f"{name} = {', '.join(f'0x{u:0{2 * array.itemsize}x}' for u in units)}")
    return "; ".join(parts)
