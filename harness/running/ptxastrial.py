"""Finds out whether ptxas is at fault for failures of an item, and says so in their results where it is."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace

from harness.jobs import Job, Outcome
from harness.judging.judge import Judgement
from harness.records import PTXAS, Result
from harness.running.plan import WorkItem
from harness.running.ptxasfault import PtxasBlame, blamed, filled
from harness.running.ptxasstory import attached, in_brief, told
from harness.running.result import Recording


class PtxasTrial(Recording):
    """The results of one item, of which some may be faults of ptxas."""

    @abstractmethod
    def _judgement(self, job: Job, outcome: Outcome) -> Judgement:
        """What the judge says of an outcome."""

    def _on_trial(self, result: Result, job: Job, outcome: Outcome) -> tuple[Result, list[str]]:
        """A failure; where ptxas is at fault, its words name the assembler, and lines explain the fault."""
        if result.diagnosis:
            return result, []
        job = filled(job)
        if not outcome.outputs:  # of a sweep, whose bits stayed on the device
            outcome = self.backend.run(job)
        blame = self._blamed(job, outcome)
        if blame is None:
            return result, []
        result = replace(result, diagnosis=PTXAS, words=in_brief(blame))
        return result, told(blame, attached(self.dump, result.key, blame))

    def _blamed(self, job: Job, outcome: Outcome) -> PtxasBlame | None:
        """Why ptxas is at fault for what a job gave on a GPU; None where that is not proved."""
        if job.setup.context == "shared" or self.backend.name != "gpu":
            return None

        def passes(job: Job, outcome: Outcome) -> bool:
            return self._judgement(job, outcome).passed

        # The search for less PTX takes half a minute at most: once an item, other failures have the variant's own.
        blame = blamed(job, outcome, self.backend, self.assemblers, passes, smallest=not self.reduced)
        self.reduced = self.reduced or blame is not None
        return blame

    def _told(self, item: WorkItem, blame: PtxasBlame | None) -> None:
        """Say of the last result that ptxas is at fault; blame: why, where that was found out."""
        result = replace(self.found.results[-1], diagnosis=PTXAS)
        if blame is not None:
            story = told(blame, attached(self.dump, result.key, blame))
            repeat = f"  repeat    {self._command(result, item.setup.assembler)}"
            message = "\n".join([result.message, *story, repeat])
            result = replace(result, words=f"{result.words}; {in_brief(blame)}", message=message)
        self.found.results[-1] = result
